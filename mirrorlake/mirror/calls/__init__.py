"""The calls of a `Mirror`, by subject; services do the work."""
