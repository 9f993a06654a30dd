"""Repair a relay: land the records of broken files again, and remove duplicates.

Flows send such a record once anyway (law D); counts, questions and proofs of the relay see it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mirrorlake.errors import UsageError
from mirrorlake.lake import Audit, BrokenFile, FencedRelayWriter, FileSpan, Lake, broken_files, quote
from mirrorlake.landing import Mended, Mending
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.plan import Change
from mirrorlake.render import Displayable, Sheet, badge, plural, table
from mirrorlake.verify.side_repair import BrokenTable, repair_side_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = [*SOURCE_KEY, "offset"]
_CONTENT = ["timestamp", "timestamp_type", "key", "value", "headers"]


@dataclass(frozen=True, slots=True)
class Doubled:
    """The duplicates of a source partition in a relay: `rows` beside the first ones, in a range of offsets.

    `differing` counts offsets that it holds with more than one content: two histories of a source, which nobody may merge.
    """

    source: SourcePartition
    first_offset: int
    last_offset: int
    rows: int
    differing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Displayable):
    """The broken files and duplicates of a source's relay.

    `removed` doubled rows were taken out, and `mended` files were landed again; with broken files, doubled rows are looked for
    once those are mended.
    """

    source: str
    doubled: tuple[Doubled, ...] = ()
    removed: int = 0
    broken: tuple[BrokenFile, ...] = ()
    mended: tuple[Mended, ...] = ()
    tables: tuple[BrokenTable, ...] = ()
    is_check: bool = False

    @property
    def rows(self) -> int:
        """The count of duplicate rows."""
        return sum(one.rows for one in self.doubled)

    @property
    def left(self) -> int:
        """The count of duplicate rows and broken files that relay and side tables still hold."""
        in_tables = sum(one.files for one in self.tables) if self.is_check else 0
        return self.rows - self.removed + len(self.broken) - len(self.mended) + in_tables

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document."""
        return {
            "source": self.source,
            "doubled": [
                {**asdict(one.source), **{k: v for k, v in asdict(one).items() if k != "source"}}
                for one in self.doubled
            ],
            "removed": self.removed,
            "broken": [
                {
                    **asdict(span.source),
                    "file": one.file.path,
                    "first_offset": span.first_offset,
                    "last_offset": span.last_offset,
                    "records": span.records,
                    "landed": landed or 0,
                    "lost": lost,
                }
                for one in self.broken
                for span, landed, lost in self._spans(one)
            ],
            "tables": [asdict(one) for one in self.tables],
            "left": self.left,
        }

    def _spans(self, broken: BrokenFile) -> Iterable[tuple[FileSpan, int | None, int | None]]:
        """Return what a broken file held, how much of it was landed again, and how much has left the source."""
        unmended = [(span, None, None) for span in broken.spans]
        return next((one.spans for one in self.mended if one.broken == broken), unmended)

    def sheet(self) -> Sheet:
        """Show the broken files, and the partitions with duplicates."""
        files = [
            (str(span.source), span.first_offset, span.last_offset, span.records, landed, lost)
            for one in self.broken
            for span, landed, lost in self._spans(one)
        ]
        places = ["partition", "first offset", "last offset", "records", "landed again", "left the source"]
        columns = ["partition", "first offset", "last offset", "doubled rows", "offsets with two contents"]
        rows = [(str(o.source), o.first_offset, o.last_offset, o.rows, o.differing) for o in self.doubled]
        tables = [(one.name, one.rows, one.then, one.next_step) for one in self.tables]
        return Sheet(
            title=f"relay of {self.source}",
            badge=badge(f"{self.left} broken or doubled", "bad") if self.left else badge("ok"),
            facts=(
                *((f"{plural(len(self.broken), 'broken file')} found, {len(self.mended)} mended",) if files else ()),
                f"{plural(self.rows, 'doubled row')} found",
                f"{plural(self.removed, 'row')} removed",
                *((f"{plural(len(tables), 'side table')} with broken files",) if tables else ()),
            ),
            parts=(
                *((table("", places, files),) if files else ()),
                *((table("", columns, rows),) if rows else ()),
                *((table("", ["table", "rows lost", "then", "next"], tables),) if tables else ()),
            ),
        )


