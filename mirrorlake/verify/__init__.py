"""Prove that source, relay and target hold the same records, and repair a relay that holds one twice."""

from mirrorlake.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
