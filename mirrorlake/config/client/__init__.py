"""Translate client options of either spelling for librdkafka and for Java."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
