"""What a mirror tells of itself: every lag exactly, one verdict in every view, metrics, events, and progress of real work."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from mlflow import MlflowClient
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import mirrorlake as ml
from mirrorlake.sandbox import KafkaCluster, start_all
from tests.kit.commands import ports, told
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import commit, count, new_topic, produce
from tests.servers.lakes import MakeMirror, Pair

CENTRAL, WEST = "east->central", "east->west"
ALERTS = yaml.safe_load((Path(__file__).parents[2] / "conf/prometheus/alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


def milliseconds(time: datetime) -> int:
    return int(time.astimezone(timezone.utc).timestamp() * 1000)


@pytest.mark.law("E")
def test_law_e_what_is_sampled_tells_the_lag_of_every_hop_exactly(pair: Pair) -> None:
    topic = pair.topic
    pair.create(20, partitions=1)
    mirror = pair.mirror(sync={"groups": False})
    mirror.run(once=True)
    billing, audit = f"billing-{topic}", f"audit-{topic}"
    commit(pair.east, billing, topic, {0: 5})
    commit(pair.central, audit, pair.remote, {0: 8})
    waiting = {("landed", None): 20, ("republished", None): 20, ("consumed", billing): 5, ("consumed", audit): 8}

    first = mirror.sample()
    subjects = {("cluster", "east"), ("cluster", "central"), ("relay", "east"), ("flow", CENTRAL)}
    assert {(look.subject, look.name) for look in first.looks if look.complete} == subjects
    pair.produce(10, seed=2)
    second = mirror.sample()
    assert (second.changed, second.unanswered) == (1, ()), "only the end of the source has moved"
    stamps = [record.timestamp for record in pair.source()[0]]
    # On a clock that stands still both answers are of one moment, with the same numbers.
    now = datetime.now(timezone.utc)
    still = ml.Mirror(mirror.config, spark=mirror.spark, now=lambda: now)
    fresh = {(row.hop, row.group_id): row for row in still[CENTRAL].lag.now().collect() if row.topic == topic}
    [status] = still.status(CENTRAL)[CENTRAL]
    for hop, position in waiting.items():
        assert (fresh[hop].position, fresh[hop].end_position, fresh[hop].offset_lag) == (position, 30, 30 - position)
        assert milliseconds(fresh[hop].waiting_since) == stamps[position], f"{hop}: read from where it is"
    sent = fresh["republished", None]
    assert (status.landed, status.republished, status.source_end) == (20, 20, 30)
    assert (status.offset_lag, status.time_lag_ms) == (sent.offset_lag, sent.time_lag_ms)

    mirror.run(once=True)
    third, idle = mirror.sample(), mirror.sample()
    changed = "SELECT kind FROM positions WHERE observed_at = :at ORDER BY kind"
    kinds = mirror.query(changed, at=third.observed_at)["kind"].to_pylist()
    assert (kinds, idle.changed) == (["reached", "republished"], 0)
    moment = milliseconds(second.observed_at)
    rows = [row for row in mirror.lag.over(since="1h").collect() if row.topic == topic]
    known = {(milliseconds(row.observed_at), row.hop, row.group_id): row for row in rows}
    assert len(known) == len(rows) == 4 * 4
    for (hop, group), position in waiting.items():
        row = known[moment, hop, group]
        assert (row.position, row.offset_lag) == (position, 30 - position)
        assert milliseconds(row.waiting_since) == stamps[position], f"{hop} {group}: by its own timestamp"
        assert row.time_lag_ms == max(0, moment - stamps[position])
    for hop in ("landed", "republished"):
        row = known[milliseconds(idle.observed_at), hop, None]
        assert (row.offset_lag, row.waiting_since, row.time_lag_ms) == (0, None, 0), "an idle topic is not behind"
    buckets = mirror[CENTRAL].lag.latency(since="1h", bucket="1h").collect()
    runs = mirror.query("SELECT first_upstream, last_upstream, committed_at FROM offset_map").to_pylist()
    slowest = max(
        milliseconds(run["committed_at"]) - stamps[offset]
        for run in runs
        for offset in range(run["first_upstream"], run["last_upstream"] + 1)
    )
    assert (sum(row.records for row in buckets), max(row.max_ms for row in buckets)) == (30, slowest)
    [then] = mirror.lag.at(billing, second.observed_at).collect()
    assert (then.position, then.cluster, then.end_position) == (5, "east", 30)
    assert not len(mirror.query("SELECT * FROM gaps")), "law E: samples do not touch the accounts of landing"


def test_a_cluster_that_does_not_answer_is_told_and_waited_for_once(
    central: KafkaCluster, east: KafkaCluster, make_mirror: MakeMirror
) -> None:
    topic, away = new_topic(east, 3, partitions=1), SimpleNamespace(bootstrap_servers="127.0.0.1:1")
    flows = [{"source": source, "target": "central", "topics": topic} for source in ("east", "west")]
    mirror = make_mirror({"east": east, "west": away, "central": central}, flows)
    [west] = mirror.sample().unanswered
    assert ((west.subject, west.name), "west" in (west.error or "")) == (("cluster", "west"), True)
    again = mirror.sample()
    [west] = again.unanswered
    assert (west.name, west.took_ms, again.changed) == ("west", 0, 0), "the others do not wait for it"
    known = mirror.query("SELECT DISTINCT source, topic FROM positions WHERE kind = 'last_stable'").to_pylist()
    assert known == [{"source": "east", "topic": topic}]


class Seen(NamedTuple):
    """What a view says of a flow; a lag of None is not known."""

    verdict: str
    offset_lag: int | None = None


class Lines:
    """A display of `run` that keeps the facts of its lines."""

    def __init__(self) -> None:
        self.facts: list[Any] = []
        self.threads: set[int] = set()
        self.phases: dict[str, list[tuple[int, int | None]]] = {}

    def say(self, said: Any) -> None:
        self.facts.append(said.facts)

    def show(self, phases: Any, *_: object) -> None:
        self.threads.add(threading.get_ident())
        for phase in phases:
            self.phases.setdefault(phase.name, []).append((phase.done, phase.total))

    close = show


def agreed(mirror: ml.Mirror, code: int = 0) -> dict[str, Seen]:
    """Return what `status` says of the flows, and assert that the other views say the same."""
    conf = str(mirror.config.path)
    flows = {flow["flow"]: flow for flow in told("status", "--conf", conf, code=code)["flows"]}
    lags = {name: sum(row["offset_lag"] for row in flow["partitions"]) for name, flow in flows.items()}
    status, verdict = mirror.status(), mirror.lag.verdict()
    for name, flow in flows.items():
        assert (status[name].verdict, verdict.flows[name].name) == (flow["verdict"], flow["verdict"])
        word = flow["verdict"].replace("_", " ")
        for face in (str(status[name]), str(mirror[name].status()), re.sub("<[^>]*>", "", status._repr_html_())):
            assert word in face
    return {name: Seen(flow["verdict"], None if flow["unknown"] else lags[name]) for name, flow in flows.items()}


def served(port: str) -> str:
    """Return what a scrape gets, "" where nothing answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return str(answer.read().decode())
    except (URLError, ConnectionError):
        return ""


