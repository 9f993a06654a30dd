"""The settings file as values: clusters, lake, flows, and what each of them may say."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
