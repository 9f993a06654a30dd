"""The metrics of a running mirror: what its streams count, and the figures of the newest read of the tables.

Names are those of kafka-lag-exporter where the meaning is the same (consumer groups); units are Prometheus's base units:
seconds, records, offsets. An unknown figure has no series, because any number would be taken as known.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrorlake.errors import UsageError
from mirrorlake.lake import GAPS, OFFSET_MAP, Lake, TableSchema
from mirrorlake.landing import LandListener
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.parked import Parked
from mirrorlake.model.withheld import FILTERED, QUARANTINED
from mirrorlake.render import format_duration
from mirrorlake.republish import FlowListener
from mirrorlake.status.history import Lag
from mirrorlake.status.hops import HopVerdict, LagVerdict
from mirrorlake.status.verdict import Verdict, combine_known, sum_lags, worst

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

# A scrape of more is slow for both sides; the worst verdicts remain.
MAX_SERIES = 50_000
# A batch of Spark's for a slow target may take minutes; a restart in the middle would not help.
_TURN_TIMEOUT_S = 900.0
# The supervisor polls every few seconds; a slow lake takes longer.
_POLL_TIMEOUT_S = 120.0

Labels = tuple[str, ...]
# By labels; a mapping is invariant in its keys.
Values = Mapping[Any, float | None]
Hops = Mapping[Labels, Sequence[HopVerdict]]
"""The verdicts of each series: of a partition, or of all partitions of a topic."""


class Family(NamedTuple):
    """One metric; a name that ends with `_total` is a counter, another a gauge."""

    name: str
    text: str
    labels: Labels = ()


_HOP = ("flow", "cluster_name", "topic", "partition", "hop")
_GROUP = ("cluster_name", "group", "topic", "partition", "flow")
_VERDICTS = "0 unknown, 1 OK, 2 WARNING, 3 PAUSED, 4 STOP, 5 STALL, 6 REWIND: Burrow's numbers."
LANDED = Family("mirrorlake_landed_records_total", "Records that were landed.", ("source",))
REPUBLISHED = Family("mirrorlake_republished_records_total", "Records that were republished.", ("flow", "topic"))
SUCCESS = Family("mirrorlake_last_success_timestamp_seconds", "Last turn that ended well.", ("stream",))
PARKED = Family("mirrorlake_stream_parked", "1 for a stream that failed and waits.", ("stream", "error", "retried"))
FAILURES = Family("mirrorlake_metrics_failures_total", "Reads of the tables that failed.")
COUNTED = (LANDED, REPUBLISHED, SUCCESS, PARKED, FAILURES)
READ = (
    Family("mirrorlake_metrics_timestamp_seconds", "Time of the last read of the tables."),
    Family("mirrorlake_offset_lag", "Offsets between the position and the source's end.", _HOP),
    Family("mirrorlake_time_lag_seconds", "Age of the oldest record that has not passed the hop.", _HOP),
    Family("kafka_consumergroup_group_lag", "Offsets between the group and the source's end.", _GROUP),
    Family("kafka_consumergroup_group_lag_seconds", "Age of the oldest record that the group has not read.", _GROUP),
    Family("kafka_consumergroup_group_verdict", _VERDICTS, _GROUP),
    Family("kafka_consumergroup_group_max_lag_seconds", "Largest time lag.", ("cluster_name", "group", "flow")),
    Family("mirrorlake_verdict", "1 for the verdict that holds, 0 for the others.", ("flow", "verdict")),
    Family("mirrorlake_retention_at_risk", "Hops that retention overtakes.", ("flow",)),
    Family("mirrorlake_retention_left_seconds", "Time until retention deletes what waits.", ("flow", "hop")),
    Family("mirrorlake_catch_up_seconds", "Time until the target has caught up; +Inf: never.", ("flow",)),
    Family("mirrorlake_rpo_seconds", "Age of the oldest record that would be lost with the source.", ("flow",)),
    Family("mirrorlake_objective_seconds", "Objective of the flow: rpo, rto.", ("flow", "objective")),
    Family("mirrorlake_objective_met", "1 where the objective is met, 0 where it is missed.", ("flow", "objective")),
    Family("mirrorlake_replication_latency_seconds", "From timestamp to target.", ("flow", "topic", "quantile")),
    Family("mirrorlake_gap_offsets", "Upstream offsets that were never landed (law E).", ("source", "kind")),
    Family("mirrorlake_withheld_records", "Records that rules kept from the target.", ("flow", "kind")),
    Family("mirrorlake_table_offset_lag", "Landed offsets that are not in the typed table yet.", ("table",)),
    Family("mirrorlake_table_time_lag_seconds", "Age of the oldest record that waits for it.", ("table",)),
    Family("mirrorlake_table_bad_records", "Records that are no rows of the typed table.", ("table",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one read: the verdict of the newest look, and the newest latency by flow and topic.

    `gaps` are offsets that were never landed, by source and kind (law E); `withheld` records that were kept from the target,
    by flow and kind (`filtered`, `quarantined`); both are 0 before their first event.
    """

    at: datetime
    lag: LagVerdict
    latency: Sequence[Any] = ()
    gaps: Mapping[tuple[str, str], int] = field(default_factory=dict)
    withheld: Mapping[tuple[str, str], int] = field(default_factory=dict)


