"""Maintain a lake in use: compaction, retention, erasure, log checkpoints, vacuum, ledgers."""

from mirrorlake.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
