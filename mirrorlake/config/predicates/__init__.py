"""Conditions of rules, in SQL: parsed, typed and evaluated by DuckDB."""
