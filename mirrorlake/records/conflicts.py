"""Find same-key conflicts: records with one key that two regions wrote at about the same time.

If two clusters mirror each other, both may write the same key. Each has its own order of the records, so the regions may end
with different last values. Kafka cannot detect this. The two relays can: a mirrored record has the header `mirrorlake.hop`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake import Lake
from mirrorlake.model.loops.hops import HOP_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE = ("source", "topic", "generation", "partition", "offset", "timestamp", "value_hash")


def key_conflicts(lake: Lake, flows: Iterable[FlowConfig], topic: str, *, within: timedelta) -> DataFrame:
    """Pair the records with one key that two sources of a topic wrote within a time (see `Mirror.conflicts`).

    Raises:
        UsageError: fewer than two sources of the flows carry the topic.
    """
    from pyspark.sql import functions as F

    sources = sorted({flow.source for flow in flows if flow.carries(topic)})
    if len(sources) < 2:
        raise UsageError(
            f"{topic} is carried from {', '.join(sources) or 'no source'}; a conflict takes two",
            remedy="name a topic that flows of two sources carry",
            topic=topic,
        )
    lake.create_all(sources)
    relays = {alias: lake.relay(alias).where(F.col("topic") == topic) for alias in sources}
    return same_key_conflicts(relays, within=within)


def same_key_conflicts(relays: Mapping[str, DataFrame], *, within: timedelta) -> DataFrame:
    """Pair the records with one key that were written in two regions within a time.

    `relays` are rows of the relays by alias. Records with a hop header (from another region) and records without a key do
    not count. Columns: `key`; `first_*` and `second_*` with source, topic, generation, partition, offset,
    timestamp and value_hash (SHA-256 in hex, null for a tombstone) of both, the earlier one first; `apart_ms`; `same_value`.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    span_ms = max(1, within // timedelta(milliseconds=1))
    rows = reduce(DataFrame.unionByName, [_produced_here(alias, frame) for alias, frame in sorted(relays.items())])
    window = F.floor(F.col("ms") / F.lit(span_ms))
    left = rows.withColumn("window", F.explode(F.array(window - 1, window, window + 1))).alias("a")
    right = rows.withColumn("window", window).alias("b")
    apart = F.col("b.ms") - F.col("a.ms")
    # The earlier record of a pair comes first; for equal timestamps, the record of the smaller alias.
    ordered = (apart > 0) | ((apart == 0) & (F.col("a.source") < F.col("b.source")))
    pairs = left.join(right, (F.col("a.key") == F.col("b.key")) & (F.col("a.window") == F.col("b.window"))).where(
        (F.col("a.source") != F.col("b.source")) & ordered & (apart <= span_ms)
    )
    return pairs.select(
        F.col("a.key").alias("key"),
        *(F.col(f"a.{name}").alias(f"first_{name}") for name in _PLACE),
        *(F.col(f"b.{name}").alias(f"second_{name}") for name in _PLACE),
        apart.alias("apart_ms"),
        F.col("a.value_hash").eqNullSafe(F.col("b.value_hash")).alias("same_value"),
    )


def _produced_here(alias: str, relay: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    came: Column = F.exists(F.coalesce(F.col("headers"), F.array()), lambda header: header["key"] == HOP_KEY)
    return relay.where(F.col("key").isNotNull() & ~came).select(
        F.lit(alias).alias("source"),
        "topic",
        "generation",
        "partition",
        "offset",
        "timestamp",
        F.unix_millis("timestamp").alias("ms"),
        "key",
        F.sha2("value", 256).alias("value_hash"),
    )
