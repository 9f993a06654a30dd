"""What everything runs on: the Spark session, Java and its jars, work in the background."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
