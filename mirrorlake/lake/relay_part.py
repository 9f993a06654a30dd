"""The part of a relay that a query needs: at or past positions, in batches of a time. Statistics choose its files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import and_, or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirrorlake.lake.times import micros
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EVER = 2**62
# Each position is a condition of Spark's query; past 300, planning the query costs more than reading the offsets.
_MAX_CONDITIONS = 300
_KNOWN = pa.schema({"topic": pa.string(), "generation": pa.int32(), "partition": pa.int32(), "position": pa.int64()})


class RelayPart:
    """Records at or past the position of their partition, and all of other partitions, landed after `since` up to `until`.

    `others=False` excludes other partitions, and `ends` records at or past an end: their files are not read.
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
        if not {"max.landed_at", "max.offset"} <= set(actions.column_names):
            return actions
        names = [f"{end}.{key}" for key in SOURCE_KEY for end in ("min", "max")]
        edges = zip(*(actions[name].to_numpy().tolist() for name in names), strict=True)
        # Many files have the same partitions, so the bounds are computed once for all of them.
        kinds: dict[tuple[Any, ...], int] = {}
        kind_of = np.array([kinds.setdefault(edge, len(kinds)) for edge in edges], dtype=np.intp)
        lows, highs = np.array([self._bounds(*kind) for kind in kinds], dtype=np.int64).reshape(-1, 2)[kind_of].T
        first, last = actions["min.offset"].to_numpy(), actions["max.offset"].to_numpy()
        lies_outside = (last < lows) | (first >= highs)
        if self.since > -_EVER:
            # Statistics truncate times to milliseconds.
            landed_by = actions["max.landed_at"].to_numpy() + np.timedelta64(1, "ms")
            lies_outside |= landed_by <= np.datetime64(self.since, "us")
        return actions.filter(pa.array(~lies_outside))

    def _bounds(
        self, topic: str | None, last_topic: str | None, life: float, last_life: float, first: float, last: float
    ) -> tuple[int, int]:
        """Return the range `[first, end)` of offsets at which a file of these partitions has records of the part.

        Missing statistics are None or not a number.
        """
        if topic is None or topic != last_topic or life != last_life or not first <= last:
            return -1, _EVER
        held = [SourcePartition(topic, int(life), number) for number in range(int(first), int(last) + 1)]
        asked = [source for source in held if self._others or source in self._positions]
        low = min((self._positions.get(source, -1) for source in asked), default=_EVER)
        return low, max((self._ends.get(source, _EVER) for source in asked), default=0)

    def rows(self, relay: DataFrame) -> DataFrame:
        """Add a filter that lets Spark skip files by statistics; past 300 positions by whole topics, or none."""
        from pyspark.sql import functions as F

        if not self._others:
            return self._only(relay)
        if not 0 < len(self._positions) <= _MAX_CONDITIONS:
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
            if len(found) <= _MAX_CONDITIONS:
                conditions = [
                    reduce(and_, (F.col(name) == value for name, value in zip(names, key, strict=True)))
                    & (F.col("offset") >= low)
                    & (F.col("offset") < high)
                    for key, (low, high) in sorted(found.items())
                ]
                return relay.where(reduce(or_, conditions, F.lit(False)))
        return relay