def measure(lake: Lake, lag: Lag, verdict: LagVerdict, *, at: datetime) -> Figures:
    """Read the figures that stand in the lake's tables, beside a verdict."""
    try:
        latency = lag.query_latency("10m", bucket="5m").rows("SELECT * FROM {answer} ORDER BY bucket")
    except UsageError:
        latency = []
    gaps, withheld = _sums(lake, GAPS, "source", "missing"), _sums(lake, OFFSET_MAP, "flow", "record_count")
    return Figures(
        at=at,
        lag=verdict,
        latency=tuple({(one.flow, one.topic): one for one in latency}.values()),
        # Series start at 0, because an alert misses the first event of a series that begins with it.
        gaps={(flow.source, kind): 0 for flow in lag.flows for kind in GAP_KINDS} | gaps,
        withheld={(flow.name, kind): 0 for flow in lag.flows for kind in (FILTERED, QUARANTINED)} | withheld,
    )


def _sums(lake: Lake, table: TableSchema, place: str, column: str) -> dict[tuple[str, str], int]:
    text = f"SELECT {place} AS place, kind, sum({column}) AS total FROM {{{table.name}}} WHERE kind <> 'sent' GROUP BY {place}, kind"  # noqa: S608
    return {(row.place, row.kind): int(row.total or 0) for row in lake.query_rows(text, missing_ok=True)}


def read_values(figures: Figures, mirror: Hops, groups: Hops) -> dict[str, Values]:
    """Return the values of the metrics of `READ`; `mirror` and `groups` are the hops that get a series."""
    lag, tables = figures.lag, figures.lag.tables
    lags, group_lags = ({at: sum_lags(hop.last for hop in of) for at, of in hops.items()} for hops in (mirror, groups))
    by_group: dict[Labels, list[int | None]] = {}
    for (cluster, group, _, _, flow), total in group_lags.items():
        by_group.setdefault((cluster, group, flow), []).append(total.time_lag_ms)
    at_risk = [hop.key.flow for hop in lag.at_risk]
    left: dict[Labels, float] = {}
    for hop in lag.hops:
        if hop.retention is not None and hop.retention.soonest_ms is not None:
            at = hop.key.flow, hop.key.hop
            left[at] = min(left.get(at, math.inf), hop.retention.soonest_ms / 1000)
    verdicts = [verdict for verdict in Verdict if verdict is verdict.in_metrics]
    objectives = [(of.flow, one.name.lower(), one) for of in lag.objectives for one in of]
    latencies = [(one.flow, one.topic, (one.p50_ms, one.p95_ms, one.p99_ms)) for one in figures.latency]
    return {
        "mirrorlake_metrics_timestamp_seconds": {(): figures.at.timestamp()},
        "mirrorlake_offset_lag": {at: one.offset_lag for at, one in lags.items()},
        "mirrorlake_time_lag_seconds": {at: _seconds(one.time_lag_ms) for at, one in lags.items()},
        "kafka_consumergroup_group_lag": {at: one.offset_lag for at, one in group_lags.items()},
        "kafka_consumergroup_group_lag_seconds": {at: _seconds(one.time_lag_ms) for at, one in group_lags.items()},
        "kafka_consumergroup_group_verdict": {
            at: worst(hop.verdict for hop in of).in_metrics for at, of in groups.items()
        },
        "kafka_consumergroup_group_max_lag_seconds": {
            at: _seconds(combine_known(max, times)) for at, times in by_group.items()
        },
        "mirrorlake_verdict": {
            (flow, one.name): verdict.in_metrics is one for flow, verdict in lag.flows.items() for one in verdicts
        },
        "mirrorlake_retention_at_risk": {(flow,): at_risk.count(flow) for flow in lag.flows},
        "mirrorlake_retention_left_seconds": left,
        "mirrorlake_catch_up_seconds": {(flow,): _catch_up_s(of) for flow, of in lag.by_flow("republished").items()},
        "mirrorlake_rpo_seconds": {(flow,): _seconds(ms) for flow, ms in lag.rpo_ms.items()},
        "mirrorlake_objective_seconds": {(flow, name): one.wanted_s for flow, name, one in objectives},
        "mirrorlake_objective_met": {
            (flow, name): one.met == "met" for flow, name, one in objectives if one.met != "unknown"
        },
        "mirrorlake_replication_latency_seconds": {
            (flow, topic, quantile): ms / 1000
            for flow, topic, times in latencies
            for quantile, ms in zip(("0.5", "0.95", "0.99"), times, strict=True)
        },
        "mirrorlake_gap_offsets": figures.gaps,
        "mirrorlake_withheld_records": figures.withheld,
        "mirrorlake_table_offset_lag": {(one.name,): one.offset_lag for one in tables},
        "mirrorlake_table_time_lag_seconds": {(one.name,): one.time_lag_ms / 1000 for one in tables},
        "mirrorlake_table_bad_records": {(one.name,): one.bad_records for one in tables},
    }


