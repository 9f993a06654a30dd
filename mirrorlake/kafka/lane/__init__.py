"""A lane: records of a fixed set of source partitions, sent in transactions of one producer."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
