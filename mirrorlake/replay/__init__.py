"""Replay records of a relay into any topic, exactly once."""

from mirrorlake.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
