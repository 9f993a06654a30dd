"""Typed tables in the lake's upkeep: erased rows, rows past a retention, and records that the relay must keep for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.maintenance.results import Expired, KeptTable
from mirrorlake.maintenance.retention import Guard, KeepReason
from mirrorlake.maintenance.tiers import KeptFile
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.removed import Removed
from mirrorlake.tables import TypedTable, erase_rows, expire_rows, find_tables, list_tables, read_progress

log = logging.getLogger(__name__)

_LATE = timedelta(days=1)
_NOTHING: Mapping[str, Mapping[SourcePartition, int]] = {}


def out_of_typed_tables(context: Context, source: str, removed: Sequence[Removed]) -> Mapping[str, int]:
    """Erase the rows of a source's erased records from every typed table; return their numbers by table.

    A table that no entry of the settings makes loses its rows, too.
    """
    if not removed:
        return {}
    lake = context.lake
    spans: dict[SourcePartition, list[tuple[int, int]]] = {}
    for one in removed:
        spans.setdefault(one.source, []).extend(one.ranges)
    known = {one.name: one for one in list_tables(context.config, {source: {at.topic for at in spans}})}
    of_other_topics = {one.name for one in find_tables(context)}
    names = {name for name in known if lake.exists(lake.typed_location(name))}
    names |= {*lake.typed_names()} - of_other_topics
    found, failures = dict[str, int](), list[Exception]()
    for name in sorted(names):
        try:
            found[name] = erase_rows(context, name, known.get(name), source, spans)
        except Exception as error:
            log.warning("erase.failed table=%s why=%s", name, str(error).partition("\n")[0])
            failures.append(error)
    # The others have lost the rows by now; the erasure is not done before this one has, too.
    for failure in failures:
        raise failure
    return found


def unread_by_tables(context: Context) -> dict[str, list[Guard]]:
    found = dict[str, list[Guard]]()
    if any(cluster.retention for cluster in context.config.clusters.values()):
        for table in find_tables(context):
            positions = _NOTHING
            # Of a table that cannot be read, the relay keeps all records.
            with suppress(MirrorlakeError):
                positions = read_progress(context.lake, table.name).positions
            for source in table.topics:
                found.setdefault(source, []).append(not_in_table(table, source, positions.get(source, {})))
    return found


def not_in_table(table: TypedTable, source: str, positions: Mapping[SourcePartition, int]) -> Guard:
    """Hold back records that a typed table has not read: running, paused, parked or never started."""

    def needs(file: KeptFile) -> KeepReason | None:
        position = positions.get(file.source, 0)
        if not table.config.selects(source, file.source.topic) or file.last_offset < position:
            return None
        why = f"the table {table.name} has read {file.source} up to {position}"
        remedy = f"mirrorlake tables --run --once --table {table.name}, or remove its entry of the settings"
        return KeepReason(f"table {table.name}", why, remedy)

    return needs


def expire_tables(context: Context, *, plan: bool) -> list[KeptTable]:
    """Delete the rows past their table's own retention, by record timestamp.

    A pass rewrites the files with old and new rows, so rows wait until some are a tenth of the retention past it, or a day.
    """
    found = []
    for table in find_tables(context):
        keep = table.config.retention
        if keep is None or not context.lake.exists(location := context.lake.typed_location(table.name)):
            continue
        name, now = f"table {table.name}", context.now()
        try:
            maintenance = context.lake.open_maintenance(location)
            oldest = None if maintenance is None else maintenance.least("_timestamp")
            is_due = maintenance is None or (oldest is not None and oldest < now - keep - min(keep / 10, _LATE))
            rows = expire_rows(context.lake, table.name, before=now - keep, plan=plan) if is_due else 0
            files = 0 if maintenance is None else len(maintenance.live())
            found.append(KeptTable(table=name, files=files, expired=Expired(records=rows)))
        except Exception as error:
            log.info("maintenance.failed table=%s", name, exc_info=True)
            found.append(KeptTable(table=name, why_not=str(error).partition("\n")[0]))
    return found
