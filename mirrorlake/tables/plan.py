"""Plan the typed tables: those to create, change and remove, settings that existing rows were made with, and columns to come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config import plain
from mirrorlake.config.schema import TableConfig
from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import RELAY, LakeQuery, RelayPart
from mirrorlake.model.plan import Change, Note, Plan
from mirrorlake.tables.decode import MISFIT, RAW_KEY, RAW_VALUE, RowFormat
from mirrorlake.tables.definition import (
    MEANINGS,
    TypedTable,
    landed_topics,
    list_tables,
    registries_of,
    tables_of,
    views_of,
)
from mirrorlake.tables.formats import KEPT, format_of
from mirrorlake.tables.kinds import sql_name
from mirrorlake.tables.progress import TableProgress, read_progress
from mirrorlake.topics import SETTINGS

_WAITING = """
    SELECT :source AS _source, r.topic AS _topic, r.generation AS _generation, r.partition AS _partition, r.`offset` AS _offset,
        r.timestamp AS _timestamp, r.key, r.value, r.headers
    FROM {relay} AS r JOIN {chosen} AS c ON r.topic = c.topic
    LEFT JOIN {known} AS k ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE r.`offset` >= coalesce(k.position, 0) LIMIT 10000
"""
_REASONS = {
    "create": "new in the settings; its first record makes it, unless it is there",
    "change": "edited in the settings; None is the default",
    "remove": "no longer in the settings; the table and its rows stay, and no record is added",
}


def plan_tables(context: Context) -> Plan:
    """Compare the typed tables of the settings with those in force, and with what the lake holds."""
    config, applied = context.config, context.control().state().applied
    in_force = () if applied is None else applied.value.get("tables", ())
    if not (config.tables or in_force):
        return Plan()
    topics = landed_topics(context.lake, config.sources)
    before, after = (_tables(contents, topics) for contents in (in_force, plain(config).get("tables", ())))
    edited = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    changes = [_change(name, before.get(name), after.get(name)) for name in edited]
    notes = [
        Note(where="lake", kind="table", name=table.name, reason=reason)
        for table in list_tables(config, topics)
        for reason in _reasons(context, table)
    ]
    return Plan(tuple(changes), tuple(notes))


def _tables(contents: Iterable[Mapping[str, Any]], topics: Mapping[str, Iterable[str]]) -> dict[str, dict[str, Any]]:
    """Return the plain settings of each table by its name; an entry whose topics have not landed has its own name."""
    found: dict[str, dict[str, Any]] = {}
    for content in contents:
        try:
            entry = TableConfig.model_validate(content)
        except ValueError:
            # Another release may have put it in force.
            continue
        for name, of_table in (tables_of(entry, topics) or {entry.name: {}}).items():
            carried = ", ".join(f"{source} {topic}" for source, names in of_table.items() for topic in names)
            own = {"mode": entry.mode, **content, "topics": carried or str(entry.topics)}
            own.pop("name", None)
            found.setdefault(name, own)
    return found


def _change(name: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Change:
    """Return the change of a table's plain settings; of an edit it has those that differ."""
    action = "create" if before is None else "remove" if after is None else "change"
    if before is not None and after is not None:
        differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        before, after = ({key: one.get(key) for key in differing} for one in (before, after))
    reason = _REASONS[action]
    return Change(where=SETTINGS, kind="table", name=name, action=action, before=before, after=after, reason=reason)


def _reasons(context: Context, table: TypedTable) -> Iterable[str]:
    """Tell what a person should know of one table: its fault, its name in SQL, and settings that its rows do not have."""
    lake, location = context.lake, context.lake.typed_location(table.name)
    if table.fault is not None:
        yield table.fault.cause
    elif table.is_hidden:
        hidden = "SQL takes mirrorlake's own table for its name"
        yield f"{hidden}; query {lake.sql_name(location)}, or give it another `name:`"
    if not lake.exists(location):
        return
    try:
        yield from columns_to_come(context, table, read_progress(lake, location))
        for key, edit in table.edits(lake.properties(location)).items():
            yield f"its rows were made with {edit}; {MEANINGS[key]} until it is built again: {table.rebuilding}"
    except MirrorlakeError as error:
        yield f"{error.cause}; next: {error.remedy}"


def columns_to_come(context: Context, table: TypedTable, progress: TableProgress) -> Iterable[str]:
    """Tell which columns the first waiting records would add or widen; nothing where only Spark reaches the table."""
    lake, config = context.lake, table.config
    if lake.is_spark_only or config.changes == "refuse":
        return
    kept, registries = lake.properties(lake.typed_location(table.name)), registries_of(context, config)
    key, value = (format_of(config, of, kept.get(name), registries, [*table.topics]) for of, name in KEPT.items())
    rows = RowFormat(key, value, takes_misfits=True, needs_key=config.mode == "upsert", views=views_of(context, config))
    seen: dict[str, list[Any]] = {RAW_KEY: [], RAW_VALUE: []}
    for source, topics in table.topics.items():
        part = RelayPart(progress.positions.get(source, {}))
        given = {"known": part.known(), "chosen": pa.table({"topic": [*topics]})}
        found = lake.query_table(LakeQuery(_WAITING, {RELAY.name: (source, part)}, given, {"source": source}))
        for batch in found.combine_chunks().to_batches() if found is not None else ():
            decoded = rows.decode(batch)
            misfits = decoded.filter(pc.is_valid(decoded.column(MISFIT)))
            for of, raw in ((key, RAW_KEY), (value, RAW_VALUE)):
                seen[raw] += of.look(misfits.column(raw), misfits.column("_source"))
    for of, raw in ((key, RAW_KEY), (value, RAW_VALUE)):
        grown = of.grown(seen[raw], registries, widens=True, rebuilds=True)
        have, wider = _leaves("", pa.struct([*of.fields.items()])), _leaves("", pa.struct([*grown.fields.items()]))
        yield from (
            f"waiting records add the column {name}, {kind}" for name, kind in wider.items() if name not in have
        )
        is_rebuilt = "; the table is built again" if of.is_rebuilt_for(grown) else ""
        for name, kind in have.items():
            if wider.get(name) != kind:
                yield f"waiting records widen the column {name}, {kind}, to {wider.get(name, 'STRING')}{is_rebuilt}"


def _leaves(path: str, type_: pa.DataType) -> dict[str, str]:
    """Return the columns in a type, with their types in SQL, by path."""
    if pa.types.is_struct(type_):
        inner = [_leaves(f"{path}.{one.name}".lstrip("."), one.type) for one in type_]
        return {name: kind for one in inner for name, kind in one.items()}
    return _leaves(f"{path}[]", type_.value_type) if pa.types.is_list(type_) else {path: sql_name(type_)}
