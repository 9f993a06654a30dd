"""Every view of a mirror says the same at one moment: a backlog, a pause, a restart, a target and a source that are away."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.loading import load
from mirrorlake.events import Event, Events
from mirrorlake.lag import Monitor
from mirrorlake.lag.figures import measure
from mirrorlake.lag.sampler import Sampler
from mirrorlake.lag.verdict import Verdict
from mirrorlake.metrics.registry import Metrics
from mirrorlake.mirror import Mirror
from mirrorlake.mirror.run_lines import RunLines
from mirrorlake.notebook.console import console
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.sandbox.cluster import start_all
from tests.kit.commands import run_cli
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import count, new_topic, produce
from tests.servers.lakes import MakeMirror

CENTRAL, WEST = "east->central", "east->west"


class Seen(NamedTuple):
    """What one view says of a flow; a lag of None is not known, or not told by this view."""

    verdict: str
    offset_lag: int | None = None


def rows(html: str) -> dict[str, list[str]]:
    """Return the cells of tables by their first cell."""
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", html, re.S)]
    cells = [[re.sub(r"<[^>]*>", "", cell).replace("&gt;", ">").strip() for cell in row] for row in found]
    return {row[0]: row for row in reversed(cells) if row}


def word(text: str) -> str:
    """Return the word of the first badge of a text."""
    [first] = re.findall(r"[✓·!✗‖?] ([A-Z]+(?: [A-Z]+)*)", text)[:1]
    return str(first).replace(" ", "_")


def number(cell: str) -> int | None:
    return None if cell == "–" else int(cell.replace("\u202f", "").replace("\xa0", "").replace(" ", ""))


def by_status(mirror: Mirror) -> tuple[int, dict[str, Seen]]:
    told = run_cli("status", "--json", "--conf", str(mirror.config.path))
    flows = json.loads(told.stdout)["flows"]
    lags = {one["flow"]: sum(row["offset_lag"] for row in one["partitions"]) for one in flows}
    return told.returncode, {
        one["flow"]: Seen(one["verdict"], None if one["unknown"] else lags[one["flow"]]) for one in flows
    }


def by_metrics(mirror: Mirror) -> dict[str, Seen]:
    metrics, monitor = Metrics(per_partition=False), mirror._context.shared(Monitor)
    lag = monitor.lag(mirror.config.flows, status=monitor.statuses())
    figures = measure(mirror.lake, lag, now=mirror._context.now)
    metrics.show(figures)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    found = {}
    for flow in mirror.config.flows:
        names = {str(one.in_metrics.name) for one in Verdict}
        [verdict] = [name for name in names if value("mirrorlake_verdict", flow=flow.name, verdict=name)]
        place = {"cluster_name": "east", "topic": str(flow.topics), "partition": "", "hop": "republished"}
        lag = value("mirrorlake_offset_lag", flow=flow.name, **place)
        found[flow.name] = Seen(verdict, None if lag is None else int(lag))
        landed = value("mirrorlake_offset_lag", flow=flow.name, **{**place, "hop": "landed"})
        assert lag is None or landed is None or landed <= lag, "no more out than in"
    return found


def by_console(mirror: Mirror) -> tuple[dict[str, Seen], dict[str, Seen]]:
    """Return what Status and what Recovery of the console say."""
    recovered = {}
    with console(mirror) as made:
        asyncio.run(made.status.poller.once())
        cells = {row["key"]: row["cells"] for row in made.status.flows.rows}
        status = {
            flow: Seen(cells[flow]["verdict"]["text"].replace(" ", "_"), number(cells[flow]["offset_lag"]["text"]))
            for flow in (CENTRAL, WEST)
        }
        for flow in (CENTRAL, WEST):
            made.recovery.flow.value = flow
            asyncio.run(made.recovery.on_look())
            recovered[flow] = Seen(word(made.recovery.objectives.value))
        assert made.session.errors.errors == []
    return status, recovered


def by_line(mirror: Mirror) -> str:
    """Return the verdict of a line of `run`."""
    said: list[dict[str, Any]] = []
    lines = RunLines(mirror._context.board(), now=mirror._context.now)
    lines.say = lambda *_, **facts: said.append(facts)  # type: ignore[method-assign]
    lines.minute(mirror._context.shared(Monitor).statuses())
    return str(said[0]["verdict"])


def agreed(mirror: Mirror) -> tuple[int, dict[str, Seen]]:
    """Ask every view; return the exit code of `status`, and what all of them say of the flows."""
    code, told = by_status(mirror)
    words = {flow: seen.verdict for flow, seen in told.items()}
    status, recovery = by_console(mirror)
    assert status == told
    by_number = {flow: seen._replace(verdict=Verdict[seen.verdict].in_metrics.name) for flow, seen in told.items()}
    assert by_metrics(mirror) == by_number
    assert {flow: seen.verdict for flow, seen in recovery.items()} == words
    assert {name: one.name for name, one in mirror.lag.verdict().flows.items()} == words
    assert by_line(mirror) == mirror.status().verdict
    return code, told


def look_back(mirror: Mirror, *ages_s: int) -> None:
    """Sample as if somebody had looked so long ago."""
    now = datetime.now(timezone.utc)
    for age_s in ages_s:
        at = now - timedelta(seconds=age_s)
        Sampler(mirror._context, now=lambda at=at: at).once()


def outage(events: Events) -> Event:
    """Return the outage, or something that is none before it is known."""
    away = [event for event in events if event.kind == "cluster away"]
    assert len(away) <= 1, "one outage is one event"
    return away[0] if away else Event(at=events.end, until=events.end, kind="none", subject="")


def assert_told(mirror: Mirror, stopped_at: datetime, restarted_at: datetime) -> None:
    """Assert that events say of the outage and of the pauses from when to when, by whom and why."""
    events, late = mirror.events("1h"), timedelta(seconds=6)
    away = outage(events)
    assert away.subject == "central"
    assert "central" in away.why
    assert away.until is not None
    assert stopped_at - late <= away.at <= stopped_at + 2 * late
    assert away.at < away.until <= restarted_at
    paused = [event for event in events if event.kind == "paused"]
    assert [(event.flow, event.why) for event in paused] == [(CENTRAL, "a drill"), (WEST, "a drill"), (CENTRAL, "")]
    assert all("@" in event.who and event.until is not None and event.took() for event in paused)
    told = json.loads(run_cli("events", "--since", "1h", "--json", "--conf", str(mirror.config.path)).stdout)["events"]
    assert [(one["kind"], one["at"], one["seconds"]) for one in told] == [
        (event.kind, event.as_dict()["at"], event.seconds) for event in events
    ]


@pytest.mark.law("E")
def test_every_view_says_the_same_of_a_backlog_a_pause_a_restart_and_clusters_that_are_away(
    make_cluster: Callable[..., KafkaCluster],
    west: KafkaCluster,
    make_mirror: MakeMirror,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "line_interval_s=2")
    east, central = start_all([make_cluster("east"), make_cluster("central")])
    topic = new_topic(east, 20, partitions=1)
    flows: list[dict[str, Any]] = [
        {"source": "east", "target": target, "topics": topic, "sync": {"groups": False, "configs": False}}
        for target in ("central", "west")
    ]
    conf = Path(str(make_mirror({"east": east, "central": central, "west": west}, flows).config.path))
    mirror = Mirror(load(conf), spark=spark)
    mirror.land("east", once=True)
    mirror.republish(CENTRAL, once=True)
    look_back(mirror, 90, 60, 30)
    behind = {CENTRAL: Seen("OK", 0), WEST: Seen("STALL", 20)}
    assert agreed(mirror) == (0, behind), "of a flow that never began, nothing moves"
    assert "all" not in rows(mirror.status()[WEST].to_html())[topic], "nothing of it is proven"

    for flow in (CENTRAL, WEST):
        mirror.pause(flow=flow, reason="a drill")
    paused = {CENTRAL: Seen("PAUSED", 0), WEST: Seen("PAUSED", 20)}
    assert agreed(mirror) == (0, paused), "also where nothing waits"
    assert "is paused by" in mirror.status()[WEST].reason
    mirror.resume(flow=WEST)

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
        found = agreed(mirror)
        assert found == (0, {CENTRAL: Seen("OK", 0), WEST: Seen("OK", 0)})

        stopped_at = datetime.now(timezone.utc)
        central.stop()
        produce(east, topic, 10, partitions=1, seed=4)
        wait_until(lambda: failures or outage(mirror.events("1h")).is_open, "the outage is an event while it lasts")
        central.restart()
        until(central, 50, "it goes on where it was")
        assert not failures
        wait_until(lambda: not outage(mirror.events("1h")).is_open, "the outage is over")
        restarted_at = datetime.now(timezone.utc)
    assert_told(mirror, stopped_at, restarted_at)
    ran = {one.flow: one.records for one in mirror.progress().republished}
    assert ran == {CENTRAL: 30, WEST: 50}, "a run counts what its streams did before they started again"
    assert mirror.verify().equal

    def another() -> Mirror:
        """Return the mirror as another process has it: clients that knew the broker wait for it."""
        return Mirror(load(Path(str(mirror.config.path))), spark=spark)

    central.kill()
    mirror = another()
    code, away = agreed(mirror)
    assert (code, away) == (4, {CENTRAL: Seen("CLUSTER_AWAY"), WEST: Seen("OK", 0)}), "the others are shown"
    assert "its last answer was at" in mirror.status()[CENTRAL].reason
    east.kill()
    assert agreed(another()) == (4, {CENTRAL: Seen("CLUSTER_AWAY"), WEST: Seen("CLUSTER_AWAY")})
