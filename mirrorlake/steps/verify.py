"""Verify: source, relay and target hold the same records, by count and by content; every difference is named.

A digest per partition is the sum of a 64-bit hash of each record with its place, so equal digests mean equal records in
equal places. Only where two digests differ are the records themselves compared. Records that rules changed on their way
are compared with what the rules make of the relay's; those that older rules changed are checked for being there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.verify import MOST_DIFFERENCES, Difference, PartitionProof, VerifyReport
from mirrorlake.progress.board import Tell, silent
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import POSITIONS
from mirrorlake.steps.expected import Views, expected_records
from mirrorlake.steps.maps import KnownMaps

_SOURCE_KEY = ["topic", "generation", "partition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One cluster as verify reads it: its admin and Spark's options to reach it."""

    admin: ClusterAdmin
    options: Mapping[str, str]


def verify_flow(
    flow: FlowConfig,
    *,
    lake: Lake,
    source: Side | None,
    target: Side,
    maps: KnownMaps,
    views: Views,
    tell: Tell = silent,
) -> VerifyReport:
    """Compare the three places a record of the flow stands in.

    Args:
        flow: the flow.
        lake: the lake.
        source: the source cluster; what it no longer holds is compared between relay and target only. None for a lake
            cluster: the relay itself is the source, and its offsets are dense.
        target: the target cluster.
        maps: the offset maps of every flow into this target.
        views: the view of each flow that has one.
        tell: hears how far it is: records of the relay that were compared with the source, then with the target.

    Raises:
        ClusterError: a cluster does not answer.
    """
    relay = lake.relay(flow.source)
    carried = [row.topic for row in relay.select("topic").distinct().collect() if flow.carries(row.topic)]
    relay = relay.where(F.col("topic").isin(carried))
    landed = {_key(row): row for row in _digests(relay, _SOURCE_KEY, F.col("offset")).collect()}
    runs, positions = maps.runs, maps.positions[flow.name]
    mine = _stretches(runs.where(F.col("flow") == flow.name))
    sent, phase = _counts(mine), f"verify {flow.name}"
    at_source, at_target = sum(int(row.records) for row in landed.values()), sum(sent.values())
    tell(phase, 0, at_source + at_target)
    differences = _not_dense(landed) if source is None else _against_source(lake, source, relay, landed)
    tell(phase, at_source, at_source + at_target)
    kept = _kept(maps.withheld.where(F.col("flow") == flow.name))
    remotes = {flow.remote_topic(topic) for topic in carried}
    differences += _against_target(lake, target, runs.where(F.col("target_topic").isin(sorted(remotes))), views)
    differences += _not_mapped(
        relay,
        mine.unionByName(kept),
        positions,
        whole=flow.start.kind == "earliest",
        taken_over=_taken_over(lake, flow.name),
    )
    withheld = _counts(kept)
    places = _places(runs.where(F.col("flow") == flow.name))
    tell(phase, at_source + at_target, at_source + at_target)
    wrong = {(d.topic, d.partition) for d in differences}
    proofs = tuple(
        PartitionProof(
            topic=key.topic,
            generation=key.generation,
            partition=key.partition,
            landed=int(row.records),
            republished=sent.get(key, 0),
            withheld=withheld.get(key, 0),
            verified=0 if {(key.topic, key.partition), *places.get(key, ())} & wrong else sent.get(key, 0),
        )
        for key, row in sorted(landed.items())
    )
    found = sorted(set(differences), key=lambda d: (d.where, d.topic, d.partition, d.offset))[:MOST_DIFFERENCES]
    return VerifyReport(flow=flow.name, equal=not found, partitions=proofs, differences=tuple(found))


def _stretches(runs: DataFrame) -> DataFrame:
    return runs.select(
        F.col("source_topic").alias("topic"),
        "generation",
        F.col("source_partition").alias("partition"),
        F.col("first_upstream").alias("first"),
        F.col("record_count").alias("records"),
    )


def _kept(withheld: DataFrame) -> DataFrame:
    return withheld.select(*_SOURCE_KEY, F.col("first_offset").alias("first"), F.col("record_count").alias("records"))


def _counts(stretches: DataFrame) -> dict[SourcePartition, int]:
    rows = stretches.groupBy(*_SOURCE_KEY).agg(F.sum("records").alias("records")).collect()
    return {_key(row): int(row.records) for row in rows}


