"""The context of every operation of one mirror: settings, lake, cluster clients, session, clock and progress."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
