"""Replay records of a relay into any topic or file, exactly once; restore topics as of a time."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
