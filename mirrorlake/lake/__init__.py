"""Delta tables: their columns, how they are read and appended to."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
