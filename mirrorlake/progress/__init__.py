"""The progress of long work, from what the work knows anyway: no query is run and no cluster is asked for it.

Work calls a `Tell`; a `Board` keeps its reports and has a `Display` draw them: bars in a notebook and a terminal, else a log
line every few seconds. Only the thread that made the board draws: what Spark's threads print ends up below any cell.
"""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
