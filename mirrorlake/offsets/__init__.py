"""The offset map: translate a position, resume a reader, rebuild a target from its own records."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
