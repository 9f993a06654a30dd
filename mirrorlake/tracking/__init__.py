"""MLflow runs of verifications, benchmarks and drills; only this package uses mlflow, and nothing else depends on it."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
