"""What every operation works with: settings, lake, clients of clusters, session, clock and progress of one mirror."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
