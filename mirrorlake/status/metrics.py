"""The metrics of a running mirror, and at `/healthz` whether it makes progress; without a port nothing is served.

    streams ──batches, commits──┐
    looks   ──verdicts──────────┤
    tables  ──every minute──────┴──> Metrics ──> http://127.0.0.1:9464/metrics and /healthz

Names are those of kafka-lag-exporter where the meaning is the same (consumer groups); units are Prometheus's base units:
seconds, records, offsets. An unknown figure has no series, because any number would be taken as known. A scrape reads memory
only: it calls no cluster and no Spark. No failure in here reaches a stream.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, cast

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import Lake
from mirrorlake.landing import LandListener
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.parked import Parked, stream_facts
from mirrorlake.model.withheld import FILTERED, QUARANTINED
from mirrorlake.render import format_duration
from mirrorlake.republish import FlowListener
from mirrorlake.runtime import PeriodicTask, PeriodicTasks
from mirrorlake.status.history import Lag
from mirrorlake.status.hops import HopVerdict, LagVerdict, longest_eta
from mirrorlake.status.monitor import Monitor
from mirrorlake.status.status import grouped
from mirrorlake.status.verdict import Verdict, combine_known, sum_lags, worst

log = logging.getLogger(__name__)

# A scrape of more is slow for both sides; the worst verdicts remain.
MAX_SERIES = 50_000
# A batch of Spark's for a slow target may take minutes; a restart in the middle would not help.
_TURN_TIMEOUT_S = 900.0
# The supervisor polls every few seconds; a slow lake takes longer.
_POLL_TIMEOUT_S = 120.0
# A look waits for the time-outs of a cluster.
_LATE = timedelta(minutes=5)
# The streams need all cores for their start.
_FIRST_READ_S = 10.0

Labels = tuple[str, ...]
Values = dict[tuple[str, Labels], float]
"""The value of each series, by the name of its metric and its labels."""

_HOP = ("flow", "cluster_name", "topic", "partition", "hop")
_GROUP = ("cluster_name", "group", "topic", "partition", "flow")
_VERDICTS = "0 unknown, 1 OK, 2 WARNING, 3 PAUSED, 4 STOP, 5 STALL, 6 REWIND: Burrow's numbers."
METRICS: dict[str, tuple[str, Labels]] = {
    "mirrorlake_landed_records_total": ("Records that were landed.", ("source",)),
    "mirrorlake_republished_records_total": ("Records that were republished.", ("flow", "topic")),
    "mirrorlake_last_success_timestamp_seconds": ("Last turn that ended well.", ("stream",)),
    "mirrorlake_stream_parked": ("1 for a stream that failed and waits.", ("stream", "error", "retried")),
    "mirrorlake_metrics_failures_total": ("Reads of the tables that failed.", ()),
    "mirrorlake_metrics_timestamp_seconds": ("Time of the last read of the tables.", ()),
    "mirrorlake_offset_lag": ("Offsets between the position and the source's end.", _HOP),
    "mirrorlake_time_lag_seconds": ("Age of the oldest record that has not passed the hop.", _HOP),
    "kafka_consumergroup_group_lag": ("Offsets between the group and the source's end.", _GROUP),
    "kafka_consumergroup_group_lag_seconds": ("Age of the oldest record that the group has not read.", _GROUP),
    "kafka_consumergroup_group_verdict": (_VERDICTS, _GROUP),
    "kafka_consumergroup_group_max_lag_seconds": ("Largest time lag.", ("cluster_name", "group", "flow")),
    "mirrorlake_verdict": ("1 for the verdict that holds, 0 for the others.", ("flow", "verdict")),
    "mirrorlake_retention_at_risk": ("Hops that retention overtakes.", ("flow",)),
    "mirrorlake_retention_left_seconds": ("Time until retention deletes what waits.", ("flow", "hop")),
    "mirrorlake_catch_up_seconds": ("Time until the target has caught up; +Inf: never.", ("flow",)),
    "mirrorlake_rpo_seconds": ("Age of the oldest record that would be lost with the source.", ("flow",)),
    "mirrorlake_objective_seconds": ("Objective of the flow: rpo, rto.", ("flow", "objective")),
    "mirrorlake_objective_met": ("1 where the objective is met, 0 where it is missed.", ("flow", "objective")),
    "mirrorlake_replication_latency_seconds": ("From timestamp to target.", ("flow", "topic", "quantile")),
    "mirrorlake_gap_offsets": ("Upstream offsets that were never landed (law E).", ("source", "kind")),
    "mirrorlake_withheld_records": ("Records that rules kept from the target.", ("flow", "kind")),
    "mirrorlake_table_offset_lag": ("Landed offsets that are not in the typed table yet.", ("table",)),
    "mirrorlake_table_time_lag_seconds": ("Age of the oldest record that waits for it.", ("table",)),
    "mirrorlake_table_bad_records": ("Records that are no rows of the typed table.", ("table",)),
}
"""The text and the labels of each metric; one whose name ends with `_total` is a counter, another a gauge."""


_TOTALS = """
    SELECT 'mirrorlake_gap_offsets' AS name, source AS place, kind, sum(missing) AS total FROM {gaps} GROUP BY source, kind
    UNION ALL
    SELECT 'mirrorlake_withheld_records', flow, kind, sum(record_count) FROM {offset_map}
    WHERE kind IN ('filtered', 'quarantined') GROUP BY flow, kind
