"""Remove rows from a typed table: erased ones, those past its retention, and all of them where it is built again."""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from mirrorlake.context import Context
from mirrorlake.errors import SafetyError
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition
from mirrorlake.progress import ProgressCallback
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_count, plural
from mirrorlake.tables.definition import TypedTable, find_table
from mirrorlake.tables.formats import PARTITION, PLACE
from mirrorlake.tables.progress import UPKEEP, TableRelay, claim_batch, read_progress, retried, session_of
from mirrorlake.tables.stream import TableStream
from mirrorlake.tables.writer import TableWriter, count_bad, merge, merge_newest, newest_of_keys

log = logging.getLogger(__name__)

Spans = Mapping[SourcePartition, Sequence[tuple[int, int]]]


def erase_rows(context: Context, name: str, table: TypedTable | None, source: str, spans: Spans) -> int:
    """Erase the rows that come from erased records of a source, which its relay has lost before; return their number.

    `spans` are upstream offsets as `(first, end)`; `table` is None if no entry of the settings makes it. Of an upserted table, the
    newest records that the relay still has come back: also where only a tombstone was erased.
    """
    lake = context.lake
    # A batch of a running query with such a record is dropped, and read again from the relay.
    claim_batch(lake, name)
    count = retried(partial(_delete, lake, name, source, spans), name)
    if table is not None and table.config.mode == "upsert":
        retried(partial(_bring_back, context, table), name)
    # Without rows of erased records, too: newer ones of their keys may have replaced them.
    retried(partial(lake.purge_deleted, lake.typed_location(name)), name)
    return count


def _delete(lake: Lake, name: str, source: str, spans: Spans) -> int:
    from pyspark.sql import functions as F

    session = session_of(lake.spark)
    # Without columns of values, whose names are those of strangers.
    places = lake.load_typed(session.read, name).select(*PLACE)
    known = [(source, *asdict(at).values(), *span) for at, several in spans.items() for span in several]
    of_place = "_source string, _topic string, _generation int, _partition int"
    erased = session.createDataFrame(known, f"{of_place}, first bigint, end bigint")
    held = places.join(F.broadcast(erased), PARTITION)
    gone = held.where("_offset >= first AND _offset < end").select(*PLACE).distinct()
    count: int = gone.count()
    if count:
        merge(gone, lake.sql_name(lake.typed_location(name)), PLACE, "WHEN MATCHED THEN DELETE")
    return count


def _bring_back(context: Context, table: TypedTable) -> None:
    """Merge the newest record of each key that the relay has and the table has not, within its retention."""
    from pyspark.sql import functions as F

    lake, session = context.lake, session_of(context.lake.spark)
    writer = TableWriter(context, table, session, owner=UPKEEP)
    writer.open()
    relay = TableRelay(lake, table, session)
    records = writer.rows(writer.judge(relay.before(writer.progress.positions)))
    if (keep := table.config.retention) is not None:
        records = records.where(F.col("_timestamp") >= F.lit(context.now() - keep))
    places = lake.load_typed(session.read, table.name).select(*PLACE)
    left = newest_of_keys(records).where("NOT _tombstone").join(places, PLACE, "left_anti")
    merge_newest(left, lake.sql_name(lake.typed_location(table.name)))


def expire_rows(lake: Lake, name: str, *, before: datetime, plan: bool) -> int:
    """Delete the rows with an older record timestamp, and return their number; with `plan` they stay."""
    where = f"_timestamp < TIMESTAMP '{before.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S.%f}+00:00'"
    rows: int = lake.typed(name).where(where).count()
    if rows and not plan:
        # Carries the table's progress on: the log of a table without new records may be cleaned of its batches.
        claim_batch(lake, name)
        location = lake.typed_location(name)
        delete = f"DELETE FROM {lake.sql_name(location)} WHERE {where}"  # noqa: S608 - a time
        retried(lambda: lake.spark.sql(delete), name)
        retried(lambda: lake.purge_deleted(location), name)
    return rows


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableRebuild(JsonDisplayable):
    """A typed table that was built again, or with `planned` would be.

    Attributes:
        table: its name.
        old: how the old table was found: `ok`, `lost` (it is not there) or `broken` (it cannot be read).
        old_rows: the rows of the old table, or None if they cannot be read.
        rows: the rows of the new table; None in a plan.
        bad_records: its bad records.
        moved_to: where a broken table was moved.
        planned: nothing was done yet.
    """

    json_include: ClassVar[tuple[str, ...]] = ()

    table: str
    old: str
    old_rows: int | None
    rows: int | None = None
    bad_records: int = 0
    moved_to: str = ""
    planned: bool = True

    def sheet(self) -> Sheet:
        """Show what was, and what is."""
        facts = [f"the table is {self.old}" + ("" if self.old_rows is None else f", {plural(self.old_rows, 'row')}")]
        if self.rows is not None:
            facts.append(f"{plural(self.rows, 'row')} now, bad records: {format_count(self.bad_records)}")
        facts += [f"the broken table is in {self.moved_to}"] if self.moved_to else []
        facts += ["next: the same command with --apply"] if self.planned else []
        mood = badge("plan", "note") if self.planned else badge("rebuilt", "good")
        return Sheet(title=f"table {self.table}", badge=mood, facts=tuple(facts))


def rebuild_table(context: Context, name: str, *, apply: bool, tell: ProgressCallback) -> TableRebuild:
    """Build a typed table again from the relay, as its next batch, which replaces all that it has in one commit.

    First it is made stale: a running query drops its batch, and may be the one that builds it.
    """
    table, lake = find_table(context, name), context.lake
    location, moved_to = lake.typed_location(name), ""
    old, old_rows = _look(lake, name)
    if not apply:
        return TableRebuild(table=name, old=old, old_rows=old_rows)
    if old == "ok":
        claim_batch(lake, name, makes_stale=True)
    elif old == "broken":
        moved_to = _move_aside(lake, name)
    stream = TableStream(context, table, tell=tell, owner=f"{UPKEEP} {uuid.uuid4().hex}")
    try:
        stream.run(threading.Event(), once=True)
    except SafetyError:
        if read_progress(lake, name).is_stale:
            raise
        log.info("table.built_by_another table=%s", name)
    rows, bad = lake.typed(name).count() if lake.exists(location) else 0, count_bad(lake, name)
    how: dict[str, Any] = {"old": old, "old_rows": old_rows, "moved_to": moved_to, "planned": False}
    return TableRebuild(table=name, rows=rows, bad_records=bad, **how)


def _look(lake: Lake, name: str) -> tuple[str, int | None]:
    try:
        if not lake.exists(lake.typed_location(name)):
            return "lost", None
        read_progress(lake, name)
        return "ok", lake.typed(name).count()
    except Exception:
        log.info("table.broken table=%s", name, exc_info=True)
        return "broken", None


def _move_aside(lake: Lake, name: str) -> str:
    location = lake.typed_location(name)
    if lake.is_catalog:
        lake.spark.sql(f"DROP TABLE IF EXISTS {lake.sql_name(location)}")
        return ""
    aside = Path(location).parents[1] / "broken" / f"{name}-{uuid.uuid4().hex[:8]}"
    aside.parent.mkdir(exist_ok=True)
    shutil.move(location, aside)
    lake.forget_table(location)
    return str(aside)
