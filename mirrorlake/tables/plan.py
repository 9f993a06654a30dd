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
from mirrorlake.lake import RELAY, Lake, LakeQuery, RelayPart
from mirrorlake.model.plan import Change, Note, Plan
from mirrorlake.tables.decode import MISFIT, RAW_KEY, RAW_VALUE, RowFormat
from mirrorlake.tables.definition import TypedTable, landed_topics, list_tables, registries_of, views_of
from mirrorlake.tables.formats import KEPT, format_of
from mirrorlake.tables.kinds import sql_name
from mirrorlake.tables.progress import TableProgress, read_progress
from mirrorlake.topics import SETTINGS

_COLUMNS = "come with the first records"
_TO_COME = "new in the settings; its first record makes it"
_GOES_ON = "new in the settings; the table that is there goes on"
_WAITING = """
    SELECT :source AS _source, r.topic AS _topic, r.generation AS _generation, r.partition AS _partition, r.`offset` AS _offset,
        r.timestamp AS _timestamp, r.key, r.value, r.headers
    FROM {relay} AS r JOIN {chosen} AS c ON r.topic = c.topic
    LEFT JOIN {known} AS k ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE r.`offset` >= coalesce(k.position, 0) LIMIT 10000
"""
_GONE = "no longer in the settings; the table and its rows stay, and no record is added"


def plan_tables(context: Context) -> Plan:
    """Compare the typed tables of the settings with those in force, and with what the lake holds."""
    config, applied = context.config, context.control().state().applied
    in_force = () if applied is None else applied.value.get("tables", ())
    if not (config.tables or in_force):
        return Plan()
    topics = landed_topics(context.lake, config.sources)
    before, after = (_tables(contents, topics) for contents in (in_force, plain(config).get("tables", ())))
    changes = [
        change
        for name in sorted({*before, *after})
        for change in _changes(context.lake, name, before.get(name), after.get(name))
    ]
    notes = [note for table in list_tables(config, topics) for note in _notes(context, table)]
    return Plan(tuple(changes), tuple(notes))


def _tables(contents: Iterable[Mapping[str, Any]], topics: Mapping[str, Iterable[str]]) -> dict[str, dict[str, Any]]:
    """Return the plain settings of each table by its name; an entry whose topics have not landed has its own name.

    An entry in force that another release wrote and this one refuses is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for content in contents:
        try:
            entry = TableConfig.model_validate(content)
        except ValueError:
            continue
        names: dict[str, list[str]] = {}
        for source, topic in ((source, topic) for source, landed in sorted(topics.items()) for topic in sorted(landed)):
            if entry.selects(source, topic):
                names.setdefault(entry.table_name(source, topic), []).append(f"{source} {topic}")
        told = {key: value for key, value in content.items() if key not in ("topics", "name")}
        for name, carried in (names or {entry.name: [str(entry.topics)]}).items():
            own = {"mode": entry.mode, **told, "topics": ", ".join(carried), "columns": _columns(entry)}
            found.setdefault(name, own)
    return found


def _columns(entry: TableConfig) -> str:
    if entry.values in ("text", "binary"):
        known = ["value"]
    elif entry.schema_text in ("inferred", "registry"):
        known = [_COLUMNS]
    else:
        known = [field.name for field in entry.given_type]
    return ", ".join([*known, *(f"{name} = {text}" for name, text in entry.columns.items())])


def _changes(
    lake: Lake, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterable[Change]:
    if before is None:
        is_there = lake.exists(lake.typed_location(name))
        yield _change(name, "create", None, after, _GOES_ON if is_there else _TO_COME)
    elif after is None:
        yield _change(name, "remove", before, None, _GONE)
    elif differing := [key for key in {**before, **after} if before.get(key) != after.get(key)]:
        was, now = ({key: one.get(key) for key in differing} for one in (before, after))
        yield _change(name, "change", was, now, "edited in the settings; None is the default")


def _change(name: str, action: str, before: Any, after: Any, reason: str) -> Change:
    return Change(where=SETTINGS, kind="table", name=name, action=action, before=before, after=after, reason=reason)


def _notes(context: Context, table: TypedTable) -> Iterable[Note]:
    """Tell what a person should know of one table: its fault, its name in SQL, and settings that its rows do not have."""
    why, lake = [], context.lake
    if table.fault is not None:
        why.append(table.fault.cause)
    elif table.is_hidden:
        location = lake.sql_name(lake.typed_location(table.name))
        why.append(f"SQL takes mirrorlake's own table for its name; query {location}, or give it another `name:`")
    if lake.exists(location := lake.typed_location(table.name)):
        try:
            why += columns_to_come(context, table, read_progress(lake, location))
            properties = lake.properties(location)
            why += [
                f"its rows were made with {key}: {before}, and the settings say {now}; {table.meaning(key)}"
                for key, (before, now) in table.edits(properties).items()
            ]
        except MirrorlakeError as error:
            why.append(f"{error.cause}; next: {error.remedy}")
    for reason in why:
        yield Note(where="lake", kind="table", name=table.name, reason=reason)


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
