"""Metrics: what a scrape reads is what the figures say, bounded, and no failure in here reaches a stream."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from mirrorlake.config.schema.background import MetricsConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lag import Figures, Verdict, measure
from mirrorlake.lag.hop_verdicts import HopKey
from mirrorlake.lag.judge import judge_windows
from mirrorlake.lag.series import LatencyPoint
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.metrics import Metrics, MetricsFeed, MetricsServer
from mirrorlake.metrics.batch_listener import BatchListener
from mirrorlake.metrics.health import Health
from mirrorlake.metrics.listeners import FlowFeed
from mirrorlake.mirror.serve_metrics import measured
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.parked import Parked
from mirrorlake.sandbox.ports import free_ports
from tests.builders import NOON, hop_place, ledger_record, mirror_config, run, sample
from tests.kit.lake import LakeBuilder

FLOW = "east->central"
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(url: str) -> Series:
    assert url.startswith("http://127.0.0.1:")
    with urlopen(url) as answer:  # noqa: S310  the address of this test's own server
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(metrics: Metrics) -> Series:
    server = MetricsServer(metrics.registry, port=0).start()
    try:
        return scrape(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        server.stop()


def shown(*looks: Figures, **options: Any) -> Series:
    """Return what a scrape reads after these figures."""
    metrics = Metrics(**options)
    for look in looks:
        metrics.show(look)
    return scraped(metrics)


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, tuple(sorted(labels.items()))))


def figures(*, partitions: int = 2, group: str = "billing") -> Figures:
    windows: dict[HopKey, list[LagSample]] = {}
    for partition in range(partitions):
        for hop, name, cluster, positions in (
            ("landed", None, "east", [100, 100, 100]),
            ("republished", None, "central", [60, 70, 80]),
            ("consumed", group, "central", [10, 10, 10]),
        ):
            place = hop_place(hop, name, partition=partition, cluster=cluster)
            moments = [NOON + timedelta(seconds=10 * index) for index in range(3)]
            since = NOON - timedelta(seconds=partition)
            windows[place] = [
                sample(at, position, 100, waiting=since, lag_ms=(at - since) // timedelta(milliseconds=1))
                if position < 100
                else sample(at, position, 100, lag_ms=0)
                for at, position in zip(moments, positions, strict=True)
            ]
    return Figures(
        at=moments[-1],
        lag=judge_windows(windows, now=moments[-1], retention_of=lambda of: dict.fromkeys(of, 3_600_000)),
        latency=[
            LatencyPoint(at=NOON, flow=FLOW, topic="orders", records=9, p50_ms=500.0, p95_ms=1500.0, p99_ms=2500.0)
        ],
        gaps={("east", "compacted"): 7},
        withheld={(FLOW, "quarantined"): 3},
        proven={(FLOW, TopicPartition("orders", 1)): 70},
    )


def test_a_scrape_reads_what_the_figures_say() -> None:
    series = shown(figures())
    hop = {"flow": FLOW, "cluster_name": "east", "topic": "orders", "partition": "1", "hop": "republished"}
    group = {"cluster_name": "central", "group": "billing", "topic": "orders", "partition": "1", "flow": FLOW}
    whole = {"cluster_name": "central", "group": "billing", "flow": FLOW}
    end = {"cluster_name": "east", "topic": "orders", "partition": "0"}
    for expected, name, labels in [
        (80, "mirrorlake_position", hop),
        (20, "mirrorlake_offset_lag", hop),
        (21, "mirrorlake_time_lag_seconds", hop),
        (Verdict.OK, "mirrorlake_partition_verdict", hop),
        (100, "kafka_partition_latest_offset", end),
        (10, "kafka_consumergroup_group_offset", group),
        (90, "kafka_consumergroup_group_lag", group),
        (21, "kafka_consumergroup_group_lag_seconds", group),
        (Verdict.STALL, "kafka_consumergroup_group_verdict", group),
        (90, "kafka_consumergroup_group_max_lag", whole),
        (21, "kafka_consumergroup_group_max_lag_seconds", whole),
        (180, "kafka_consumergroup_group_sum_lag", whole),
        (0, "mirrorlake_verdict", {"flow": FLOW, "verdict": "STALL"}),
        (1, "mirrorlake_verdict", {"flow": FLOW, "verdict": "OK"}),
        (0, "mirrorlake_retention_at_risk", {"flow": FLOW}),
        (20, "mirrorlake_catch_up_seconds", {"flow": FLOW}),
        (21, "mirrorlake_rpo_seconds", {"flow": FLOW}),
        (1.5, "mirrorlake_replication_latency_seconds", {"flow": FLOW, "topic": "orders", "quantile": "0.95"}),
        (7, "mirrorlake_gap_offsets", {"source": "east", "kind": "compacted"}),
        (3, "mirrorlake_withheld_records", {"flow": FLOW, "kind": "quarantined"}),
        (70, "mirrorlake_proven_until", {"flow": FLOW, "topic": "orders", "partition": "1"}),
        ((NOON + timedelta(seconds=20)).timestamp(), "mirrorlake_metrics_timestamp_seconds", {}),
    ]:
        assert value(series, name, **labels) == expected, name


def test_what_is_gone_or_not_known_has_no_series() -> None:
    [first, second, *_] = figures().lag.hops
    unknown = replace(first, last=replace(first.last, offset_lag=None, time_lag_ms=None))
    assert first.key.hop == second.key.hop == "consumed"
    series = shown(figures(), replace(figures(), lag=replace(figures().lag, hops=(unknown, second)), gaps={}))
    names = {name for name, _ in series}
    assert "mirrorlake_gap_offsets" not in names
    assert "mirrorlake_position" not in names
    assert sum(name == "kafka_consumergroup_group_offset" for name, _ in series) == 2
    assert sum(name == "kafka_consumergroup_group_lag" for name, _ in series) == 1
    assert "kafka_consumergroup_group_sum_lag" not in names, "a sum that leaves one out would look better than it is"


def test_the_number_of_series_is_bounded_and_the_worst_stay() -> None:
    series = shown(figures(partitions=5), per_partition=False)
    assert {dict(labels).get("partition", "") for _, labels in series} == {""}
    place = {"flow": FLOW, "cluster_name": "east", "topic": "orders", "partition": "", "hop": "republished"}
    assert value(series, "mirrorlake_offset_lag", **place) == 100
    assert value(series, "mirrorlake_time_lag_seconds", **place) == 24
    assert value(series, "mirrorlake_position", **place) is None
    assert value(series, "mirrorlake_verdict", flow=FLOW, verdict="OK") == 1, "a group is no flow"

    series = shown(figures(partitions=5), most_series=4)
    assert value(series, "mirrorlake_metrics_series_left_out") == 11
    assert sum(name == "kafka_consumergroup_group_lag" for name, _ in series) == 4, "the groups stand still"


def test_names_of_others_are_labels_and_nothing_else() -> None:
    evil = 'a"} 1\nevil{x="'
    series = shown(figures(group=evil))
    assert {dict(labels)["group"] for name, labels in series if name == "kafka_consumergroup_group_lag"} == {evil}
    assert not [name for name, _ in series if name.startswith("evil")]


# -- what streams tell -------------------------------------------------------------------------------------------------


def progress(name: str | None, *, rows: int = 0, ms: int = 0) -> SimpleNamespace:
    return SimpleNamespace(progress=SimpleNamespace(name=name, numInputRows=rows, batchDuration=ms))


def test_batches_are_counted_by_the_names_of_their_queries() -> None:
    metrics, now = Metrics(), NOON
    listener = BatchListener(metrics, now=lambda: now)
    listener.onQueryStarted(SimpleNamespace(id="7", name=f"republish {FLOW}"))
    listener.onQueryProgress(progress("land east", rows=1000, ms=700))
    listener.onQueryProgress(progress("land east", rows=500, ms=300))
    listener.onQueryProgress(progress(f"republish {FLOW}", rows=1500, ms=2000))
    for stranger in (None, "", "somebody else's", "landing"):
        listener.onQueryProgress(progress(stranger, rows=9, ms=9))
    now = NOON + timedelta(minutes=1)
    listener.onQueryIdle(SimpleNamespace(id="7"))
    listener.onQueryIdle(SimpleNamespace(id="not known"))
    listener.onQueryTerminated(SimpleNamespace(id="7"))

    def found(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert found("mirrorlake_landed_records_total", source="east") == 1500
    assert found("mirrorlake_batch_duration_seconds_sum", stream="land east") == 1.0
    assert found("mirrorlake_batch_duration_seconds_count", stream=f"republish {FLOW}") == 1
    assert found("mirrorlake_last_success_timestamp_seconds", stream="land east") == NOON.timestamp()
    assert found("mirrorlake_last_success_timestamp_seconds", stream=f"republish {FLOW}") == now.timestamp()
    FlowFeed(metrics, FLOW, now=lambda: NOON + timedelta(hours=2)).polled()
    later = (NOON + timedelta(hours=2)).timestamp()
    assert found("mirrorlake_last_success_timestamp_seconds", stream=f"republish {FLOW}") == later
    streams = {s.labels["stream"] for f in metrics.registry.collect() for s in f.samples if "stream" in s.labels}
    assert streams == {"land east", f"republish {FLOW}"}


def run_of(topic: str, count: int) -> MappedRange:
    return run(0, count - 1, source=SourcePartition(topic, 1, 0))


def test_confirmed_records_are_counted_by_topic_and_a_failure_is_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    record = ledger_record(runs=(run_of("orders", 5), run_of("clicks", 2), run_of("orders", 3)))
    FlowFeed(metrics, FLOW, now=lambda: NOON).committed([record, record])
    found = metrics.registry.get_sample_value("mirrorlake_republished_records_total", {"flow": FLOW, "topic": "orders"})
    assert found == 16
    with caplog.at_level(logging.ERROR):
        FlowFeed(metrics, FLOW, now=lambda: NOON).committed([SimpleNamespace()])  # type: ignore[list-item]
    assert "metrics.failed" in caplog.text


def test_what_is_parked_has_a_series_until_it_is_over() -> None:
    metrics = Metrics()
    labels = {"stream": f"republish {FLOW}", "error": "TopicConflict", "retried": "false"}
    metrics.parked({FLOW: Parked(stream=FLOW, since=NOON, error="TopicConflict", cause="x")})
    assert metrics.registry.get_sample_value("mirrorlake_stream_parked", labels) == 1
    metrics.parked({})
    assert metrics.registry.get_sample_value("mirrorlake_stream_parked", labels) is None


def test_a_look_that_fails_is_counted_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    metrics, answers, done = Metrics(), iter([OSError("away"), OSError("away"), figures()]), threading.Event()

    def look() -> Figures:
        answer = next(answers, None)
        if answer is None:
            done.set()
            return figures()
        if isinstance(answer, Exception):
            raise answer
        return answer

    with caplog.at_level(logging.WARNING):
        feed = MetricsFeed(metrics, look, every_s=0.001).start()
        assert done.wait(20)
        feed.stop()
    assert caplog.text.count("metrics.failed") == 1
    assert metrics.registry.get_sample_value("mirrorlake_metrics_failures_total") == 2
    assert metrics.registry.get_sample_value("mirrorlake_rpo_seconds", {"flow": FLOW}) == 21


# -- the server --------------------------------------------------------------------------------------------------------


def test_it_listens_on_the_loopback_and_leaves_its_port_when_it_stops() -> None:
    server = MetricsServer(CollectorRegistry(), port=0).start()
    assert server._server is not None
    assert server._server.server_address[0] == "127.0.0.1"
    port, held = server.port, server._server.socket
    server.stop()
    assert held.fileno() == -1
    again = MetricsServer(CollectorRegistry(), port=port).start()
    assert (again.port, again._server is not None) == (port, True)
    again.stop()


def test_a_port_that_is_taken_is_said_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with caplog.at_level(logging.WARNING):
            server = MetricsServer(CollectorRegistry(), port=taken.getsockname()[1]).start()
        assert "metrics.not_served" in caplog.text
        server.stop()


# -- settings and docs -------------------------------------------------------------------------------------------------


def test_metrics_are_off_and_on_the_loopback_unless_the_settings_say_otherwise() -> None:
    assert mirror_config().metrics == MetricsConfig()
    assert (MetricsConfig().port, MetricsConfig().address) == (None, "127.0.0.1")
    given = {"port": 9464, "address": "0.0.0.0", "per_partition": False}  # noqa: S104  a setting
    chosen = mirror_config(metrics={**given, "every": "30s"}).metrics
    assert {name: getattr(chosen, name) for name in given} == given


def test_the_page_of_metrics_names_every_metric_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = {cell.strip("` ") for line in page.splitlines() if line.startswith("| `") for cell in [line.split("|")[1]]}
    metrics = Metrics()
    metrics.show(figures())
    known: Mapping[str, str] = {family.name: family.type for family in metrics.registry.collect()}
    assert named == {name + ("_total" if kind == "counter" else "") for name, kind in known.items()}


# -- a mirror that is measured ----------------------------------------------------------------------------------------


class Streams:
    """Spark's streams as far as metrics touch them, and a session that fails where it is told to."""

    def __init__(self, *, fails: str = "") -> None:
        self.listeners: list[object] = []
        self._fails = fails

    def addListener(self, listener: object) -> None:  # noqa: N802  Spark's name
        if self._fails == "start":
            raise RuntimeError("no listener here")
        self.listeners.append(listener)

    def removeListener(self, listener: object) -> None:  # noqa: N802  Spark's name
        if self._fails == "stop":
            raise RuntimeError("the session is gone")
        self.listeners.remove(listener)


