"""The schema registry of a typed table's records: of its entry, or of the source cluster."""

from __future__ import annotations

from collections.abc import Callable

from mirrorlake.config.schema import TableConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.schemas import SchemaRegistry


def registries_of(context: Context, entry: TableConfig) -> Callable[[str], SchemaRegistry]:
    """Return a function that returns the schema registry of a source's records; a UsageError if neither entry nor source has one."""
    if entry.registry is not None:
        registry = SchemaRegistry(entry.registry.options(), name=f"of {entry.place}")
        return lambda _: registry
    return lambda source: context.registry(source) or no_registry(source)


def no_registry(source: str) -> SchemaRegistry:
    raise UsageError(
        f"the records of {source} name schemas, and its schema registry is not known",
        consequence="the table is not written",
        remedy=f"write `registry: {{url: ...}}` beside `values:`, or in clusters.{source}",
    )
