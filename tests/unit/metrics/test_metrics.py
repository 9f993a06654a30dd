"""Metrics: what a scrape reads is what the figures say, bounded, and no failure in here reaches a stream."""

from __future__ import annotations

import json
import logging
import re
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mirrorlake.config.schema.background import MetricsConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.parked import Parked
from mirrorlake.sandbox.ports import free_ports
from mirrorlake.status import Monitor, serving_metrics
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.metrics import (
    METRICS,
    Health,
    Metrics,
    Values,
    batch_listener,
    figures_reader,
    measure,
    start_server,
)
from mirrorlake.status.verdict import NEVER, HopKey, LagSample, Verdict
from tests.builders import NOON, hop_place, judged, ledger_record, mirror_config, run, sample
from tests.kit.lake import LakeBuilder

FLOW = "east->central"
SENDING = f"republish {FLOW}"


class Scraped:
    """What a scrape reads."""

    def __init__(self, metrics: Metrics) -> None:
        families = text_string_to_metric_families(generate_latest(metrics).decode())  # type: ignore[arg-type]
        self.samples = [sample for family in families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float | None:
        return next((one.value for one in self.samples if (one.name, one.labels) == (name, labels)), None)

    def of(self, name: str) -> list[dict[str, str]]:
        return [one.labels for one in self.samples if one.name == name]


def counting(**options: Any) -> Metrics:
    return Metrics(now=lambda: NOON, **options)


def shown(*reads: Figures, **options: Any) -> Scraped:
    metrics = counting(**options)
    for figures in reads:
        metrics.show(*figures)
    return Scraped(metrics)


Figures = tuple[LagVerdict, Values]


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
    return (
        judged(windows, retention_ms=3_600_000),
        {
            ("mirrorlake_metrics_timestamp_seconds", ()): moments[-1].timestamp(),
            ("mirrorlake_replication_latency_seconds", (FLOW, "orders", "0.95")): 1.5,
            ("mirrorlake_gap_offsets", ("east", "compacted")): 7,
            ("mirrorlake_withheld_records", (FLOW, "quarantined")): 3,
        },
    )


def test_a_scrape_reads_what_the_figures_say() -> None:
    scraped = shown(figures())
    hop = {"flow": FLOW, "cluster_name": "east", "topic": "orders", "partition": "1", "hop": "republished"}
    group = {"cluster_name": "central", "group": "billing", "topic": "orders", "partition": "1", "flow": FLOW}
    whole = {"cluster_name": "central", "group": "billing", "flow": FLOW}
    for expected, name, labels in [
        (20, "mirrorlake_offset_lag", hop),
        (21, "mirrorlake_time_lag_seconds", hop),
        (90, "kafka_consumergroup_group_lag", group),
        (21, "kafka_consumergroup_group_lag_seconds", group),
        (Verdict.STALL, "kafka_consumergroup_group_verdict", group),
        (21, "kafka_consumergroup_group_max_lag_seconds", whole),
        (0, "mirrorlake_verdict", {"flow": FLOW, "verdict": "STALL"}),
        (1, "mirrorlake_verdict", {"flow": FLOW, "verdict": "OK"}),
        (0, "mirrorlake_retention_at_risk", {"flow": FLOW}),
        (3579, "mirrorlake_retention_left_seconds", {"flow": FLOW, "hop": "consumed"}),
        (20, "mirrorlake_catch_up_seconds", {"flow": FLOW}),
        (21, "mirrorlake_rpo_seconds", {"flow": FLOW}),
        (1.5, "mirrorlake_replication_latency_seconds", {"flow": FLOW, "topic": "orders", "quantile": "0.95"}),
        (7, "mirrorlake_gap_offsets", {"source": "east", "kind": "compacted"}),
        (3, "mirrorlake_withheld_records", {"flow": FLOW, "kind": "quarantined"}),
        ((NOON + timedelta(seconds=20)).timestamp(), "mirrorlake_metrics_timestamp_seconds", {}),
    ]:
        assert scraped.value(name, **labels) == expected, name
    lag, values = figures()
    scraped = shown((replace(lag, hops=tuple(replace(hop, eta_ms=NEVER) for hop in lag.hops)), values))
    assert scraped.value("mirrorlake_catch_up_seconds", flow=FLOW) == float("inf"), "never"


def test_what_is_gone_or_not_known_has_no_series() -> None:
    lag, _ = figures()
    [first, second, *_] = lag.hops
    unknown = replace(first, last=first.last._replace(offset_lag=None, time_lag_ms=None))
    assert first.key.hop == second.key.hop == "consumed"
    scraped = shown(figures(), (replace(lag, hops=(unknown, second)), {}))
    assert (scraped.of("mirrorlake_gap_offsets"), scraped.of("mirrorlake_offset_lag")) == ([], [])
    assert [len(scraped.of(f"kafka_consumergroup_group_{name}")) for name in ("verdict", "lag")] == [2, 1]
    assert not scraped.of("kafka_consumergroup_group_max_lag_seconds"), "one left out would look better than it is"
    late = replace(lag, hops=(), status=replace(lag.status, observed_at=lag.status.observed_at - timedelta(seconds=1)))
    scraped = shown(figures(), (late, {}))
    assert len(scraped.of("mirrorlake_offset_lag")) == 4, "a look that took longer does not hide a newer one"
    back = replace(late, status=replace(lag.status, observed_at=lag.status.observed_at - timedelta(hours=1)))
    assert not shown(figures(), (back, {})).of("mirrorlake_offset_lag"), "the clock was set back"


def test_the_number_of_series_is_bounded_and_the_worst_stay(caplog: pytest.LogCaptureFixture) -> None:
    scraped = shown(figures(partitions=5), per_partition=False)
    assert {one.labels.get("partition", "") for one in scraped.samples} == {""}
    place = {"flow": FLOW, "cluster_name": "east", "topic": "orders", "partition": "", "hop": "republished"}
    assert scraped.value("mirrorlake_offset_lag", **place) == 100
    assert scraped.value("mirrorlake_time_lag_seconds", **place) == 24
    assert scraped.value("mirrorlake_verdict", flow=FLOW, verdict="OK") == 1, "a group is no flow"
    scraped = shown(figures(partitions=5), figures(partitions=5), max_series=4)
    assert len(scraped.of("kafka_consumergroup_group_lag")) == 4, "the groups stand still"
    assert caplog.text.count("metrics.left_out series=11") == 1


def test_names_of_others_are_labels_and_nothing_else() -> None:
    evil = 'a"} 1\nevil{x="'
    scraped = shown(figures(group=evil))
    assert {labels["group"] for labels in scraped.of("kafka_consumergroup_group_lag")} == {evil}
    assert not [one for one in scraped.samples if one.name.startswith("evil")]


def test_the_page_of_metrics_names_every_metric_with_its_labels_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", page, re.M)
    named = {name: tuple(filter(None, map(str.strip, labels.split(",")))) for name, labels in rows}
    assert named == {name: labels for name, (_, labels) in METRICS.items()}
    assert len(named) == 25
    types = set(re.findall(r"^# TYPE (\w+) ", generate_latest(counting()).decode(), re.M))  # type: ignore[arg-type]
    assert types == named.keys(), "also before the first read"


# -- what streams tell ------------------------------------------------------------------------------------------------


def test_batches_are_counted_by_the_names_of_their_queries() -> None:
    metrics = counting()
    listener = batch_listener(metrics)
    listener.onQueryStarted(SimpleNamespace(id="7", name=SENDING))
    for name, rows in [("land east", 1000), ("land east", 500), (None, 9), ("", 9), ("somebody else's", 9)]:
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(name=name, numInputRows=rows)))
    assert Scraped(metrics).of("mirrorlake_last_success_timestamp_seconds") == [{"stream": "land east"}]
    for name in ("7", "not known"):
        listener.onQueryIdle(SimpleNamespace(id=name))
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(name="republish late", numInputRows=9)))
    scraped = Scraped(metrics)
    assert scraped.value("mirrorlake_landed_records_total", source="east") == 1500
    assert scraped.value("mirrorlake_last_success_timestamp_seconds", stream=SENDING) == NOON.timestamp()
    assert len(scraped.of("mirrorlake_last_success_timestamp_seconds")) == 3


