"""The runtime of all packages: the Spark session, Java and its jars, background work."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
