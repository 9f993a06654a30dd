"""The part of a relay that a question is about: at or past positions, in batches of a time. Statistics find its files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import reduce
from operator import and_, or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.lake.times import from_micros, micros
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EVER = 2**62
# Each position is a condition of Spark's query; past so many, planning the query costs more than reading the offsets.
_MOST_CONDITIONS = 300
_KNOWN = pa.schema({"topic": pa.string(), "generation": pa.int32(), "partition": pa.int32(), "position": pa.int64()})


class RelayPart:
    """Records at or past the position of their partition, all of other partitions, landed after `since` up to `until`.

    A question that leaves out other partitions, or what is at or past an end, says so (`others`, `ends`): their files are not
    read then.
    """

    def __init__(
        self,
        positions: Mapping[SourcePartition, int],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        others: bool = True,
        ends: Mapping[SourcePartition, int] = MappingProxyType({}),
    ) -> None:
        self._positions = positions
        self._others = others
        self._ends = ends
        self.since = -_EVER if since is None else micros(since)
        self.until = _EVER if until is None else micros(until)

    def known(self) -> pa.Table:
        """Return the positions as a table: `topic, generation, partition, position`."""
        columns: dict[str, list[Any]] = {name: [getattr(s, name) for s in self._positions] for name in SOURCE_KEY}
        return pa.table({**columns, "position": list(self._positions.values())}, schema=_KNOWN)

    def files(self, actions: pa.Table) -> pa.Table:
        """Choose, from a table's add actions with their statistics, the files that may hold a record of the part."""
        if not {"max.landed_at", "max.offset"} <= set(actions.column_names):
            return actions
        names = [
            "path",
            "max.landed_at",
            "min.offset",
            "max.offset",
            *(f"{end}.{key}" for key in SOURCE_KEY for end in ("min", "max")),
        ]
        found = actions.select(names).to_pandas()
        known = self.known().to_pandas().assign(end=[self._ends.get(source, _EVER) for source in self._positions])
        found = found.merge(known, how="left", left_on=[f"min.{key}" for key in SOURCE_KEY], right_on=list(SOURCE_KEY))
        is_of_one = reduce(and_, (found[f"min.{key}"] == found[f"max.{key}"] for key in SOURCE_KEY))
        # A file of several partitions of one topic lies before the part where it ends before the least of their positions, and
        # after it where it begins at or past the last of their ends.
        is_of_topic = (found["min.topic"] == found["max.topic"]) & (found["min.generation"] == found["max.generation"])
        ranges = ["min.topic", "min.generation", "min.partition", "max.partition"]
        for (topic, generation, first, last), several in found[is_of_topic & ~is_of_one].groupby(ranges):
            partitions = [SourcePartition(topic, generation, number) for number in range(int(first), int(last) + 1)]
            found.loc[several.index, "position"] = min(self._positions.get(source, -1) for source in partitions)
            asked = [source for source in partitions if self._others or source in self._positions]
            found.loc[several.index, "end"] = max((self._ends.get(source, _EVER) for source in asked), default=0)
        lies_before = is_of_topic & (found["max.offset"] < found["position"])
        if not self._others:
            lies_before |= is_of_one & found["position"].isna()
        lies_after = is_of_topic & (found["min.offset"] >= found["end"])
        # Times in statistics are cut to milliseconds.
        landed_by = found["max.landed_at"] + timedelta(milliseconds=1)
        is_old = landed_by <= from_micros(self.since) if self.since > -_EVER else False
        return actions.filter(pa.array(~(lies_before | lies_after | is_old)))

    def rows(self, relay: DataFrame) -> DataFrame:
        """Leave out what Spark can skip by file statistics; past 300 positions only whole topics, or nothing."""
        from pyspark.sql import functions as F

        if not self._others:
            return self._only(relay)
        if not 0 < len(self._positions) <= _MOST_CONDITIONS:
            return relay
        conditions = [
            (F.col("topic") != source.topic)
            | (F.col("generation") != source.generation)
            | (F.col("partition") != source.partition)
            | (F.col("offset") >= position)
            for source, position in sorted(self._positions.items())
        ]
        return relay.where(reduce(and_, conditions))

    def _only(self, relay: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        for names in (SOURCE_KEY, ("topic",)):
            found: dict[tuple[Any, ...], tuple[int, int]] = {}
            for source, low in self._positions.items():
                key = tuple(getattr(source, name) for name in names)
                least, most = found.get(key, (low, 0))
                found[key] = min(least, low), max(most, self._ends.get(source, _EVER))
            if len(found) <= _MOST_CONDITIONS:
                conditions = [
                    reduce(and_, (F.col(name) == value for name, value in zip(names, key, strict=True)))
                    & (F.col("offset") >= low)
                    & (F.col("offset") < high)
                    for key, (low, high) in sorted(found.items())
                ]
                return relay.where(reduce(or_, conditions, F.lit(False)))
        return relay
