"""MLflow runs of verifications and benchmarks; only this room speaks mlflow, and nothing in the house needs it to answer."""
