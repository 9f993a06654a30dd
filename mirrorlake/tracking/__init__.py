"""MLflow runs of verifications and benchmarks; only this room uses mlflow, and nothing else needs it to answer."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