def _places(runs: DataFrame) -> dict[SourcePartition, set[tuple[str, int]]]:
    """Return the target partitions that hold records of each source partition."""
    source = [F.col("source_topic").alias("topic"), "generation", F.col("source_partition").alias("partition")]
    places: dict[SourcePartition, set[tuple[str, int]]] = {}
    for row in runs.select(*source, "target_topic", "target_partition").distinct().collect():
        places.setdefault(_key(row), set()).add((row.target_topic, row.target_partition))
    return places


def _key(row: Any) -> SourcePartition:
    return SourcePartition(row.topic, row.generation, row.partition)


def _content(place: Column) -> Column:
    # xxhash64 passes over nulls, so null-ness is hashed beside each value: null and empty are different (law C).
    headers = F.coalesce(F.to_json("headers"), F.lit("[]"))
    return F.xxhash64(
        place, F.col("key").isNull(), "key", F.col("value").isNull(), "value", F.unix_millis("timestamp"), headers
    )


def _digests(frame: DataFrame, keys: list[str], place: Column) -> DataFrame:
    return frame.groupBy(*keys).agg(
        F.count("*").alias("records"),
        F.sum(_content(place).cast("decimal(38,0)")).alias("digest"),
        F.min(place).alias("first"),
        F.max(place).alias("last"),
    )


def _read(lake: Lake, side: Side, ranges: Mapping[TopicPartition, tuple[int, int]]) -> DataFrame | None:
    """Read offsets `first..last` of each partition as a `read_committed` consumer sees them, now."""
    ranges = {tp: span for tp, span in ranges.items() if span[0] <= span[1]}
    if not ranges:
        return None
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for tp, (first, last) in ranges.items():
        starts.setdefault(tp.topic, {})[str(tp.partition)] = first
        ends.setdefault(tp.topic, {})[str(tp.partition)] = last + 1
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


def _against_source(
    lake: Lake, source: Side, relay: DataFrame, landed: Mapping[SourcePartition, Any]
) -> list[Difference]:
    newest: dict[TopicPartition, SourcePartition] = {}
    for key in landed:
        tp = TopicPartition(key.topic, key.partition)
        if tp not in newest or newest[tp].generation < key.generation:
            newest[tp] = key
    existing = source.admin.describe({tp.topic for tp in newest})
    newest = {tp: key for tp, key in newest.items() if tp.topic in existing}
    earliest = source.admin.earliest(newest)
    ranges = {
        tp: (max(earliest[tp], int(landed[key]["first"])), int(landed[key]["last"])) for tp, key in newest.items()
    }
    held = _read(lake, source, ranges)
    if held is None:
        return []
    rows = [
        (tp.topic, newest[tp].generation, tp.partition, first, last)
        for tp, (first, last) in ranges.items()
        if first <= last
    ]
    spans = lake.spark.createDataFrame(
        rows, "topic string, generation int, partition int, first_offset bigint, last_offset bigint"
    )
    mine = relay.join(F.broadcast(spans), _SOURCE_KEY).where("offset between first_offset and last_offset")
    held = held.join(F.broadcast(spans.select(*_SOURCE_KEY)), ["topic", "partition"])
    return _compare(held, mine, keys=_SOURCE_KEY, place="offset", where="relay")


def _not_dense(landed: Mapping[SourcePartition, Any]) -> list[Difference]:
    """Return the published partitions whose offsets are not 0, 1, 2, ... each once."""
    return [
        Difference(
            where="relay",
            problem="missing" if int(row.records) < int(row["last"]) + 1 else "extra",
            topic=key.topic,
            partition=key.partition,
            offset=int(row["first"]),
        )
        for key, row in landed.items()
        if int(row.records) != int(row["last"]) + 1
    ]