"""


def measure(lake: Lake, lag: Lag, *, at: datetime) -> Values:
    """Read what stands in the lake's tables beside the verdicts: gaps (law E), withheld records, and the newest latency."""
    values: Values = {("mirrorlake_metrics_timestamp_seconds", ()): at.timestamp()}
    # Series start at 0, because an alert misses the first event of a series that begins with it.
    for flow in lag.flows:
        values |= {("mirrorlake_gap_offsets", (flow.source, kind)): 0 for kind in GAP_KINDS}
        values |= {("mirrorlake_withheld_records", (flow.name, kind)): 0 for kind in (FILTERED, QUARANTINED)}
    for row in lake.query(_TOTALS, missing_ok=True):
        values[row.name, (row.place, row.kind)] = int(row.total or 0)
    with suppress(UsageError):
        for row in lag.latency("10m", bucket="5m").ask("SELECT * FROM {answer} ORDER BY bucket").rows():
            for quantile, ms in (("0.5", row.p50_ms), ("0.95", row.p95_ms), ("0.99", row.p99_ms)):
                values["mirrorlake_replication_latency_seconds", (row.flow, row.topic, quantile)] = ms / 1000
    return values


def read_values(lag: LagVerdict, series: Mapping[Labels, Sequence[HopVerdict]]) -> Values:
    """Return the values of a verdict; `series` has the hops of each series of lags, of one partition or topic."""
    values: Values = {}

    def put(name: str, labels: Labels, value: float | None, *, per: int = 1) -> None:
        if value is not None:
            values[name, labels] = value / per

    group_lags: dict[Labels, list[int | None]] = {}
    for labels, hops in series.items():
        total = sum_lags(hop.last for hop in hops)
        if hops[0].key.hop != "consumed":
            put("mirrorlake_offset_lag", labels, total.offset_lag)
            put("mirrorlake_time_lag_seconds", labels, total.time_lag_ms, per=1000)
        else:
            put("kafka_consumergroup_group_lag", labels, total.offset_lag)
            put("kafka_consumergroup_group_lag_seconds", labels, total.time_lag_ms, per=1000)
            put("kafka_consumergroup_group_verdict", labels, worst(hop.verdict for hop in hops).in_metrics)
            cluster, group, _, _, flow = labels
            group_lags.setdefault((cluster, group, flow), []).append(total.time_lag_ms)
    for labels, lags_ms in group_lags.items():
        put("kafka_consumergroup_group_max_lag_seconds", labels, combine_known(max, lags_ms), per=1000)
    at_risk = Counter(hop.key.flow for hop in lag.at_risk)
    for of in lag.status.flows:
        for one in Verdict:
            if one is one.in_metrics:
                put("mirrorlake_verdict", (of.flow, one.name), Verdict[of.verdict].in_metrics is one)
        put("mirrorlake_retention_at_risk", (of.flow,), at_risk[of.flow])
        put("mirrorlake_rpo_seconds", (of.flow,), of.time_lag_ms, per=1000)
        for objective in of.objectives:
            labels = of.flow, objective.name.lower()
            put("mirrorlake_objective_seconds", labels, objective.wanted_s)
            put("mirrorlake_objective_met", labels, None if objective.met == "unknown" else objective.met == "met")
    for labels, hops in grouped(lag.hops, lambda hop: (hop.key.flow, hop.key.hop)).items():
        left = (hop.retention.soonest_ms for hop in hops if hop.retention is not None)
        soonest_ms = min((ms for ms in left if ms is not None), default=None)
        put("mirrorlake_retention_left_seconds", labels, soonest_ms, per=1000)
        if labels[1] == "republished":
            put("mirrorlake_catch_up_seconds", labels[:1], longest_eta(hops), per=1000)
    for table in lag.status.tables:
        put("mirrorlake_table_offset_lag", (table.name,), table.offset_lag)
        put("mirrorlake_table_time_lag_seconds", (table.name,), table.time_lag_ms, per=1000)
        put("mirrorlake_table_bad_records", (table.name,), table.bad_records)
    return values


