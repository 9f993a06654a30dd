"""Faults by chance on real brokers, with a checker beside them: `make chaos SEED=7 MINUTES=5` (docs/faults.md)."""