def scraped(port: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a scrape by name and by what tells them apart."""
    names = ("flow", "hop", "stream", "verdict", "kind")
    return {
        (one.name, *(one.labels[name] for name in names if name in one.labels)): one.value
        for family in text_string_to_metric_families(served(port))
        for one in family.samples
        if "le" not in one.labels
    }


def outage(mirror: ml.Mirror) -> Any:
    """Return the outage of central, or None before it is known."""
    away = [event for event in mirror.events("1h") if event.kind == "cluster away"]
    assert len(away) <= 1, "one outage is one event"
    return away[0] if away else None


@pytest.mark.law("E")
def test_law_e_every_view_says_the_same_of_a_backlog_a_pause_a_restart_and_clusters_that_are_away(
    make_cluster: Callable[..., KafkaCluster],
    west: KafkaCluster,
    make_mirror: MakeMirror,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "line_interval_s=2,first_sample_s=1")
    east, central = start_all([make_cluster("east"), make_cluster("central")])
    topic, port = new_topic(east, 20, partitions=1), ports(1)[0]
    flows: list[dict[str, Any]] = [
        {"source": "east", "target": target, "topics": topic, "sync": {"groups": False, "configs": False}}
        for target in ("central", "west")
    ]
    conf = Path(str(make_mirror({"east": east, "central": central, "west": west}, flows).config.path))
    lines, group = Lines(), f"audit-{topic}"

    def load() -> ml.Mirror:
        """Return the mirror as another process has it: clients that knew the broker wait for it."""
        return ml.load(conf, spark=spark, display=lambda: lines)

    mirror = load()
    mirror.land("east", once=True)
    mirror.republish(CENTRAL, once=True)
    commit(central, group, f"east.{topic}", {0: 8})
    # As if somebody had looked before.
    for age_s in (90, 60, 30):
        at = datetime.now(timezone.utc) - timedelta(seconds=age_s)
        ml.Mirror(mirror.config, spark=spark, now=lambda at=at: at).sample()
    behind = {CENTRAL: Seen("OK", 0), WEST: Seen("STALL", 20)}
    assert agreed(mirror) == behind, "of a flow that never began, nothing moves"
    hops = {(hop.key.flow, hop.key.hop, hop.key.group_id): hop for hop in mirror.lag.verdict().hops}
    reader = hops[CENTRAL, "consumed", group]
    assert (reader.verdict.name, reader.retention.at_risk) == ("STALL", True), "it stands still, and its topic ends"

    for flow in (CENTRAL, WEST):
        mirror.pause(flow=flow, reason="a drill")
    paused = {CENTRAL: Seen("PAUSED", 0), WEST: Seen("PAUSED", 20)}
    assert agreed(mirror) == paused, "also where nothing waits"
    assert "is paused by" in mirror.status()[WEST].reason
    mirror.resume(flow=WEST)

    more = {"metrics": {"port": int(port), "every": "5s"}, "sampling": {"every": "2s"}}
    conf.write_text(json.dumps({**json.loads(conf.read_text()), **more}))
    mirror = load()
    with staying_on(mirror) as failures:

        def until(target: KafkaCluster, records: int, what: str) -> None:
            wait_until(lambda: failures or count(target, f"east.{topic}") == records, what)
            assert not failures

        until(west, 20, "the flow that was resumed sends")
        produce(east, topic, 10, partitions=1, seed=2)
        until(west, 30, "it goes on")
        mirror.resume(flow=CENTRAL)
        until(central, 30, "its stream starts")
        mirror.pause(flow=CENTRAL)
        wait_until(lambda: mirror.status()[CENTRAL].state == "paused", "it is paused")
        produce(east, topic, 10, partitions=1, seed=3)
        until(west, 40, "the other goes on")
        mirror.resume(flow=CENTRAL)
        until(central, 40, "it started again")
        wait_until(lambda: mirror.progress().landed[0].records == 20, "landing has told all it did")
        assert agreed(mirror) == {CENTRAL: Seen("OK", 0), WEST: Seen("OK", 0)}

        def has_caught_up() -> dict[tuple[str, ...], float]:
            assert not failures
            series = scraped(port)
            lags = [series.get(("mirrorlake_offset_lag", flow, "republished")) for flow in (CENTRAL, WEST)]
            return series if (*lags, lines.facts[-1].get("verdict")) == (0, 0, "OK") else {}

        series = wait_until(has_caught_up, "metrics and the line of `run` say the same")
        for flow, records in ((CENTRAL, 20), (WEST, 40)):
            assert series["mirrorlake_verdict", flow, "OK"] == 1
            assert series["mirrorlake_republished_records_total", flow] == records
            assert series["mirrorlake_last_success_timestamp_seconds", f"republish {flow}"] > 0
            assert series["mirrorlake_withheld_records", flow, "quarantined"] == 0
        assert series["mirrorlake_metrics_failures_total",] == 0
        text = served(port)
        for rule in RULES:
            for name in re.findall(r"(?:mirrorlake|kafka)_\w+", rule["expr"]):
                assert f"# TYPE {name} " in text, rule["alert"]

        stopped_at = datetime.now(timezone.utc)
        central.stop()
        produce(east, topic, 10, partitions=1, seed=4)
        wait_until(lambda: failures or ((away := outage(mirror)) and away.is_open), "it is an event while it lasts")
        central.restart()
        until(central, 50, "it goes on where it was")
        wait_until(lambda: failures or not outage(mirror).is_open, "the outage is over")
        restarted_at = datetime.now(timezone.utc)
    assert not scraped(port), "the port is free when the mirror has ended"
    away, events = outage(mirror), mirror.events("1h")
    assert (away.subject, "central" in away.why) == ("central", True)
    assert stopped_at - timedelta(minutes=1) <= away.at < away.until <= restarted_at
    pauses = [event for event in events if event.kind == "paused"]
    assert [(event.flow, event.why) for event in pauses] == [(CENTRAL, "a drill"), (WEST, "a drill"), (CENTRAL, "")]
    assert all("@" in event.who and event.until is not None for event in pauses)
    said = told("events", "--since", "1h", "--conf", str(conf))["events"]
    assert [(one["kind"], one["at"]) for one in said] == [(event.kind, event.as_dict()["at"]) for event in events]
    ran = {one.flow: one.records for one in mirror.progress().republished}
    assert ran == {CENTRAL: 30, WEST: 50}, "a run counts what its streams did before they started again"
    assert mirror.verify().equal

    central.kill()
    mirror = load()
    away = {CENTRAL: Seen("CLUSTER_AWAY"), WEST: Seen("OK", 0)}
    assert agreed(mirror, code=4) == away, "the others are shown"
    assert "its last answer was at" in mirror.status()[CENTRAL].reason
    east.kill()
    assert agreed(load(), code=4) == {CENTRAL: Seen("CLUSTER_AWAY"), WEST: Seen("CLUSTER_AWAY")}


def test_what_is_told_of_work_is_what_was_done_and_only_the_caller_s_thread_draws_it(
    pair: Pair, spark: SparkSession, database: Path
) -> None:
    pair.create(120)
    pair.mirror(east={"land": {"max_records_per_batch": 40, "execution": "streaming"}})
    conf, lines = Path(pair.conf), Lines()
    tracking = {"uri": f"sqlite:///{database}"}
    conf.write_text(json.dumps({**json.loads(conf.read_text()), "tracking": tracking}))
    mirror = ml.load(conf, spark=spark, display=lambda: lines)
    mirror.run(once=True)
    pair.produce(10, seed=2)
    mirror.run(once=True)
    assert mirror.verify().equal
    ends = {phase: told_of[-1] for phase, told_of in lines.phases.items()}
    assert (ends["land east"], ends[f"republish {CENTRAL}"]) == ((10, 10), (10, 10))
    for hop in ("verify: source and relay", "verify: relay and target"):
        assert ends[hop] == (130, 130), "what the verdict counts"
    assert (120, 120) in lines.phases["land east"]
    assert lines.threads == {threading.get_ident()}

    # What a verification found is a run, and the audit names it.
    store = MlflowClient(tracking_uri=tracking["uri"])
    [run] = store.search_runs([one.experiment_id for one in store.search_experiments()])
    assert [run.data.metrics[name] for name in ("equal", "verified", "offset_lag")] == [1, 130, 0]
    rows = mirror.query("SELECT object, after FROM audit WHERE command = 'verify'").to_pylist()
    assert [(row["object"], json.loads(row["after"])["run_id"]) for row in rows] == [
        (f"verification {CENTRAL}", run.info.run_id)
    ]