@dataclass
class Health:
    """Whether a running mirror makes progress, for a probe that restarts it otherwise; threads share it.

    Parked, paused and unwanted streams are not judged: a restart helps none of them. A mirror with an unreachable target is
    healthy, too; whether records arrive is what the verdicts say (docs/alerts.md).
    """

    clock: Callable[[], float] = time.monotonic
    _turns: dict[str, float] = field(default_factory=dict)
    _running: dict[str, float] = field(default_factory=dict)
    _pause_s: float = 0.0
    _polled_at: float | None = None

    def turned(self, stream: str) -> None:
        self._turns[stream] = self.clock()

    def polled(self, streams: Iterable[str], *, pause_s: float = 0.0) -> None:
        """Record a supervisor's poll: the streams that should make turns, and the longest pause between two turns."""
        now = self.clock()
        self._running = {name: self._running.get(name, now) for name in streams}
        self._polled_at, self._pause_s = now, pause_s

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `/healthz`; `problems` say why the mirror should be restarted, or is not up yet."""
        now, running, polled_at = self.clock(), self._running, self._polled_at
        ages = {name: now - max(since, self._turns.get(name, since)) for name, since in running.items()}
        said, longest_s = "{} has made no turn for {}", _TURN_TIMEOUT_S + self._pause_s
        problems = [said.format(name, format_duration(age * 1000)) for name, age in ages.items() if age > longest_s]
        if polled_at is None:
            problems = ["the streams are being started"]
        elif now - polled_at > _POLL_TIMEOUT_S:
            problems = [f"nobody has looked after the streams for {format_duration((now - polled_at) * 1000)}"]
        elif running and not self._turns:
            problems = [f"{next(iter(running))} makes its first turn"]
        return {"live": not problems, "streams": sorted(running), "problems": problems}


@dataclass(kw_only=True, eq=False)
class Metrics:
    """The metrics of one process, and the health of its streams, for all threads; not `per_partition`: `partition=""` in each."""

    now: Callable[[], datetime]
    per_partition: bool = True
    max_series: int = MAX_SERIES
    health: Health = field(default_factory=Health)
    _left_out: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counted: Values = field(
        default_factory=lambda: defaultdict(float, {("mirrorlake_metrics_failures_total", ()): 0.0})
    )
    _showing: threading.Lock = field(default_factory=threading.Lock)
    _lag: LagVerdict | None = None
    _measured: Values = field(default_factory=dict)
    _read: Values = field(default_factory=dict)

    def collect(self) -> Iterator[Any]:
        """Yield every metric; Prometheus's library asks at each scrape, and is loaded by then."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            values = self._counted | self._read
        series: dict[str, list[tuple[Labels, float]]] = {name: [] for name in METRICS}
        for (name, labels), value in values.items():
            series[name].append((labels, value))
        for name, (text, names) in METRICS.items():
            metric = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, text, labels=names)
            for labels, value in series[name]:
                metric.add_metric(labels, value)
            yield metric

    def show(self, lag: LagVerdict, measured: Values | None = None) -> None:
        """Show a verdict, and what was measured beside it, None for as before; series without a new value disappear.

        Of two threads that look, one may be late: the newer verdict stays, unless the clock was set back.
        """
        with self._showing:
            if measured is not None:
                self._measured = measured
            if self._lag is None or not timedelta() < self._lag.status.observed_at - lag.status.observed_at < _LATE:
                self._lag = lag
            self._show(self._lag)

    def _show(self, lag: LagVerdict) -> None:
        series: dict[Labels, list[HopVerdict]] = {}
        for hop in lag.hops:
            key, partition = hop.key, str(hop.key.partition) if self.per_partition else ""
            labels = (key.flow, key.source, key.topic, partition, key.hop)
            if key.hop == "consumed":
                labels = (key.cluster, key.group_id or "", key.topic, partition, key.flow)
            series.setdefault(labels, []).append(hop)
        left_out = max(0, len(series) - self.max_series)
        if left_out and not self._left_out:
            log.warning("metrics.left_out series=%d next=set metrics.per_partition: false", left_out)
        self._left_out = left_out
        # Verdicts come worst first. One assignment: a scrape sees all figures of a read or none.
        self._read = self._measured | read_values(lag, dict(islice(series.items(), self.max_series)))

    def count(self, name: str, labels: Labels, count: int = 1) -> None:
        with self._lock:
            self._counted[name, labels] += count

    def turned(self, stream: str, *, landed: int | None = None) -> None:
        """Record a turn of a stream: a batch that succeeded, or a poll with nothing new; `landed` counts its records."""
        if landed is not None:
            self.count("mirrorlake_landed_records_total", (stream.removeprefix("land "),), landed)
        with self._lock:
            self._counted["mirrorlake_last_success_timestamp_seconds", (stream,)] = self.now().timestamp()
        self.health.turned(stream)

    def parked(self, streams: Mapping[str, Parked]) -> None:
        with self._lock:
            for key in [key for key in self._counted if key[0] == "mirrorlake_stream_parked"]:
                del self._counted[key]
            for name, one in streams.items():
                self._counted["mirrorlake_stream_parked", (_stream(name), one.error, str(one.is_retried).lower())] = 1

    def running(self, streams: Iterable[str], *, pause_s: float = 0.0) -> None:
        """Record the running streams at a supervisor's poll, and the longest pause between two batches."""
        # One query writes all typed tables, and tells no turn of one: they are not judged.
        judged = (_stream(name) for name in streams if "table" not in stream_facts(name))
        self.health.polled(judged, pause_s=pause_s)

    def land_listener(self, alias: str) -> LandListener:
        return _Listener(self, f"land {alias}")

    def flow_listener(self, flow: str) -> FlowListener:
        return _Listener(self, f"republish {flow}")


