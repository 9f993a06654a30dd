"""Repair: find the records that a relay holds more than once, and leave each of them once.

Flows send such a record once anyway (law D); counts, questions and proofs of the relay see it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirrorlake.errors import UsageError
from mirrorlake.lake import Audit, Lake, OneWriter, quote
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.plan import Change
from mirrorlake.render import Sheet, Shown, badge, plural, table

_PLACE = [*SOURCE_KEY, "offset"]
_CONTENT = ["timestamp", "timestamp_type", "key", "value", "headers"]


@dataclass(frozen=True, slots=True)
class Doubled:
    """What a relay holds more than once of a source partition: `rows` beside the first ones, in a range of offsets.

    `differing` counts offsets that it holds with more than one content: two histories of a source, which nobody may merge.
    """

    source: SourcePartition
    first_offset: int
    last_offset: int
    rows: int
    differing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Shown):
    """What was found doubled in the relay of a source; `removed` rows were taken out."""

    source: str
    doubled: tuple[Doubled, ...]
    removed: int = 0

    @property
    def rows(self) -> int:
        """How many rows the relay held beside the first ones."""
        return sum(one.rows for one in self.doubled)

    @property
    def left(self) -> int:
        """How many of them it still holds."""
        return self.rows - self.removed

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a JSON-ready document."""
        return {
            "source": self.source,
            "doubled": [
                {**asdict(one.source), **{k: v for k, v in asdict(one).items() if k != "source"}}
                for one in self.doubled
            ],
            "removed": self.removed,
            "left": self.left,
        }

    def sheet(self) -> Sheet:
        """Return the partitions with doubled rows."""
        columns = ["partition", "first offset", "last offset", "doubled rows", "offsets with two contents"]
        rows = [(str(o.source), o.first_offset, o.last_offset, o.rows, o.differing) for o in self.doubled]
        return Sheet(
            title=f"relay of {self.source}",
            badge=badge(f"{self.left} doubled", "bad") if self.left else badge("ok"),
            facts=(f"{plural(self.rows, 'doubled row')} found", f"{plural(self.removed, 'row')} removed"),
            parts=(table("", columns, rows),) if rows else (),
        )


def repair_relay(lake: Lake, alias: str, *, now: Callable[[], datetime], check: bool = False) -> Repair:
    """Find the doubled rows of a source's relay and, unless `check` only looks, remove them.

    Whoever repairs is the relay's one writer: a lander that runs meanwhile writes nothing more and stops with exit 3.

    Raises:
        UsageError: the source has no relay.
        LanderReplaced: a lander claimed the relay at the same moment.
    """
    location = lake.relay_location(alias)
    if not lake.exists(location):
        raise UsageError(
            f"nothing of {alias} was landed", consequence="there is no relay to repair", remedy="mirrorlake status"
        )
    found = _doubled(lake.relay(alias))
    if check or not found:
        return Repair(source=alias, doubled=found)
    writer = OneWriter(lake, alias)
    writer.look()
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
    repair = Repair(source=alias, doubled=found, removed=sum(one.rows for one in found) - left)
    what = {"kind": "relay", "name": alias, "action": "repair", "reason": "doubled rows"}
    change = Change(where=alias, before=repair.rows, after=repair.left, **what)
    Audit(lake, now=now).record([change], command="repair")
    return repair


def _doubled(relay: DataFrame) -> tuple[Doubled, ...]:
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
    """Keep each content of an offset once, as it was landed first."""
    same = Window.partitionBy(*_PLACE, *_CONTENT).orderBy("landed_at")
    once = rows.withColumn("_number", F.row_number().over(same)).where("_number = 1").drop("_number")
    return once.repartition(*SOURCE_KEY).sortWithinPartitions(*_PLACE)
