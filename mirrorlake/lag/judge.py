"""Judge: the newest samples of each hop from the frame of lag, with how long its topic is kept, by `lag/verdict.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lag.forecast import Earliest, RetentionRisk, catch_up, no_older_than, retention_risk
from mirrorlake.lag.moment import Sample
from mirrorlake.lag.verdict import HOPS, WINDOW_SAMPLES, HopPlace, HopVerdict, LagVerdict, judge
from mirrorlake.lake import from_micros
from mirrorlake.model.flow import SourcePartition
from mirrorlake.topics import TopicSource

log = logging.getLogger(__name__)

# A rate of deletion needs a few deleted segments; older ones describe other times.
_MOST_CHANGES = 20

_PARTITION = ("source", "topic", "generation", "partition")
_PLACE = ("flow", *_PARTITION, "hop", "group_id", "cluster")

RetentionOf = Callable[[HopPlace], int | None]
"""Look up `retention.ms` of the topic that a hop reads from, None where age deletes nothing there; may fail."""


class Retention:
    """Look up `retention.ms` of the topic that a hop reads from, each topic once.

    None where age deletes nothing: in the relay, on a lake cluster, in a topic that is compacted only.
    """

    def __init__(
        self, config: MirrorConfig, *, source: Callable[[str], TopicSource], target: Callable[[str], TopicSource]
    ) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._known: dict[tuple[str, str], int | None] = {}

    def __call__(self, place: HopPlace) -> int | None:
        """Ask the cluster that the hop reads from.

        Raises:
            ClusterError: it does not answer.
        """
        flow = self._config.flow(place.flow)
        at_source = place.hop == "landed" or place.cluster == place.source
        alias = flow.source if at_source else flow.target
        if place.hop == "republished" or self._config.cluster(alias).is_lake:
            return None
        topic = place.topic if at_source else flow.remote_topic(place.topic)
        if (alias, topic) not in self._known:
            cluster = self._source(alias) if at_source else self._target(alias)
            deletes = "delete" in (cluster.config_value(topic, "cleanup.policy") or "delete")
            retention_ms = int(cluster.config_value(topic, "retention.ms") or -1) if deletes else None
            self._known[alias, topic] = retention_ms
        return self._known[alias, topic]


def judge_lag(
    frame: DataFrame,
    *,
    now: datetime,
    retention_of: RetentionOf | None = None,
    positions: DataFrame | None = None,
) -> LagVerdict:
    """Judge each hop by its newest samples, worst first; runs an action on the frame.

    Only the newest life of a topic is judged: the positions of an older one end where it was deleted.

    `frame` is lag as `lag/sql.py` computes it; `retention_of` is asked for hops where records wait; `positions` is the table,
    for the earliest offsets of the sources.
    """
    windows = read_windows(frame)
    waiting = {place for place, window in windows.items() if window[-1].waiting != 0}
    if positions is None or not waiting:
        return judge_windows(windows, now=now, retention_of=retention_of)
    passed = _last_landed(positions, waiting)
    bounded = {
        place: no_older_than(window, passed.get(_source(place))) if place.hop == "landed" else window
        for place, window in windows.items()
    }
    return judge_windows(bounded, now=now, retention_of=retention_of, earliest=_earliest(positions, waiting))


def judge_windows(
    windows: Mapping[HopPlace, Sequence[Sample]],
    *,
    now: datetime,
    retention_of: RetentionOf | None = None,
    earliest: Mapping[tuple[str, SourcePartition], Sequence[Earliest]] | None = None,
) -> LagVerdict:
    """Judge each hop by its samples, oldest first; `earliest` are the first offsets that sources held."""
    hops = []
    for place, window in windows.items():
        held: Sequence[Earliest] = ()
        if place.hop == "landed" or place.cluster == place.source:
            held = (earliest or {}).get(_source(place), ())
        if held and window[-1].observed_at > held[-1].observed_at:
            # Only changes are written down: it stood there until the last look.
            held = (*held, Earliest(observed_at=window[-1].observed_at, offset=held[-1].offset))
        found = judge(window, now=now)
        hops.append(
            HopVerdict(
                place=place,
                verdict=found.verdict,
                reason=found.reason,
                last=window[-1],
                samples=len(window),
                catch_up=catch_up(window),
                retention=_risk(place, window, now, retention_of, held),
            )
        )
    return LagVerdict(hops=tuple(sorted(hops, key=_worst_first)))


def _worst_first(hop: HopVerdict) -> tuple[Any, ...]:
    place = hop.place
    return (
        -hop.verdict,
        not hop.at_risk,
        place.flow,
        place.topic,
        place.partition,
        HOPS.index(place.hop),
        place.group_id or "",
    )


def _risk(
    place: HopPlace,
    window: Sequence[Sample],
    now: datetime,
    retention_of: RetentionOf | None,
    held: Sequence[Earliest],
) -> RetentionRisk | None:
    retention_ms = None
    if window[-1].waiting != 0 and retention_of is not None:
        try:
            retention_ms = retention_of(place)
        except MirrorlakeError as error:
            # A verdict is wanted most when a cluster is away.
            log.info("lag.retention_not_known what=%s why=%s", place, error.cause)
            return None
    return retention_risk(window, now=now, retention_ms=retention_ms, earliest=held)


def read_windows(frame: DataFrame, *, samples: int = WINDOW_SAMPLES) -> dict[HopPlace, list[Sample]]:
    """Read the newest samples of each hop of each topic's newest life, oldest first; one action."""
    if "cluster" not in frame.columns:
        frame = frame.withColumn("cluster", F.lit(None).cast("string"))
    newest = Window.partitionBy(*_PLACE).orderBy(F.desc("observed_at"))
    rows = (
        frame.withColumn("life", F.max("generation").over(Window.partitionBy("flow", "topic")))
        .where("generation = life")
        .withColumn("rank", F.row_number().over(newest))
        .where(F.col("rank") <= samples)
        .select(
            *_PLACE,
            F.unix_micros("observed_at").alias("seen"),
            "position",
            "end_position",
            "offset_lag",
            F.unix_micros("waiting_since").alias("waiting"),
            "time_lag_ms",
        )
        .orderBy("observed_at")
        .collect()
    )
    windows: dict[HopPlace, list[Sample]] = {}
    for row in rows:
        place = HopPlace(**{name: row[name] for name in _PLACE})
        windows.setdefault(place, []).append(
            Sample(
                observed_at=from_micros(row.seen),
                position=row.position,
                end_position=row.end_position,
                offset_lag=row.offset_lag,
                waiting_since=None if row.waiting is None else from_micros(row.waiting),
                time_lag_ms=row.time_lag_ms,
            )
        )
    return windows


