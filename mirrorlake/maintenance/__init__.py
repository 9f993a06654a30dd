"""Keep the lake small while it is written and read: compaction, log checkpoints, vacuum, ledgers."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
