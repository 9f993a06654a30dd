"""Write records to the relay itself, once for all targets: a frame, a file, a producer."""

from mirrorlake.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
