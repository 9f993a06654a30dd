"""The settings file as typed values: clusters, lake, flows and their settings."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
