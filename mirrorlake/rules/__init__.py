"""Apply the rules of a flow to Arrow batches of records, without Kafka and without a Spark session."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