def _source(place: HopPlace) -> tuple[str, SourcePartition]:
    return place.source, SourcePartition(place.topic, place.generation, place.partition)


def _last_landed(positions: DataFrame, places: Iterable[HopPlace]) -> dict[tuple[str, SourcePartition], datetime]:
    """Read the timestamp of the last landed record of each partition."""
    topics = sorted({place.topic for place in places if place.hop == "landed"})
    rows = (
        positions.where(
            (F.col("kind") == "landed") & F.col("topic").isin(topics) & F.col("record_timestamp").isNotNull()
        )
        .groupBy(*_PARTITION)
        .agg(F.unix_micros(F.max_by("record_timestamp", "position")).alias("at"))
        .collect()
    )
    return {
        (row.source, SourcePartition(row.topic, row.generation, row.partition)): from_micros(row["at"]) for row in rows
    }


def _earliest(positions: DataFrame, places: Iterable[HopPlace]) -> dict[tuple[str, SourcePartition], list[Earliest]]:
    topics = sorted({place.topic for place in places})
    newest = Window.partitionBy(*_PARTITION).orderBy(F.desc("observed_at"))
    rows = (
        positions.where((F.col("kind") == "earliest") & F.col("topic").isin(topics) & F.col("position").isNotNull())
        .withColumn("rank", F.row_number().over(newest))
        .where(F.col("rank") <= _MOST_CHANGES)
        .select(*_PARTITION, "position", F.unix_micros("observed_at").alias("seen"))
        .orderBy("observed_at")
        .collect()
    )
    found: dict[tuple[str, SourcePartition], list[Earliest]] = {}
    for row in rows:
        place = row.source, SourcePartition(row.topic, row.generation, row.partition)
        found.setdefault(place, []).append(Earliest(observed_at=from_micros(row.seen), offset=row.position))
    return found
