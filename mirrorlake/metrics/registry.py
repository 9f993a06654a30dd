"""Define the metrics: counters that streams increment, and gauges of the last read of the tables.

Names are those of kafka-lag-exporter where the meaning is the same (consumer groups, partition ends), else like MirrorMaker 2's
JMX names; docs/metrics.md has the table. Units are Prometheus's base units: seconds, records, offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mirrorlake.lag import Figures, HopVerdict, Total, Verdict, combine_known, sum_lags, worst_hop_verdict
from mirrorlake.metrics.health import Health
from mirrorlake.metrics.listeners import FlowFeed, LandFeed
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.parked import Parked

# A batch of an always-on mirror takes about a second, the first after a pause minutes.
_BATCH_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
# A scrape of more is slow for both sides; the largest lags remain.
MAX_SERIES = 50_000


class Metrics(Collector):
    """The metrics of one process, in a registry of their own.

    Without `per_partition`, one series per topic with `partition=""`; `most_series` limits the lag series.
    """

    def __init__(self, *, per_partition: bool = True, most_series: int = MAX_SERIES) -> None:
        self.registry = CollectorRegistry()
        self._landed = Counter(
            "mirrorlake_landed_records", "Records that were landed.", ["source"], registry=self.registry
        )
        self._sent = Counter(
            "mirrorlake_republished_records",
            "Records that were republished.",
            ["flow", "topic"],
            registry=self.registry,
        )
        self._batches = Histogram(
            "mirrorlake_batch_duration_seconds",
            "Time that a batch of a stream took.",
            ["stream"],
            buckets=_BATCH_BUCKETS,
            registry=self.registry,
        )
        self._success = Gauge(
            "mirrorlake_last_success_timestamp_seconds",
            "Time of the last batch of a stream that ended well, also of one without records.",
            ["stream"],
            registry=self.registry,
        )
        self._failures = Counter(
            "mirrorlake_metrics_failures",
            "Looks at the tables that failed; lag is as old as mirrorlake_metrics_timestamp_seconds says.",
            registry=self.registry,
        )
        self._parked = Gauge(
            "mirrorlake_stream_parked",
            "1 for a stream that failed and waits, by the error that ended it; no series where none does.",
            ["stream", "error", "retried"],
            registry=self.registry,
        )
        # It is updated with the counters; a probe reads it beside the scrapes.
        self.health = Health()
        self._per_partition = per_partition
        self._most_series = most_series
        self._families: tuple[GaugeMetricFamily, ...] = ()
        self.registry.register(self)

    def landed(self, source: str, *, records: int, seconds: float | None, at: float) -> None:
        """Count a landed batch that ended at `at`, in seconds since 1970; `seconds` is None if a live task lands."""
        self._landed.labels(source).inc(records)
        self._batch(f"land {source}", seconds, at)

    def republished_batch(self, flow: str, *, seconds: float, at: float) -> None:
        self._batch(f"republish {flow}", seconds, at)

    def looked(self, stream: str, *, at: float) -> None:
        """Record that a stream polled, or ended a batch."""
        self._success.labels(stream).set(at)
        self.health.turned(stream)

    def republished(self, flow: str, records: Mapping[str, int]) -> None:
        """Count records that a target has acknowledged, by source topic."""
        self.health.turned(f"republish {flow}")
        for topic, count in records.items():
            self._sent.labels(flow, topic).inc(count)

    def land_listener(self, alias: str, *, now: Callable[[], datetime]) -> LandFeed:
        return LandFeed(self, alias, now=now)

    def flow_listener(self, flow: str, *, now: Callable[[], datetime]) -> FlowFeed:
        return FlowFeed(self, flow, now=now)

    def parked(self, streams: Mapping[str, Parked]) -> None:
        self._parked.clear()
        for name, one in streams.items():
            self._parked.labels(_stream(name), one.error, str(one.is_retried).lower()).set(1)

    def running(self, streams: Iterable[str], *, pause_s: float = 0.0) -> None:
        """Record the running streams at a supervisor's poll, and the longest pause between two batches."""
        self.health.runs(map(_stream, streams), pause_s=pause_s)

    def show(self, figures: Figures) -> None:
        """Replace the figures of the tables; series without a new value disappear."""
        # Verdicts come worst first.
        places = _places(figures.lag.hops, per_partition=self._per_partition)
        kept = dict(islice(places.items(), self._most_series))
        at, left_out = figures.at.timestamp(), len(places) - len(kept)
        # One assignment: a scrape sees all figures of a read or none.
        self._families = (
            _family("mirrorlake_metrics_timestamp_seconds", "Time of the look at the tables.", (), [((), at)]),
            _family(
                "mirrorlake_metrics_series_left_out", "Partitions and groups beyond the bound.", (), [((), left_out)]
            ),
            *_hops({place: hops for place, hops in kept.items() if place.hop != "consumed"}),
            *_groups({place: hops for place, hops in kept.items() if place.hop == "consumed"}),
            *_flows(figures),
            *_records(figures),
            *_tables(figures),
            _proven(figures, kept),
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the figures of the last read; the registry calls it at each scrape."""
        yield from self._families

    def failed(self) -> None:
        self._failures.inc()

    def _batch(self, stream: str, seconds: float | None, at: float) -> None:
        if seconds is not None:
            self._batches.labels(stream).observe(seconds)
        self.looked(stream, at=at)


def _stream(name: str) -> str:
    return name if name.startswith("land ") else f"republish {name}"


class _Place(NamedTuple):
    """The labels of a lag series; `partition` is "" if partitions are added up."""

    flow: str
    source: str
    cluster: str
    topic: str
    partition: str
    hop: str
    group: str


_Hops = Sequence[HopVerdict]


def _places(hops: Iterable[HopVerdict], *, per_partition: bool) -> dict[_Place, list[HopVerdict]]:
    found: dict[_Place, list[HopVerdict]] = {}
    for hop in hops:
        at = hop.key
        partition = str(at.partition) if per_partition else ""
        place = _Place(at.flow, at.source, at.cluster or at.source, at.topic, partition, at.hop, at.group_id or "")
        found.setdefault(place, []).append(hop)
    return found


def _position(hops: _Hops) -> int | None:
    return hops[0].last.position


def _offset_lag(hops: _Hops) -> int | None:
    return sum_lags(hop.last for hop in hops).offset_lag


def _time_lag_s(hops: _Hops) -> float | None:
    return _seconds(sum_lags(hop.last for hop in hops).time_lag_ms)


def _verdict(hops: _Hops) -> int:
    return worst_hop_verdict(hop.verdict for hop in hops).in_metrics


_IN_METRICS = [verdict for verdict in Verdict if verdict is verdict.in_metrics]
_VERDICTS = "0 unknown, 1 OK, 2 WARNING, 3 PAUSED, 4 STOP, 5 STALL, 6 REWIND: Burrow's numbers."
_HOP_FIGURES = (
    ("mirrorlake_position", "Next upstream offset to pass the hop.", _position),
    ("mirrorlake_offset_lag", "Offsets between the position and the source's end.", _offset_lag),
    ("mirrorlake_time_lag_seconds", "Age of the oldest record that has not passed the hop.", _time_lag_s),
    ("mirrorlake_partition_verdict", _VERDICTS, _verdict),
)
_GROUP_FIGURES = (
    ("group_offset", "Position of the group, as an upstream offset.", _position),
    ("group_lag", "Offsets between the group and the source's end.", _offset_lag),
    ("group_lag_seconds", "Age of the oldest record that the group has not read.", _time_lag_s),
    ("group_verdict", _VERDICTS, _verdict),
)


def _family(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float | None]]
) -> GaugeMetricFamily:
    found = GaugeMetricFamily(name, text, labels=labels)
    for places, value in values:
        # An unknown value has no series: any number would be taken as known.
        if value is not None:
            found.add_metric(places, value)
    return found


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _value(figure: Callable[[_Hops], float | None], place: _Place, hops: _Hops) -> float | None:
    # Positions of several partitions have no sum.
    return None if figure is _position and not place.partition else figure(hops)


def _hops(places: Mapping[_Place, _Hops]) -> Iterator[GaugeMetricFamily]:
    labels = ["flow", "cluster_name", "topic", "partition", "hop"]
    for name, text, figure in _HOP_FIGURES:
        values = [
            ((p.flow, p.source, p.topic, p.partition, p.hop), _value(figure, p, hops)) for p, hops in places.items()
        ]
        yield _family(name, text, labels, values)
    ends = {
        (p.source, p.topic, p.partition): hops[0].last.end_position
        for p, hops in places.items()
        if p.partition and hops[0].last.end_position is not None
    }
    yield _family(
        "kafka_partition_latest_offset",
        "End of the source's partition (last stable offset).",
        ["cluster_name", "topic", "partition"],
        sorted(ends.items()),
    )


def _groups(places: Mapping[_Place, _Hops]) -> Iterator[GaugeMetricFamily]:
    labels = ["cluster_name", "group", "topic", "partition", "flow"]
    for name, text, figure in _GROUP_FIGURES:
        values = [
            ((p.cluster, p.group, p.topic, p.partition, p.flow), _value(figure, p, hops)) for p, hops in places.items()
        ]
        yield _family(f"kafka_consumergroup_{name}", text, labels, values)
    by_group: dict[tuple[str, str, str], list[Total]] = {}
    for place, hops in places.items():
        lag = sum_lags(hop.last for hop in hops)
        by_group.setdefault((place.cluster, place.group, place.flow), []).append(lag)
    largest = {group: combine_known(max, (lag.offset_lag for lag in lags)) for group, lags in by_group.items()}
    totals = {group: sum_lags(lags) for group, lags in by_group.items()}
    for name, text, figures in (
        ("max_lag", "Largest offset lag.", largest),
        ("max_lag_seconds", "Largest time lag.", {g: _seconds(lag.time_lag_ms) for g, lag in totals.items()}),
        ("sum_lag", "Sum of the offset lags.", {g: lag.offset_lag for g, lag in totals.items()}),
    ):
        whole = ["cluster_name", "group", "flow"]
        yield _family(f"kafka_consumergroup_group_{name}", text, whole, figures.items())


def _flows(figures: Figures) -> list[GaugeMetricFamily]:
    flows = figures.lag.flows
    states = [
        ((flow, state.name), float(verdict.in_metrics is state))
        for flow, verdict in flows.items()
        for state in _IN_METRICS
    ]
    at_risk = [hop.key.flow for hop in figures.lag.at_risk]
    risks = [((flow,), at_risk.count(flow)) for flow in flows]
    etas, republished = [], figures.lag.by_flow("republished")
    for flow in flows:
        found = [hop.catch_up for hop in republished.get(flow, ())]
        never = any(one.eta_ms is None and one.position_per_s is not None and not one.is_steady for one in found)
        eta = float("inf") if never else _seconds(combine_known(max, (one.eta_ms for one in found)))
        etas.append(((flow,), eta if found else None))
    return [
        _family("mirrorlake_verdict", "1 for the verdict that holds, 0 for the others.", ["flow", "verdict"], states),
        _family("mirrorlake_retention_at_risk", "Hops that retention overtakes.", ["flow"], risks),
        _family(
            "mirrorlake_retention_left_seconds",
            "Time until retention deletes the first record that waits, if nothing passed the hop from now on.",
            ["flow", "hop"],
            sorted(_retention_left(figures).items()),
        ),
        _family("mirrorlake_catch_up_seconds", "Time until the target has caught up; +Inf: never.", ["flow"], etas),
        _family(
            "mirrorlake_rpo_seconds",
            "Age of the oldest record that would be lost with the source.",
            ["flow"],
            [((flow,), _seconds(ms)) for flow, ms in figures.lag.rpo_ms.items()],
        ),
        *_objectives(figures),
        _family(
            "mirrorlake_replication_latency_seconds",
            "Time from a record's timestamp to its target, over the last minutes.",
            ["flow", "topic", "quantile"],
            [
                ((one.flow, one.topic, quantile), ms / 1000)
                for one in figures.latency
                for quantile, ms in (("0.5", one.p50_ms), ("0.95", one.p95_ms), ("0.99", one.p99_ms))
            ],
        ),
    ]


def _retention_left(figures: Figures) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for hop in figures.lag.hops:
        if hop.retention is not None and hop.retention.soonest_ms is not None:
            place = hop.key.flow, hop.key.hop
            found[place] = min(found.get(place, float("inf")), hop.retention.soonest_ms / 1000)
    return found


def _objectives(figures: Figures) -> Iterator[GaugeMetricFamily]:
    """Yield objectives, their measured values, and whether they are met; unknown values have no series."""
    labels = ["flow", "objective"]
    rows = [(one.flow, row) for one in figures.lag.objectives for row in one.rows()]
    wanted = [((flow, name), seconds) for flow, (name, seconds, _, _) in rows]
    measured = [((flow, name), seconds) for flow, (name, _, seconds, _) in rows]
    met = [
        ((flow, name), None if verdict == "unknown" else float(verdict == "met"))
        for flow, (name, _, _, verdict) in rows
    ]
    yield _family("mirrorlake_objective_seconds", "Objective of the flow: rpo, rto.", labels, wanted)
    yield _family(
        "mirrorlake_objective_measured_seconds", "RPO now, RTO of the last failover or drill.", labels, measured
    )
    yield _family("mirrorlake_objective_met", "1 where the objective is met, 0 where it is missed.", labels, met)


def _tables(figures: Figures) -> list[GaugeMetricFamily]:
    offsets = [((one.name,), one.offset_lag) for one in figures.lag.tables]
    times = [((one.name,), one.time_lag_ms / 1000) for one in figures.lag.tables]
    bad = [((one.name,), one.bad_records) for one in figures.lag.tables]
    return [
        _family(
            "mirrorlake_table_offset_lag", "Landed offsets that are not in the typed table yet.", ["table"], offsets
        ),
        _family("mirrorlake_table_time_lag_seconds", "Age of the oldest record that waits for it.", ["table"], times),
        _family("mirrorlake_table_bad_records", "Records that are no rows of the typed table.", ["table"], bad),
    ]


def _records(figures: Figures) -> list[GaugeMetricFamily]:
    return [
        _family(
            "mirrorlake_gap_offsets",
            "Upstream offsets that were never landed, by kind (law E).",
            ["source", "kind"],
            sorted(figures.gaps.items()),
        ),
        _family(
            "mirrorlake_withheld_records",
            "Records that rules kept from the target: filtered, or quarantined.",
            ["flow", "kind"],
            sorted(figures.withheld.items()),
        ),
    ]


def _proven(figures: Figures, places: Iterable[_Place]) -> GaugeMetricFamily:
    found = {
        (one.flow, one.topic, one.partition): figures.proven.get(
            (one.flow, TopicPartition(one.topic, int(one.partition)))
        )
        for one in places
        if one.hop == "republished" and one.partition
    }
    text = "Upstream position up to which every landed record is proven to be on the target."
    return _family("mirrorlake_proven_until", text, ["flow", "topic", "partition"], found.items())
