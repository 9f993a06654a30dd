"""Build a typed table again from the relay, beside the old one, and let it take its place (docs/design.md)."""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import ClassVar

from mirrorlake.context import Context
from mirrorlake.lake import BAD_RECORDS, quote
from mirrorlake.progress import ProgressCallback
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_count, plural
from mirrorlake.tables.commits import UPKEEP, app_of, claim_batch, retried
from mirrorlake.tables.definition import TypedTable, find_table
from mirrorlake.tables.make import make_writer
from mirrorlake.tables.progress import TableProgress, read_progress
from mirrorlake.tables.stream import TableStream
from mirrorlake.tables.writer import TableWriter

log = logging.getLogger(__name__)

OK, LOST, BROKEN = "ok", "lost", "broken"


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
    table = find_table(context, name)
    old, old_rows = _look(context, name)
    if not apply:
        return TableRebuild(table=name, old=old, old_rows=old_rows)
    return _Rebuild(context, table, tell).run(old, old_rows)


def _look(context: Context, name: str) -> tuple[str, int | None]:
    lake = context.lake
    try:
        if not lake.exists(lake.typed_location(name)):
            return LOST, None
        if any(Path(lake.typed_location(name)).glob("_delta_log/*.broken")):
            # Opening the table has put an empty commit in the place of a broken one.
            return BROKEN, None
        read_progress(lake, lake.typed_location(name))
        return OK, lake.typed(name).count()
    except Exception:
        log.info("table.broken table=%s", name, exc_info=True)
        return BROKEN, None


class _Rebuild:
    def __init__(self, context: Context, table: TypedTable, tell: ProgressCallback) -> None:
        self._context = context
        self._lake = context.lake
        self._table = table
        self._location = self._lake.typed_location(table.name)
        self._staging = replace(table, name=f"_rebuild.{table.name}")
        self._tell = tell

    def run(self, old: str, old_rows: int | None) -> TableRebuild:
        # What a killed rebuild left may be of other settings.
        self._drop_staging()
        began = self._context.now()
        TableStream(self._context, self._staging, tell=self._tell).run(threading.Event(), once=True)
        moved_to = self._move_aside() if old == BROKEN else ""
        self._take_place(was_there=old == OK, began=began)
        rows = self._lake.typed(self._table.name).count()
        bad = self._replace_bad_records(began)
        self._drop_staging()
        return TableRebuild(
            table=self._table.name,
            old=old,
            old_rows=old_rows,
            rows=rows,
            bad_records=bad,
            moved_to=moved_to,
            planned=False,
        )

    def _take_place(self, *, was_there: bool, began: datetime) -> None:
        """Replace rows, schema and progress in one commit; a batch that was read before is dropped."""
        writer = self._writer(self._staging)
        writer.open()
        if not was_there:
            self._forget_log()
            self._writer(self._table).create_like(writer)
            # A query of the lost table goes on with its own numbers: those of the new one are above.
            claim_batch(self._lake, self._table.name, at_least=int(began.timestamp()))
        retried(lambda: self._overwrite(writer), self._table.name)
        self._lake.set_properties(self._location, {**self._table.made_with, **writer.types})

    def _writer(self, table: TypedTable) -> TableWriter:
        return make_writer(self._context, table, owner=UPKEEP)

    def _overwrite(self, staged: TableWriter) -> None:
        number = claim_batch(self._lake, self._table.name).batch + 1
        progress = TableProgress(number, f"{UPKEEP} {uuid.uuid4().hex}", staged.progress.positions)
        rows = self._lake.typed(self._staging.name).write.mode("overwrite").option("overwriteSchema", "true")
        rows = (
            rows.partitionBy(*staged.partition_by)
            .option("txnAppId", app_of(self._table.name))
            .option("txnVersion", number)
        )
        self._lake.save_typed(rows.option("userMetadata", progress.to_text()), self._location)
        if read_progress(self._lake, self._location).owner != progress.owner:
            # A batch of that number came first.
            self._overwrite(staged)

    def _replace_bad_records(self, began: datetime) -> int:
        location = self._lake.meta_location(BAD_RECORDS)
        if not self._lake.exists(location):
            return 0
        table, name, staging = self._lake.sql_name(location), quote(self._table.name), quote(self._staging.name)
        before = f"recorded_at < TIMESTAMP '{began.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S.%f}+00:00'"
        statements = (
            f"DELETE FROM {table} WHERE table_name = {name} AND {before}",  # noqa: S608 - names of the lake
            f"UPDATE {table} SET table_name = {name} WHERE table_name = {staging}",  # noqa: S608
        )
        for statement in statements:
            retried(partial(self._lake.spark.sql, statement), self._table.name)
        return int(self._lake.meta(BAD_RECORDS).where(f"table_name = {name}").count())

    def _move_aside(self) -> str:
        if self._lake.is_catalog:
            self._lake.spark.sql(f"DROP TABLE IF EXISTS {self._lake.sql_name(self._location)}")
            return ""
        aside = Path(self._location).parents[1] / "broken" / f"{self._table.name}-{uuid.uuid4().hex[:8]}"
        aside.parent.mkdir(exist_ok=True)
        Path(self._location).rename(aside)
        return str(aside)

    def _forget_log(self) -> None:
        """Let Spark forget the old table's log: it takes files of the same names for the same."""
        spark = self._lake.spark
        spark.catalog.clearCache()
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # noqa: SLF001 - Python has no name for it

    def _drop_staging(self) -> None:
        location = self._lake.typed_location(self._staging.name)
        if self._lake.is_catalog:
            self._lake.spark.sql(f"DROP TABLE IF EXISTS {self._lake.sql_name(location)}")
        else:
            shutil.rmtree(location, ignore_errors=True)
        if self._lake.exists(self._lake.meta_location(BAD_RECORDS)):
            self._lake.delete_rows(BAD_RECORDS, f"table_name = {quote(self._staging.name)}")
