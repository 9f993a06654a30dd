"""Parse, type and evaluate the SQL conditions of rules with DuckDB."""

from mirrorlake.config.predicates.evaluation import engine
from mirrorlake.config.predicates.parse import FAILED, FALSE, NOT_ASKED, NOT_JSON, TRUE, Predicate, compile_predicate
