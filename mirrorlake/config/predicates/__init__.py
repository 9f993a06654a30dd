"""Parse, type and evaluate the SQL conditions of rules with DuckDB."""

from mirrorlake.config.predicates.evaluation import engine
from mirrorlake.config.predicates.parse import Predicate, compile_predicate
