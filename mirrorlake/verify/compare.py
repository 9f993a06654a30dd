"""Compare records by a digest a partition, and one by one only where two digests differ.

A digest is the sum of a 64-bit hash of each record with its place, so equal digests mean equal records in equal places.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorlake.kafka import ClusterAdmin, spark_options
from mirrorlake.lake import Lake
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.verify import MOST_DIFFERENCES, Difference
from mirrorlake.offsets import Clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One cluster as verify reads it: its admin and Spark's options to reach it."""

    admin: ClusterAdmin
    options: Mapping[str, str]

    @classmethod
    def of(cls, alias: str, clusters: Clusters) -> Side:
        """Reach a cluster of the settings."""
        return cls(admin=clusters.admin(alias), options=spark_options(clusters.config.cluster(alias)))


def held_by(lake: Lake, side: Side, ranges: Mapping[TopicPartition, tuple[int, int]]) -> DataFrame | None:
    """Read offsets `first..end - 1` of each partition as a `read_committed` consumer sees them; None for no offsets."""
    ranges = {tp: span for tp, span in ranges.items() if span[0] < span[1]}
    if not ranges:
        return None
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for tp, (first, end) in ranges.items():
        starts.setdefault(tp.topic, {})[str(tp.partition)] = first
        ends.setdefault(tp.topic, {})[str(tp.partition)] = end
    options = {
        **side.options,
        "assign": json.dumps({topic: sorted(int(p) for p in parts) for topic, parts in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
    }
    return lake.spark.read.format("kafka").options(**options).load()


def compare(expected: DataFrame, actual: DataFrame, *, keys: list[str], where: str) -> list[Difference]:
    """Name how `actual` differs from `expected`, record by record where the digests of a partition differ.

    `expected` holds each place once. `keys` tell partitions apart; `where` is the place that the differences are in.
    """
    wanted = {tuple(row[k] for k in keys): row for row in _digests(expected, keys).collect()}
    found = {tuple(row[k] for k in keys): row for row in _digests(actual, keys).collect()}
    wrong = [
        key
        for key in wanted.keys() | found.keys()
        if key not in wanted
        or key not in found
        or (wanted[key].records, wanted[key].digest) != (found[key].records, found[key].digest)
    ]
    if not wrong:
        return []
    schema = ", ".join(f"{k} {'string' if k == 'topic' else 'int'}" for k in keys)
    some = F.broadcast(expected.sparkSession.createDataFrame(wrong, schema))
    no_place = F.lit(0)
    left = expected.join(some, keys).select(*keys, "offset", _content(no_place).alias("wanted"))
    right = actual.join(some, keys).select(*keys, "offset", _content(no_place).alias("found"))
    pairs = left.join(right, [*keys, "offset"], "full").where(~F.col("wanted").eqNullSafe(F.col("found")))
    rows = pairs.orderBy(*keys, "offset").limit(MOST_DIFFERENCES).collect()
    contents = {row.wanted for row in rows if row.wanted is not None}
    extra = [(*(row[k] for k in keys), row.found) for row in rows if row.wanted is None]
    copies = set()
    if extra:
        strangers = F.broadcast(expected.sparkSession.createDataFrame(extra, f"{schema}, wanted bigint"))
        copies = {
            tuple(row) for row in left.join(strangers, [*keys, "wanted"]).select(*keys, "wanted").distinct().collect()
        }
    found_copies = [(*(row[k] for k in keys), row.found) in copies for row in rows]
    return [
        Difference.at(row, row.offset, where=where, problem=_problem(row, contents, is_copy=is_copy))
        for row, is_copy in zip(rows, found_copies, strict=True)
    ]


def _problem(row: Any, contents: set[int], *, is_copy: bool) -> str:
    if row.found is None:
        return "missing"
    if row.wanted is None:
        return "doubled" if is_copy and row.found not in contents else "extra"
    return "out_of_order" if row.found in contents else "altered"


def _content(place: Column) -> Column:
    # xxhash64 passes over nulls, so null-ness is hashed beside each value: null and empty are different (law C).
    headers = F.coalesce(F.to_json("headers"), F.lit("[]"))
    return F.xxhash64(
        place, F.col("key").isNull(), "key", F.col("value").isNull(), "value", F.unix_millis("timestamp"), headers
    )


def _digests(frame: DataFrame, keys: list[str]) -> DataFrame:
    return frame.groupBy(*keys).agg(
        F.count("*").alias("records"),
        F.sum(_content(F.col("offset")).cast("decimal(38,0)")).alias("digest"),
    )
