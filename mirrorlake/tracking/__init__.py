"""MLflow runs of verifications and benchmarks; only this room uses mlflow, and nothing else needs it to answer."""
