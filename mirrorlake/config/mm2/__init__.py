"""Import MirrorMaker 2's settings: properties, Kafka Connect's JSON, Strimzi's YAML."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
