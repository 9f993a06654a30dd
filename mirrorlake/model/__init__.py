"""Frozen values and pure functions, standard library only."""
