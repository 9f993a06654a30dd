"""Conditions of rules, in SQL: parsed, typed and evaluated by DuckDB."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