def _stream(name: str) -> str:
    return f"republish {name}" if "flow" in stream_facts(name) else name


@contextmanager
def only_logged(what: str) -> Iterator[None]:
    """Log a failure of the body and go on: metrics never make a mirror fail."""
    try:
        yield
    except Exception:
        log.exception("metrics.failed what=%s; the mirror runs on", what)


@dataclass(frozen=True)
class _Listener(LandListener, FlowListener):
    metrics: Metrics
    stream: str

    def landed(self, records: int) -> None:
        with only_logged("count of landed records"):
            self.metrics.turned(self.stream, landed=records)

    def committed(self, records: Sequence[LedgerRecord]) -> None:
        with only_logged("count of republished records"):
            for record in records:
                for run in record.runs:
                    self.metrics.count(
                        "mirrorlake_republished_records_total", (record.claim.flow, run.source.topic), run.count
                    )
                self.metrics.turned(self.stream)

    def polled(self) -> None:
        with only_logged("count of polls"):
            self.metrics.turned(self.stream)


@contextmanager
def serving_metrics(context: Context, *, port: int | None) -> Iterator[None]:
    """Serve the metrics of a mirror while the body runs, if `port` or the settings name a port."""
    settings, logging_stop = context.config.metrics, only_logged("stop")
    port = settings.port if port is None else port
    if port is None:
        yield
        return
    with ExitStack() as stack:
        with only_logged("start"):
            metrics = Metrics(now=context.now, per_partition=settings.per_partition)
            if (server := start_server(metrics, address=settings.address, port=port)) is not None:
                stack.callback(logging_stop(server.server_close))
                stack.callback(logging_stop(server.shutdown))
            listener, streams = batch_listener(metrics), context.spark.streams
            streams.addListener(listener)
            stack.callback(logging_stop(streams.removeListener), listener)
            context.metrics = metrics
            stack.callback(setattr, context, "metrics", None)
            every_s, run = settings.every.total_seconds(), figures_reader(context, metrics)
            task = PeriodicTask(name="metrics", interval_s=every_s, first_delay_s=min(every_s, _FIRST_READ_S), run=run)
            reads = PeriodicTasks("metrics", [task])
            reads.start()
            stack.callback(logging_stop(reads.stop))
        yield


