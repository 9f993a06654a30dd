"""Kafka to relay: one streaming query a source cluster, and an account of every offset."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