def test_live_streams_count_records_and_a_failure_to_count_is_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    metrics = counting()
    runs = [("orders", 5), ("clicks", 2), ("orders", 3)]
    record = ledger_record(runs=tuple(run(0, n - 1, source=SourcePartition(topic, 1, 0)) for topic, n in runs))
    sending, landing = metrics.flow_listener(FLOW), metrics.land_listener("east")
    sending.committed([record, record])
    sending.polled()
    landing.landed(7)
    scraped = Scraped(metrics)
    assert scraped.value("mirrorlake_republished_records_total", flow=FLOW, topic="orders") == 16
    assert scraped.value("mirrorlake_landed_records_total", source="east") == 7
    for stream in (SENDING, "land east"):
        assert scraped.value("mirrorlake_last_success_timestamp_seconds", stream=stream) == NOON.timestamp()
    with caplog.at_level(logging.ERROR):
        sending.committed([SimpleNamespace()])  # type: ignore[list-item]
    assert "metrics.failed" in caplog.text


def test_what_is_parked_has_a_series_until_it_is_over() -> None:
    metrics = counting()
    metrics.parked({FLOW: Parked(stream=FLOW, since=NOON, error="TopicConflict", cause="x")})
    labels = {"stream": SENDING, "error": "TopicConflict", "retried": "false"}
    assert Scraped(metrics).value("mirrorlake_stream_parked", **labels) == 1
    metrics.parked({})
    assert Scraped(metrics).of("mirrorlake_stream_parked") == []