def figures_reader(context: Context, metrics: Metrics) -> Callable[[], None]:
    """Return a function for one thread that reads the tables once, and shows what it found."""
    monitor = context.shared(Monitor)
    newest = monitor.make_newest_reader()

    def read() -> None:
        try:
            measured = measure(context.lake, monitor.lag(), at=context.now())
            metrics.show(newest(), measured)
        except Exception:
            metrics.count("mirrorlake_metrics_failures_total", ())
            raise

    return read


def start_server(metrics: Metrics, *, address: str, port: int) -> Any:
    """Serve at an address, for all who can reach it, at a free port for 0; a taken port is only logged: no mirror needs its metrics."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(cast("Any", metrics))
    try:
        server, _ = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        text = "metrics.not_served address=%s:%s why=%s next=name a free port with metrics.port or --metrics-port"
        log.warning(text, address, port, error.strerror or error)
        return None
    scrape = cast("Callable[..., Iterable[bytes]]", server.get_app())

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            return scrape(environ, start_response)
        document = metrics.health.as_dict()
        status = "200 OK" if document["live"] else "503 Service Unavailable"
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(document).encode()]

    server.set_app(answer)
    log.info("metrics.served address=%s:%s", address, server.server_port)
    return server


def batch_listener(metrics: Metrics) -> Any:
    """Return the listener for Spark's batches, whose queries have the names of their streams; their rows are in the lake by then."""
    # It takes 0.3 s to load.
    from pyspark.sql.streaming import StreamingQueryListener

    # Reports on an idle query have its id only.
    names: dict[str, str] = {}

    def turned(name: str, rows: int) -> None:
        if name.startswith(("land ", "republish ")):
            metrics.turned(name, landed=max(0, rows) if name.startswith("land ") else None)

    class BatchListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not followed (pyproject)
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
            names[str(event.id)] = event.name or ""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
            turned(event.progress.name or "", event.progress.numInputRows)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
            turned(names.get(str(event.id), ""), 0)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
            names.pop(str(event.id), None)

    return BatchListener()
