"""Parse, type and evaluate the SQL conditions of rules with DuckDB."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