def _catch_up_s(hops: Sequence[HopVerdict]) -> float | None:
    forecasts = [hop.catch_up for hop in hops]
    if any(one.eta_ms is None and one.position_per_s is not None and not one.is_steady for one in forecasts):
        return math.inf
    return _seconds(combine_known(max, (one.eta_ms for one in forecasts)))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


class Metrics:
    """The metrics of one process, and the health of its streams; threads share it.

    Without `per_partition`, a topic has one series with `partition=""`.
    """

    def __init__(
        self, *, now: Callable[[], datetime], per_partition: bool = True, max_series: int = MAX_SERIES
    ) -> None:
        self.health = Health()
        self._now = now
        self._per_partition = per_partition
        self._max_series = max_series
        self._left_out = 0
        self._lock = threading.Lock()
        self._counted: dict[str, dict[Labels, float]] = {family.name: {} for family in COUNTED}
        self._counted[FAILURES.name][()] = 0
        self._read: dict[str, Values] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; Prometheus's library asks at each scrape, and is loaded by then."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            values: dict[str, Values] = {name: dict(of) for name, of in self._counted.items()} | self._read
        for family in (*COUNTED, *READ):
            kind = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
            shown = kind(family.name, family.text, labels=family.labels)
            for labels, value in values.get(family.name, {}).items():
                if value is not None:
                    shown.add_metric(labels, value)
            yield shown

    def show(self, figures: Figures) -> None:
        """Replace the figures of the tables; series without a new value disappear."""
        hops: dict[Labels, list[HopVerdict]] = {}
        for hop in figures.lag.hops:
            key, partition = hop.key, str(hop.key.partition) if self._per_partition else ""
            labels = (key.flow, key.source, key.topic, partition, key.hop)
            if key.hop == "consumed":
                labels = (key.cluster or key.source, key.group_id or "", key.topic, partition, key.flow)
            hops.setdefault(labels, []).append(hop)
        # Verdicts come worst first.
        shown = dict(islice(hops.items(), self._max_series))
        left_out = len(hops) - len(shown)
        if left_out and not self._left_out:
            log.warning("metrics.left_out series=%d next=set metrics.per_partition: false", left_out)
        self._left_out = left_out
        groups = {labels: of for labels, of in shown.items() if of[0].key.hop == "consumed"}
        mirror = {labels: of for labels, of in shown.items() if labels not in groups}
        # One assignment: a scrape sees all figures of a read or none.
        self._read = read_values(figures, mirror, groups)

    def failed(self) -> None:
        self._count(FAILURES, (), 1)

    def landed(self, alias: str, records: int) -> None:
        self._count(LANDED, (alias,), records)
        self.turned(f"land {alias}")

    def republished(self, records: Sequence[LedgerRecord]) -> None:
        for record in records:
            for run in record.runs:
                self._count(REPUBLISHED, (record.claim.flow, run.source.topic), run.count)
            self.turned(f"republish {record.claim.flow}")

    def turned(self, stream: str) -> None:
        """Record a turn of a stream: a batch that succeeded, or a poll with nothing new."""
        with self._lock:
            self._counted[SUCCESS.name][stream,] = self._now().timestamp()
        self.health.turned(stream)

    def parked(self, streams: Mapping[str, Parked]) -> None:
        values: dict[Labels, float] = {
            (_stream(name), one.error, str(one.is_retried).lower()): 1.0 for name, one in streams.items()
        }
        with self._lock:
            self._counted[PARKED.name] = values

    def running(self, streams: Iterable[str], *, pause_s: float = 0.0) -> None:
        """Record the running streams at a supervisor's poll, and the longest pause between two batches."""
        self.health.polled(map(_stream, streams), pause_s=pause_s)

    def land_listener(self, alias: str) -> LandListener:
        return _Landing(self, alias)

    def flow_listener(self, flow: str) -> FlowListener:
        return _Republishing(self, flow)

    def _count(self, family: Family, labels: Labels, count: int) -> None:
        with self._lock:
            values = self._counted[family.name]
            values[labels] = values.get(labels, 0) + count