def repair_relay(
    lake: Lake,
    alias: str,
    *,
    writer: FencedRelayWriter,
    mending: Callable[[], Mending],
    now: Callable[[], datetime],
    check: bool = False,
) -> Repair:
    """Find the broken files and duplicates of a source's relay and, without `check`, repair them.

    Broken files of side tables, which belong to the whole lake, are taken out of them first.

    A file is mended beside whoever lands. Whoever removes doubled rows is the relay's one writer, by the name of `writer`: a
    lander that runs meanwhile writes nothing more, and goes on after it where that is a temporary owner's.
    """
    # First, because later steps read some of these tables.
    tables = repair_side_tables(lake, now=now, check=check)
    if tables and check:
        return Repair(source=alias, tables=tables, is_check=True)
    location = lake.relay_location(alias)
    if not lake.exists(location):
        raise UsageError(
            f"nothing of {alias} was landed", consequence="there is no relay to repair", remedy="mirrorlake status"
        )
    held = lake.open_maintenance(location)
    broken = () if held is None else tuple(broken_files(held))
    if broken and check:
        # Spark cannot count duplicates in files that it cannot read.
        return Repair(source=alias, broken=broken)
    mended = tuple(map(mending().mend, broken)) if broken else ()
    if mended:
        lost = sum(one.lost for one in mended)
        what = {"kind": "relay", "name": alias, "action": "repair", "reason": "broken files"}
        Audit(lake, now=now).record(
            [Change(where=alias, before=len(broken), after=f"{lost} records lost", **what)], command="repair"
        )
    found = _doubled(lake.relay(alias))
    if check or not found:
        return Repair(source=alias, doubled=found, broken=broken, mended=mended, tables=tables)
    lake.refuse_spark(f"taking doubled records out of the relay of {alias}")
    writer.refresh()
    writer.claim()
    found = _doubled(lake.relay(alias))
    where = " OR ".join(map(_range, found))
    if where:
        lake.set_properties(location, {"delta.appendOnly": "false"})
        try:
            lake.replace(_each_once(lake.relay(alias).where(where)), location, where=where)
        finally:
            lake.set_properties(location, {"delta.appendOnly": "true"})
    left = sum(one.rows for one in _doubled(lake.relay(alias)))
    removed = sum(one.rows for one in found) - left
    repair = Repair(source=alias, doubled=found, removed=removed, broken=broken, mended=mended, tables=tables)
    what = {"kind": "relay", "name": alias, "action": "repair", "reason": "doubled rows"}
    change = Change(where=alias, before=repair.rows, after=repair.left, **what)
    Audit(lake, now=now).record([change], command="repair")
    return repair


def _doubled(relay: DataFrame) -> tuple[Doubled, ...]:
    from pyspark.sql import functions as F

    places = relay.groupBy(*_PLACE).agg(F.count("*").alias("held")).where("held > 1")
    first, last, rows = F.min("offset"), F.max("offset"), F.sum(F.col("held") - 1)
    found = [
        Doubled(SourcePartition(row.topic, row.generation, row.partition), row["first"], row["last"], row["rows"], 0)
        for row in places.groupBy(*SOURCE_KEY)
        .agg(first.alias("first"), last.alias("last"), rows.alias("rows"))
        .collect()
    ]
    if not found:
        return ()
    contents = (
        relay.where(" OR ".join(map(_range, found)))
        .groupBy(*_PLACE)
        .agg(F.count_distinct(F.struct(*_CONTENT)).alias("contents"))
        .where("contents > 1")
        .groupBy(*SOURCE_KEY)
        .count()
        .collect()
    )
    differing = {SourcePartition(row.topic, row.generation, row.partition): int(row["count"]) for row in contents}
    found = [replace(one, differing=differing.get(one.source, 0)) for one in found]
    return tuple(sorted(found, key=lambda one: one.source))


def _range(one: Doubled) -> str:
    return (
        f"(topic = {quote(one.source.topic)} AND generation = {one.source.generation} "
        f"AND partition = {one.source.partition} AND offset BETWEEN {one.first_offset} AND {one.last_offset})"
    )


def _each_once(rows: DataFrame) -> DataFrame:
    """Return each content of an offset once, as it was landed first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    same = Window.partitionBy(*_PLACE, *_CONTENT).orderBy("landed_at")
    once = rows.withColumn("_number", F.row_number().over(same)).where("_number = 1").drop("_number")
    return once.repartition(*SOURCE_KEY).sortWithinPartitions(*_PLACE)
