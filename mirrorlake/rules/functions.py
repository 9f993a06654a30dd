"""User functions on Arrow batches: registered by name, or imported from a module of the workers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mirrorlake.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

RecordFunction = Callable[["pa.RecordBatch"], "pa.RecordBatch"]

_REGISTERED: dict[str, RecordFunction] = {}


def rule_function(name: str, function: RecordFunction) -> RecordFunction:
    """Register a function that rules call by name, and return it; replaces an earlier one of the name.

    It gets a `pyarrow.RecordBatch` with the columns `offset, timestamp, key, value, headers` and returns one with the
    same columns. It may omit rows, which filters them, and change key, value, headers and timestamp. The result of a record
    must depend on that record only: a step that runs again has other batches (law F).

    Args:
        name: the value of `function:` in a rule.
        function: runs in Spark's workers; a notebook's function is sent there with all that it refers to.

    Raises:
        UsageError: it cannot be called.

    Example:
        >>> import mirrorlake as ml
        >>> same = ml.rule_function("same", lambda records: records)
    """
    if not callable(function):
        raise UsageError(f"'{name}' is registered with something that cannot be called", remedy="pass a function")
    _REGISTERED[name] = function
    return function


def find_function(name: str, *, flow: str, rule: str) -> RecordFunction:
    """Return the function of a rule by its name."""
    if ":" not in name:
        if name in _REGISTERED:
            return _REGISTERED[name]
        raise _missing(name, flow, rule, "it is not registered in this process")
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise _missing(name, flow, rule, f"importing it raised {type(error).__name__}: {error}") from error
    if not callable(found):
        raise _missing(name, flow, rule, "it cannot be called")
    function: RecordFunction = found
    return function


def _missing(name: str, flow: str, rule: str, why: str) -> UsageError:
    return UsageError(
        f"rule '{rule}' of {flow} needs the function '{name}': {why}",
        consequence="nothing was started",
        remedy=f'call ml.rule_function("{name}", function) first, or write function: package.module:callable',
        flow=flow,
    )
