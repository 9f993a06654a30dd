"""The progress of long work, from facts the work already has: no query and no cluster call is made for it.

Work calls a `ProgressCallback`. A `Board` collects its reports and draws them with a `Display`: bars in a notebook
and a terminal, else a log line every few seconds. Only the thread that made the board draws: output of Spark's
threads would end up below any cell.
"""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
