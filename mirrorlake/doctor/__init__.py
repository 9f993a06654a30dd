"""Check settings, clusters and tables, and name the failing layer with its repair."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
