"""Floor 1: typed settings, read from one YAML file, every fault reported at once."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
