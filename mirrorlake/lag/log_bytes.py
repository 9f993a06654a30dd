"""Estimate the largest size of an offset in a source's log, from the records landed last.

Brokers tell the size of a log to Java's admin client only. What the relay knows bounds it from above: the log holds records
compressed, and is counted here as if each had a batch of its own, so that a forecast by it comes too early, never too late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa

from mirrorlake.lake import Lake, RelayPart
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition

OffsetBytes = Mapping[tuple[str, SourcePartition], int]
"""Bytes by alias and source partition; a partition without landed records is left out."""

# Enough records to be typical, in one or few files of a partition.
_NEWEST = 1_000
# A batch header of 61 bytes, a record's lengths and deltas of 36 at most, and what a codec adds to what it cannot shrink.
_AROUND, _EXPANSION = 128, 1.01
# The two lengths of a header.
_HEADER = 10


def read_offset_bytes(lake: Lake, landed: Mapping[tuple[str, SourcePartition], int]) -> OffsetBytes:
    """Return the average size of partitions' newest landed records, given the next offset to land of each.

    A partition without one among them gets the largest average of its topic.
    """
    found: dict[tuple[str, SourcePartition], int] = {}
    for alias in sorted({alias for alias, _ in landed}):
        since = {source: max(0, at - _NEWEST) for (owner, source), at in landed.items() if owner == alias}
        if not lake.exists(lake.relay_location(alias)):
            continue
        places = list(since)
        columns = {
            **{name: [getattr(source, name) for source in places] for name in SOURCE_KEY},
            "since": list(since.values()),
        }
        kinds = [("topic", pa.string()), ("generation", pa.int32()), ("partition", pa.int32()), ("since", pa.int64())]
        rows = lake.query_rows(
            _SIZES,
            relay=alias,
            part=RelayPart(since, others=False),
            tables={"newest_from": pa.table(columns, schema=pa.schema(kinds))},
            lowest=min(since.values()),
            header=_HEADER,
        )
        known = {
            SourcePartition(row.topic, row.generation, row.partition): math.ceil(
                _EXPANSION * int(row.bytes) / int(row.records) + _AROUND
            )
            for row in rows
        }
        for source in places:
            of_topic = max((each for other, each in known.items() if other.topic == source.topic), default=None)
            if (each := known.get(source, of_topic)) is not None:
                found[alias, source] = each
    return found


_SIZES = """
    WITH newest AS (
        SELECT r.topic, r.generation, r.partition, r.key, r.value, r.headers
        FROM {relay} AS r JOIN {newest_from} AS n
            ON r.topic = n.topic AND r.generation = n.generation AND r.partition = n.partition
        WHERE r.`offset` >= :lowest AND r.`offset` >= n.since
    ),
    parts AS (
        SELECT topic, generation, partition, 1 AS records,
            coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) AS bytes
        FROM newest
        UNION ALL
        SELECT topic, generation, partition, 0 AS records,
            bit_length(header.key) / 8 + coalesce(octet_length(header.value), 0) + :header AS bytes
        FROM (SELECT topic, generation, partition, explode(headers) AS header FROM newest)
    )
    SELECT topic, generation, partition, sum(records) AS records, sum(bytes) AS bytes
    FROM parts GROUP BY topic, generation, partition
"""