def _against_target(lake: Lake, target: Side, maps: DataFrame, views: Views) -> list[Difference]:
    spans = maps.groupBy("target_topic", "target_partition").agg(F.min("first_downstream").alias("first")).collect()
    partitions = [TopicPartition(row.target_topic, row.target_partition) for row in spans]
    existing = target.admin.describe({tp.topic for tp in partitions})
    gone = [
        Difference(where="target", problem="missing", topic=tp.topic, partition=tp.partition, offset=-1)
        for tp in partitions
        if tp.topic not in existing
    ]
    partitions = [tp for tp in partitions if tp.topic in existing]
    earliest, ends = target.admin.earliest(partitions), target.admin.latest(partitions)
    first = {TopicPartition(row.target_topic, row.target_partition): int(row["first"]) for row in spans}
    ranges = {tp: (max(earliest[tp], first[tp]), ends[tp] - 1) for tp in partitions}
    held = _read(lake, target, ranges)
    if held is None:
        return gone
    bounds = lake.spark.createDataFrame(
        [(tp.topic, tp.partition, low) for tp, (low, _) in ranges.items()], "topic string, partition int, low bigint"
    )
    expected = expected_records(lake, maps, views)
    if expected is None:
        return gone
    keys = ["topic", "partition"]
    if expected.placed is not None:
        placed = expected.placed.join(F.broadcast(bounds), keys).where("offset >= low").drop("low")
        lost = placed.join(held, [*keys, "offset"], "left_anti").orderBy(*keys, "offset").limit(MOST_DIFFERENCES)
        gone += [
            Difference(where="target", problem="missing", topic=row.topic, partition=row.partition, offset=row.offset)
            for row in lost.collect()
        ]
        held = held.join(placed, [*keys, "offset"], "left_anti")
    wanted = expected.records.join(F.broadcast(bounds), keys).where("offset >= low")
    return gone + _compare(wanted, held, keys=keys, place="offset", where="target")


def _compare(expected: DataFrame, actual: DataFrame, *, keys: list[str], place: str, where: str) -> list[Difference]:
    """Return how `actual` differs from `expected`, record by record where the digests of a partition differ."""
    wanted = {tuple(row[k] for k in keys): row for row in _digests(expected, keys, F.col(place)).collect()}
    found = {tuple(row[k] for k in keys): row for row in _digests(actual, keys, F.col(place)).collect()}
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
    left = expected.join(some, keys).select(*keys, place, _content(no_place).alias("wanted"))
    right = actual.join(some, keys).select(*keys, place, _content(no_place).alias("found"))
    pairs = left.join(right, [*keys, place], "full").where(~F.col("wanted").eqNullSafe(F.col("found")))
    rows = pairs.orderBy(*keys, place).limit(MOST_DIFFERENCES).collect()
    contents = {row.wanted for row in rows if row.wanted is not None}
    return [
        Difference(
            where=where, problem=_problem(row, contents), topic=row.topic, partition=row.partition, offset=row[place]
        )
        for row in rows
    ]


def _problem(row: Any, contents: set[int]) -> str:
    if row.found is None:
        return "missing"
    if row.wanted is None:
        return "extra"
    return "out_of_order" if row.found in contents else "altered"


def _taken_over(lake: Lake, flow: str) -> dict[SourcePartition, int]:
    """Return where the flow went on after another mirror, whose records are none of the map's."""
    rows = lake.meta(POSITIONS).where((F.col("flow") == flow) & (F.col("kind") == "taken_over"))
    return {
        _key(row): int(row["first"])
        for row in rows.groupBy(*_SOURCE_KEY).agg(F.max("position").alias("first")).collect()
    }


def _not_mapped(
    relay: DataFrame,
    mine: DataFrame,
    positions: Mapping[SourcePartition, int],
    *,
    whole: bool,
    taken_over: Mapping[SourcePartition, int],
) -> list[Difference]:
    """Return landed records below the ledger's position that were neither sent nor withheld (law E).

    `whole` is false for a flow whose `start` leaves the past out: what precedes its first run is then not due. What
    precedes a takeover was sent by another mirror.
    """
    rows = [(s.topic, s.generation, s.partition, offset, taken_over.get(s, 0)) for s, offset in positions.items()]
    if not rows:
        return []
    frame = relay.sparkSession.createDataFrame(
        rows, "topic string, generation int, partition int, position bigint, taken_over bigint"
    )
    due = relay.join(F.broadcast(frame), _SOURCE_KEY).where("offset < position")
    sent = mine.groupBy(*_SOURCE_KEY).agg(F.sum("records").alias("records"), F.min("first").alias("first"))
    # A run before it would say that the takeover never came about.
    due = due.join(F.broadcast(sent.select(*_SOURCE_KEY, F.col("first").alias("run"))), _SOURCE_KEY, "left").where(
        F.col("offset") >= F.least("taken_over", "run")
    )
    if not whole:
        due = due.join(F.broadcast(sent.select(*_SOURCE_KEY, "first")), _SOURCE_KEY).where("offset >= first")
    counts = due.groupBy(*_SOURCE_KEY).agg(F.count("*").alias("records"), F.min("offset").alias("first"))
    mapped = {_key(row): int(row.records) for row in sent.collect()}
    return [
        Difference(
            where="target", problem="missing", topic=row.topic, partition=row.partition, offset=int(row["first"])
        )
        for row in counts.collect()
        if int(row.records) != mapped.get(_key(row), 0)
    ]
