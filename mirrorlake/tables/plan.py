"""Notes of `plan` on typed tables: faults, settings that were edited since the rows were made, and columns to come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import RELAY, LakeQuery, RelayPart
from mirrorlake.model.plan import Note, Plan
from mirrorlake.tables.decode import RowFormat
from mirrorlake.tables.definition import MEANINGS, TypedTable, find_tables, registries_of
from mirrorlake.tables.progress import TableProgress, read_progress

_WAITING = """
    SELECT :source AS _source, r.topic AS _topic, r.generation AS _generation, r.partition AS _partition, r.`offset` AS _offset,
        r.timestamp AS _timestamp, r.key, r.value, r.headers
    FROM {relay} AS r JOIN {chosen} AS c ON r.topic = c.topic
    LEFT JOIN {known} AS k ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE r.`offset` >= coalesce(k.position, 0) LIMIT 10000
"""


def plan_tables(context: Context) -> Plan:
    """Note what a person should know of the typed tables of the settings."""
    notes = [
        Note(where="lake", kind="table", name=table.name, reason=reason)
        for table in find_tables(context)
        for reason in _reasons(context, table)
    ]
    return Plan((), tuple(notes))


def _reasons(context: Context, table: TypedTable) -> Iterable[str]:
    """Tell a table's fault, its name in SQL, columns to come, and settings that its rows do not have."""
    lake, location = context.lake, context.lake.typed_location(table.name)
    if table.fault is not None:
        yield table.fault.cause
    elif table.is_hidden:
        hidden = "SQL takes mirrorlake's own table for its name"
        yield f"{hidden}; query {lake.sql_name(location)}, or give it another `name:`"
    if not lake.exists(location):
        return
    try:
        yield from columns_to_come(context, table, read_progress(lake, table.name))
        for key, edit in table.edits(lake.properties(location)).items():
            yield f"its rows were made with {edit}; {MEANINGS[key]} until it is built again: {table.rebuilding}"
    except MirrorlakeError as error:
        yield f"{error.cause}; next: {error.remedy}"


def columns_to_come(context: Context, table: TypedTable, progress: TableProgress) -> Iterable[str]:
    """Tell which columns some waiting records would add or widen; nothing where only Spark reaches the table."""
    lake, config = context.lake, table.config
    if lake.is_spark_only or config.changes == "refuse":
        return
    registries, kept = registries_of(context, config), lake.properties(lake.typed_location(table.name))
    rows = RowFormat.of(context, table, kept, registries)
    rows, looked = replace(rows, takes_misfits=True), list[tuple[str, str]]()
    for source, topics in table.topics.items():
        part = RelayPart(progress.positions.get(source, {}))
        given = {"known": part.known(), "chosen": pa.table({"topic": [*topics]})}
        found = lake.query_table(LakeQuery(_WAITING, {RELAY.name: (source, part)}, given, {"source": source}))
        batches = iter(found.combine_chunks().to_batches() if found is not None else ())
        misfits = (one.filter(pc.is_valid(one.column("_misfit"))) for one in rows.decode_all(batches))
        for seen in rows.look(misfits):
            looked += zip(*seen.to_pydict().values(), strict=True)
    wide = rows.grown(looked, registries, widens=True, rebuilds=True)
    for of, grown in ((rows.key, wide.key), (rows.value, wide.value)):
        have, wider = of.leaves, grown.leaves
        yield from (
            f"waiting records add the column {name}, {kind}" for name, kind in wider.items() if name not in have
        )
        is_rebuilt = "; the table is built again" if of.is_rebuilt_for(grown) else ""
        for name, kind in have.items():
            if wider.get(name) != kind:
                yield f"waiting records widen the column {name}, {kind}, to {wider.get(name, 'STRING')}{is_rebuilt}"
