"""The face of `mirrorlake.config.predicates`: what other rooms use of it; its modules are its own."""

from mirrorlake.config.predicates.evaluation import engine as engine
from mirrorlake.config.predicates.parse import Predicate as Predicate
from mirrorlake.config.predicates.parse import compile_predicate as compile_predicate
