"""Replay: records of a relay once more, into any topic or file, exactly once; and topics as they were at a time."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
