"""Make the writer of a typed table from the context of a mirror."""

from __future__ import annotations

from mirrorlake.context import Context
from mirrorlake.rules import make_flow_view
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.registries import registries_of
from mirrorlake.tables.through import Through
from mirrorlake.tables.writer import TableWriter


def make_writer(context: Context, table: TypedTable, *, owner: str) -> TableWriter:
    """Return the writer of a table, with the schema registries of its records and the rules of its flows."""
    entry = table.config
    flows = [context.config.flow(name) for name in entry.through]
    views = {flow.source: view for flow in flows if (view := make_flow_view(flow)) is not None}
    return TableWriter(
        context.lake,
        table,
        owner=owner,
        now=context.now,
        registries=registries_of(context, entry),
        through=Through(views) if views else None,
    )
