"""MirrorMaker 2: take over from it, and write the topics that its clients read."""

from mirrorlake.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