def _stream(name: str) -> str:
    return name if name.startswith("land ") else f"republish {name}"


@contextmanager
def only_logged(what: str) -> Iterator[None]:
    """Log a failure of the body and go on: metrics never make a mirror fail."""
    try:
        yield
    except Exception:
        log.exception("metrics.failed what=%s; the mirror runs on", what)


@dataclass(frozen=True)
class _Landing(LandListener):
    metrics: Metrics
    alias: str

    def landed(self, records: int) -> None:
        with only_logged("count of landed records"):
            self.metrics.landed(self.alias, records)


@dataclass(frozen=True)
class _Republishing(FlowListener):
    metrics: Metrics
    flow: str

    def committed(self, records: Sequence[LedgerRecord]) -> None:
        with only_logged("count of republished records"):
            self.metrics.republished(records)

    def polled(self) -> None:
        with only_logged("count of polls"):
            self.metrics.turned(f"republish {self.flow}")


class Health:
    """Whether a running mirror makes progress, for a probe that restarts it otherwise.

    Parked, paused and unwanted streams are not judged: a restart helps none of them. A mirror with an unreachable target is
    healthy, too; whether records arrive is what the verdicts say (docs/alerts.md).
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._turns: dict[str, float] = {}
        self._running: dict[str, float] = {}
        self._pause_s = 0.0
        self._polled_at: float | None = None

    def turned(self, stream: str) -> None:
        with self._lock:
            self._turns[stream] = self._clock()

    def polled(self, streams: Iterable[str], *, pause_s: float = 0.0) -> None:
        """Record a supervisor's poll: the streams that should make turns, and the longest pause between two turns."""
        now = self._clock()
        with self._lock:
            self._polled_at, self._pause_s = now, pause_s
            self._running = {name: self._running.get(name, now) for name in streams}

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `/healthz`; `problems` say why the mirror should be restarted, or is not up yet."""
        with self._lock:
            problems = self._problems(self._clock())
            return {"live": not problems, "streams": sorted(self._running), "problems": problems}

    def _problems(self, now: float) -> list[str]:
        if self._polled_at is None:
            return ["the streams are being started"]
        if now - self._polled_at > _POLL_TIMEOUT_S:
            return [f"nobody has looked after the streams for {format_duration((now - self._polled_at) * 1000)}"]
        if self._running and not self._turns:
            return [f"{next(iter(self._running))} makes its first turn"]
        ages = {name: now - max(since, self._turns.get(name, since)) for name, since in self._running.items()}
        longest_s = _TURN_TIMEOUT_S + self._pause_s
        said = "{} has made no turn for {}"
        return [said.format(name, format_duration(age * 1000)) for name, age in ages.items() if age > longest_s]
