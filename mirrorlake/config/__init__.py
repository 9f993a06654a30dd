"""Read typed settings from one YAML file, and report every fault at once."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