@pytest.mark.law("E")
def test_law_e_losses_and_quarantine_are_counted_from_0_so_that_the_first_one_is_an_increase(
    built: LakeBuilder,
) -> None:
    def nothing_yet(*_: Any, **__: Any) -> Any:
        raise UsageError("nothing was sampled")

    flows = [SimpleNamespace(name=FLOW, source="east")]
    lag: Any = SimpleNamespace(flows=flows, latency=nothing_yet)
    values = measure(built.lake, lag, at=NOON)
    assert values.pop(("mirrorlake_metrics_timestamp_seconds", ())) == NOON.timestamp()
    assert set(values.values()) == {0}
    kinds = {(place, kind) for _, (place, kind) in values}
    assert {("east", kind) for kind in ("expired", "truncated", "recreated")} <= kinds
    assert {(FLOW, "filtered"), (FLOW, "quarantined")} <= kinds
    built.add("gaps", first_offset=0, last_offset=4, missing=5, kind="expired")
    values = measure(built.lake, lag, at=NOON)
    assert values["mirrorlake_gap_offsets", ("east", "expired")] == 5


# -- the server -------------------------------------------------------------------------------------------------------


def probe(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        return refused.code, json.load(refused)


def test_a_probe_hears_whether_the_streams_that_run_make_turns() -> None:
    metrics, now = counting(), [0.0]
    metrics.health = Health(clock=lambda: now[0])
    server = start_server(metrics, address="127.0.0.1", port=0)
    assert server is not None
    port = server.server_port
    try:
        assert probe(port)[0] == 503, "nothing has been started"
        metrics.running(["land east", FLOW, "table sales"])
        assert probe(port)[0] == 503, "nothing has made a turn"
        metrics.turned("land east", landed=5)
        metrics.turned(SENDING)
        assert probe(port) == (200, {"live": True, "streams": ["land east", SENDING], "problems": []})
        now[0] = 910.0
        metrics.running(["land east", FLOW, "table sales"])
        metrics.turned("land east")
        status, document = probe(port)
        assert (status, document["problems"]) == (503, [f"{SENDING} has made no turn for 15 min 10 s"])
        # A flow that is paused or parked is nothing that a new start would mend.
        metrics.running(["land east"])
        assert probe(port)[0] == 200
        # What is told to wait for an hour between two batches is given that hour.
        now[0] = 4600.0
        metrics.running(["land east"], pause_s=3600)
        assert probe(port)[0] == 200
        # One that is resumed is given its time again.
        metrics.running(["land east", FLOW], pause_s=3600)
        assert probe(port)[0] == 200
        now[0] = 4800.0
        assert "nobody has looked" in probe(port)[1]["problems"][0], "the supervisor itself hangs"
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"# TYPE mirrorlake_offset_lag gauge" in answer.read()
    finally:
        server.shutdown()
        server.server_close()


def test_metrics_are_off_and_on_the_loopback_unless_the_settings_say_otherwise() -> None:
    assert mirror_config().metrics == MetricsConfig()
    assert (MetricsConfig().port, MetricsConfig().address) == (None, "127.0.0.1")
    given = {"port": 9464, "address": "0.0.0.0", "per_partition": False}  # noqa: S104  a setting
    chosen = mirror_config(metrics={**given, "every": "30s"}).metrics
    assert {name: getattr(chosen, name) for name in given} == given


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


def context_of(streams: Streams) -> Context:
    spark: Any = SimpleNamespace(streams=streams)
    return Context(mirror_config(), spark=spark, now=lambda: NOON, display=lambda: None)


@pytest.fixture(autouse=True)
def _any_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrorlake.runtime.prepare", lambda spark: spark)


@pytest.mark.parametrize("when", ["start", "stop"])
def test_a_failure_of_the_metrics_is_said_and_stops_no_mirror(when: str, caplog: pytest.LogCaptureFixture) -> None:
    ran = False
    with caplog.at_level(logging.ERROR), serving_metrics(context_of(Streams(fails=when)), port=free_ports(1)[0]):
        ran = True
    assert ran
    assert f"metrics.failed what={when}" in caplog.text


def test_a_port_that_is_taken_is_said_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken, caplog.at_level(logging.WARNING):
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with serving_metrics(context_of(Streams()), port=taken.getsockname()[1]):
            assert "metrics.not_served" in caplog.text


def test_a_read_that_fails_is_counted_and_the_figures_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    [verdict, values] = figures()
    metrics, answers = counting(), iter([values, OSError("away")])

    def measured(*_: Any, **__: Any) -> Values:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("mirrorlake.status.metrics.measure", measured)
    monkeypatch.setattr(Monitor, "make_newest_reader", lambda _: lambda: verdict)
    read = figures_reader(context_of(Streams()), metrics)
    read()
    assert Scraped(metrics).value("mirrorlake_metrics_failures_total") == 0
    with pytest.raises(OSError, match="away"):
        read()
    scraped = Scraped(metrics)
    assert scraped.value("mirrorlake_metrics_failures_total") == 1
    assert scraped.value("mirrorlake_rpo_seconds", flow=FLOW) == 21
