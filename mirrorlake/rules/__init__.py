"""Rules: what a flow does to records on their way, on Arrow batches; no Kafka and no Spark session in here."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