def context_of(streams: Streams, **metrics: int) -> Context:
    spark: Any = SimpleNamespace(streams=streams)
    return Context(mirror_config(metrics=metrics), spark=spark, now=lambda: NOON, display=lambda: None)


@pytest.fixture(autouse=True)
def _any_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrorlake.runtime.prepare", lambda spark: spark)


def test_without_a_port_nothing_is_started() -> None:
    streams = Streams()
    made = context_of(streams)
    with measured(made, port=None):
        assert made.metrics is None
        assert streams.listeners == []


@pytest.mark.parametrize("when", ["start", "stop"])
def test_a_failure_of_the_metrics_is_said_and_stops_no_mirror(when: str, caplog: pytest.LogCaptureFixture) -> None:
    ran = False
    with caplog.at_level(logging.ERROR), measured(context_of(Streams(fails=when)), port=free_ports(1)[0]):
        ran = True
    assert ran
    assert f"metrics.failed what={when}" in caplog.text


def test_a_failure_of_the_mirror_is_the_mirrors() -> None:
    with pytest.raises(KeyError), measured(context_of(Streams()), port=free_ports(1)[0]):
        raise KeyError("orders")


def probe(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        return refused.code, json.load(refused)


def test_a_probe_hears_whether_the_streams_that_run_make_turns() -> None:
    metrics, now = Metrics(), [0.0]
    metrics.health = health = Health(patience_s=60, clock=lambda: now[0])
    server = MetricsServer(metrics.registry, port=0, health=health).start()
    try:
        assert probe(server.port)[0] == 503, "nothing has been started"
        metrics.running(["land east", FLOW])
        assert probe(server.port)[0] == 503, "nothing has made a turn"
        metrics.landed("east", records=5, seconds=None, at=0.0)
        metrics.looked(f"republish {FLOW}", at=0.0)
        assert probe(server.port) == (
            200,
            {"live": True, "streams": ["land east", f"republish {FLOW}"], "problems": []},
        )
        now[0] = 70.0
        metrics.running(["land east", FLOW])
        metrics.landed("east", records=0, seconds=None, at=70.0)
        status, said = probe(server.port)
        assert (status, said["problems"]) == (503, [f"republish {FLOW} has made no turn for 1 min 10 s"])
        # A flow that is paused or parked is nothing that a new start would mend.
        metrics.running(["land east"])
        assert probe(server.port)[0] == 200
        # What is told to wait for an hour between two batches is given that hour.
        metrics.running(["land east"], pause_s=3600)
        now[0] = 3700.0
        metrics.running(["land east"], pause_s=3600)
        assert probe(server.port)[0] == 200
        now[0] = 70.0
        # One that is resumed is given its time again.
        metrics.running(["land east", FLOW])
        assert probe(server.port)[0] == 200
        metrics.republished(FLOW, {"orders": 1})
        now[0] = 200.0
        assert "nobody has looked" in probe(server.port)[1]["problems"][0], "the supervisor itself hangs"
        assert scrape(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        server.stop()


@pytest.mark.law("E")
def test_law_e_losses_and_quarantine_are_counted_from_0_so_that_the_first_one_is_an_increase(
    built: LakeBuilder,
) -> None:
    def nothing_yet(*_: Any, **__: Any) -> Any:
        raise UsageError("nothing was sampled")

    flows = [SimpleNamespace(name=FLOW, source="east")]
    lag: Any = SimpleNamespace(flows=flows, verdict=nothing_yet, query_latency=nothing_yet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mirrorlake.lag.figures.proven_until", lambda *_: {})
        found = measure(built.lake, lag, now=lambda: NOON)
        assert set(found.gaps.values()) == {0}
        assert {"expired", "truncated", "recreated"} <= {kind for _, kind in found.gaps}
        assert found.withheld == {(FLOW, "filtered"): 0, (FLOW, "quarantined"): 0}
        built.add("gaps", first_offset=0, last_offset=4, missing=5, kind="expired")
        assert measure(built.lake, lag, now=lambda: NOON).gaps["east", "expired"] == 5
