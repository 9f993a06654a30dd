"""Changing one's mind: edits that are applied, pauses and rates, once and while the mirror runs (laws E and F)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake import Mirror, load
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import write_conf
from tests.kit.processes import queries, staying_on, wait_until
from tests.kit.records import assert_equal_topics, consume, count, create_topic, produce, rows_of, topic_name, topics_of
from tests.servers.lakes import MakeMirror


class Place:
    """One source with two topics, and what has arrived of them."""

    def __init__(self, east: KafkaCluster) -> None:
        self.east = east
        self.name = topic_name("mind")
        self.first, self.second = f"{self.name}-a", f"{self.name}-b"
        self.made = {self.first: 0, self.second: 0}
        for topic in self.made:
            create_topic(self.east, topic, 2)

    def produce(self, topic: str, count: int = 40) -> None:
        self.made[topic] += count
        produce(self.east, topic, count, seed=self.made[topic])

    def flow(self, target: str, *topics: str, **settings: Any) -> dict[str, Any]:
        return {"source": "east", "target": target, "topics": list(topics), "sync": {"groups": False}, **settings}

    def count(self, cluster: KafkaCluster, topic: str) -> int:
        return count(cluster, f"east.{topic}")

    def wait(self, cluster: KafkaCluster, *topics: str) -> None:
        for topic in topics:
            wait_until(lambda: self.count(cluster, topic) >= self.made[topic], f"{topic} is on {cluster!r}")  # noqa: B023

    def check(self, cluster: KafkaCluster, *topics: str) -> None:
        for topic in topics:
            assert_equal_topics(consume(self.east, topic), consume(cluster, f"east.{topic}"))


def landed(mirror: Mirror, topic: str) -> int:
    return len(rows_of(mirror, "relay_east", topic))


@pytest.mark.law("G")
def test_a_running_mirror_follows_edits_and_pauses_without_a_gap_or_a_repeat(
    east: KafkaCluster, west: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, spark: SparkSession
) -> None:
    place = Place(east)
    a, b = place.first, place.second
    clusters = {"east": east, "west": west, "central": central}
    # Its own object, as in another process: what is asked reaches the running one through the lake and its file only.
    mirror = make_mirror(clusters, [place.flow("central", a)])
    mirror.apply()
    assert not mirror.plan(), "law G"
    place.produce(a)
    place.produce(b)
    with staying_on(mirror) as failures:

        def until(condition: Callable[[], Any], what: str) -> None:
            wait_until(lambda: failures or condition(), what)
            assert not failures, failures

        place.wait(central, a)
        # The backfill sends before the stream's query begins.
        until(lambda: set(queries(spark)) == {"land east", "republish east->central"}, "both streams run")

        edited = make_mirror(clusters, [place.flow("central", a, b), place.flow("west", a)])
        assert [(change.where, change.action, change.kind, change.name) for change in edited.plan().changes][:2] == [
            ("settings", "change", "flow", "east->central"),
            ("settings", "create", "flow", "east->west"),
        ]
        edited.pause(flow="east->central", reason="a test")
        until(lambda: "republish east->central" not in queries(spark), "the flow is paused")
        place.produce(a)
        until(lambda: landed(mirror, a) == place.made[a], "landing goes on")
        assert place.count(central, a) < place.made[a], "a paused flow sends nothing"
        assert {row.state for row in edited["east->central"].status()} == {"paused"}
        assert landed(mirror, b) == 0, "an edit that was not applied has no effect"

        # The new topic's records are older than its selection; the new flow's are in the relay already.
        edited.apply()
        assert not edited.plan(), "law G"
        edited["east->central"].resume()
        place.wait(west, a)
        place.wait(central, a, b)
        until(lambda: len(queries(spark)) == 3, "the backfills are over, too")
        before = queries(spark)

        edited["east->central"].pause(b)
        edited.pause(cluster="west")
        until(lambda: "republish east->west" not in queries(spark), "the cluster is paused")
        until(
            lambda: queries(spark).get("republish east->central") not in (None, before["republish east->central"]),
            "the flow goes on without its topic",
        )
        place.produce(a)
        place.produce(b)
        place.wait(central, a)
        until(lambda: landed(mirror, b) == place.made[b], "landing of the paused topic goes on")
        place.produce(a)
        place.wait(central, a)
        assert place.count(central, b) < place.made[b], "a paused topic is not sent"
        assert place.count(west, a) < place.made[a], "a paused cluster gets nothing"
        edited["east->central"].resume(b)
        edited.resume(cluster="west")
        place.wait(central, b)
        place.wait(west, a)
        assert queries(spark)["land east"] == before["land east"], "what was not changed goes on untouched"
    place.check(central, a, b)
    place.check(west, a)


@pytest.mark.law("E")
def test_an_edited_selection_gets_its_history_and_a_pause_holds_with_once(
    east: KafkaCluster,
    west: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    place = Place(east)
    a, b = place.first, place.second
    clusters = {"east": east, "west": west, "central": central}
    place.produce(a)
    place.produce(b)
    other = place.flow("west", a, b)
    make_mirror(clusters, [place.flow("central", a), other]).run(once=True)
    place.check(central, a)
    assert f"east.{b}" not in topics_of(central)

    # `b` was landed for the other flow.
    flow = place.flow("central", a, b)
    mirror = make_mirror(clusters, [flow, other])
    mirror.pause(cluster="east", reason="a test")
    place.produce(a)
    landings, sendings = mirror.run(once=True)
    assert [pause.subject.name for pause in landings[0].paused] == ["east"]
    assert landings[0].records == 0, "from a paused cluster nothing is read"
    assert sendings[0].records == 40, "law E: what the relay held of the topic is sent"
    place.check(central, b)

    # One target is away: the others drain to their end all the same, and what failed is told.
    mirror.resume(cluster="east")
    mirror["east->central"].pause(b)
    place.produce(b)
    addresses = {alias: cluster.bootstrap_servers for alias, cluster in clusters.items()} | {"gone": "127.0.0.1:1"}
    gone = load(write_conf(tmp_path, addresses, [place.flow("gone", a), flow, other]), spark=spark)
    with pytest.raises(ClusterUnreachable, match="gone"):
        gone.run(once=True)
    place.check(central, a)
    place.check(west, a, b)
    assert place.count(central, b) == 40, "a paused topic is not sent"

    mirror["east->central"].resume(b)
    done = mirror["east->central"].republish(once=True)
    assert (done.records, done.paused) == (40, ())
    place.check(central, a, b)
