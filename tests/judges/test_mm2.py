"""In MirrorMaker 2's place: what a flow leaves for its clients, read by Kafka's own, and flows that go on where a MirrorMaker ended."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pyspark.sql import SparkSession

import mirrorlake as ml
from mirrorlake.errors import LedgerLost
from mirrorlake.sandbox import KafkaCluster, MirrorMaker, base_properties, start_all
from tests.kit.commands import told, write_conf
from tests.kit.mm2_client import DEFAULT, IDENTITY, UNDERSCORE, ask_java, formatted, heartbeat, stored_offset
from tests.kit.processes import wait_until
from tests.kit.records import (
    ABORTED,
    assert_equal_topics,
    commit,
    consume,
    count,
    create_topic,
    delete_topic,
    end_of,
    members,
    odd_record,
    open_transaction,
    produce,
    send,
    send_transactions,
    set_configs,
    topics_of,
)
from tests.servers.lakes import MakeMirror

NOW = int(time.time() * 1000)
EVERYTHING = {"heartbeats": True, "checkpoints": True, "offset_syncs": True, "offset_lag_max": 4}
SYNCS, CHECKPOINTS = "mm2-offset-syncs.edge.internal", "edge.checkpoints.internal"


class Site(NamedTuple):
    """A source under three names, and what flows of three policies left on their target for MirrorMaker's clients."""

    source: KafkaCluster
    target: KafkaCluster
    mirror: ml.Mirror
    folder: Path

    def ask(self, **questions: tuple[str, ...]) -> dict[str, str]:
        return ask_java(self.target.bootstrap_servers, self.folder, questions)

    def syncs(self) -> list[tuple[int, int, int]]:
        """Return partition, upstream and downstream offset of each offset sync."""
        text = self.ask(syncs=formatted(SYNCS, "OffsetSync"))["syncs"]
        found = re.findall(r"topicPartition=orders-(\d+), upstreamOffset=(\d+), downstreamOffset=(\d+)\}", text)
        return [(int(partition), int(upstream), int(downstream)) for partition, upstream, downstream in found]

    def beats(self, source: str) -> int:
        text = self.ask(beats=formatted("heartbeats", "Heartbeat"))["beats"]
        return text.count(f"sourceClusterAlias={source}, ")


def downstream(site: Site, offset: int, partition: int = 0) -> int:
    """Return how many records precede an offset of orders: the only place where a copy of all goes on exactly."""
    return sum(record.offset < offset for record in consume(site.source, "orders")[partition])


@pytest.fixture(scope="module")
def site(make_shared_mirror: MakeMirror, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    source, target = start_all(KafkaCluster(alias) for alias in ("source", "core"))
    try:
        create_topic(source, "orders", 2)
        send_transactions(
            source,
            "orders",
            [
                ([(ABORTED if n % 3 == 1 else b"%d" % n, b"k", partition) for partition in (0, 0, 0, 1)], n % 3 != 1)
                for n in range(9)
            ],
        )
        for group in ("billing", "grüppe-ключ", "rewound"):
            commit(source, group, "orders", {0: 0 if group.startswith("g") else 17})
        commit(source, "billing", "orders", {1: 5}, metadata="mé")
        # The source is itself a target of another mirror, and of one from here, which must not come back.
        for name in ("far.heartbeats", "core.heartbeats"):
            create_topic(source, name, 1)
            value, key = heartbeat("far", "edge", NOW - 5)
            send(source, name, [(None, key), (value, key)])
        create_topic(target, "edge.far.orders", 1)
        policies: Mapping[str, Any] = {"region": "identity", "plant": {"name": "default", "separator": "_"}}

        def make(*aliases: str) -> ml.Mirror:
            flows = [
                {
                    "source": alias,
                    "target": "core",
                    "topics": "orders",
                    "groups": ".*",
                    "policy": policies.get(alias, "default"),
                    "sync": {"groups": False},
                    "mm2": EVERYTHING,
                }
                for alias in aliases
            ]
            return make_shared_mirror({**dict.fromkeys(aliases, source), "core": target}, flows)

        # One settings file has one separator.
        make("plant").run(once=True)
        mirror = make("edge", "region")
        mirror.apply()
        assert not mirror.plan(), "law G: MirrorMaker's topics are part of the plan"
        mirror.run(once=True)
        commit(source, "rewound", "orders", {0: 9})
        mirror.run(once=True)
        yield Site(source, target, mirror, tmp_path_factory.mktemp("java"))
    finally:
        source.kill()
        target.kill()


@pytest.mark.law("A", "H")
def test_law_a_java_s_client_reads_exact_offsets_topology_and_bytes(site: Site) -> None:
    there, rewound, own = downstream(site, 17), downstream(site, 9), downstream(site, 0)
    billing = f"0={there}/, {{}}orders-1={downstream(site, 5, 1)}/mé"
    asked: dict[str, tuple[tuple[str, ...], str]] = {
        "two partitions and metadata": (
            (DEFAULT, "translateOffsets", "edge", "billing"),
            f"{{edge.orders-{billing.format('edge.')}}}",
        ),
        "utf-8 group": ((DEFAULT, "translateOffsets", "edge", "grüppe-ключ"), f"{{edge.orders-0={own}/}}"),
        "rewound group": ((DEFAULT, "translateOffsets", "edge", "rewound"), f"{{edge.orders-0={rewound}/}}"),
        "unknown group": ((DEFAULT, "translateOffsets", "edge", "nobody"), "{}"),
        "groups by pattern": (
            (DEFAULT, "translateOffsetsOfGroups", "edge", "bill.*|rew.*"),
            f"{{billing={{edge.orders-{billing.format('edge.')}}}, rewound={{edge.orders-0={rewound}/}}}}",
        ),
        "identity": ((IDENTITY, "translateOffsets", "region", "billing"), f"{{orders-{billing.format('')}}}"),
        "separator": (
            (UNDERSCORE, "translateOffsets", "plant", "billing"),
            f"{{plant_orders-{billing.format('plant_')}}}",
        ),
        "hops: the source": ((DEFAULT, "replicationHops", "edge"), "1"),
        "hops: before the source": ((DEFAULT, "replicationHops", "far"), "2"),
        "hops: unknown": ((DEFAULT, "replicationHops", "nowhere"), "-1"),
        "hops: identity": ((IDENTITY, "replicationHops", "region"), "1"),
        "upstream": ((DEFAULT, "upstreamClusters"), "[edge, far, region]"),
        "upstream: identity": ((IDENTITY, "upstreamClusters"), "[edge, far, region]"),
        "upstream: separator": ((UNDERSCORE, "upstreamClusters"), "[plant]"),
        "heartbeat topics": (
            (DEFAULT, "heartbeatTopics"),
            "[edge.far.heartbeats, edge.heartbeats, heartbeats, region.far.heartbeats, region.heartbeats]",
        ),
        "checkpoint topics": ((DEFAULT, "checkpointTopics"), f"[{CHECKPOINTS}, region.checkpoints.internal]"),
        "checkpoint topics: separator": ((UNDERSCORE, "checkpointTopics"), "[plant_checkpoints_internal]"),
        "remote topics": (
            (DEFAULT, "remoteTopics", "edge"),
            "[edge.far.heartbeats, edge.far.orders, edge.heartbeats, edge.orders]",
        ),
    }
    told = site.ask(
        **{question: words for question, (words, _) in asked.items()},
        checkpoints=formatted(CHECKPOINTS, "Checkpoint"),
        heartbeats=formatted("heartbeats", "Heartbeat"),
        back=formatted("edge.heartbeats", "Heartbeat"),
        two_hops=formatted("edge.far.heartbeats", "Heartbeat"),
    )
    assert {question: told[question] for question in asked} == {
        question: answer for question, (_, answer) in asked.items()
    }
    checkpoint = f"upstreamOffset=17, downstreamOffset={there}, "
    assert f"consumerGroupId=billing, topicPartition=edge.orders-0, {checkpoint}" in told["checkpoints"]
    assert "Heartbeat{sourceClusterAlias=edge, targetClusterAlias=core, timestamp=" in told["heartbeats"]
    assert "Heartbeat{sourceClusterAlias=core, targetClusterAlias=edge, timestamp=" in told["back"]
    far = f"Heartbeat{{sourceClusterAlias=far, targetClusterAlias=edge, timestamp={NOW - 5}}}"
    assert set(told["two_hops"].split("|")) == {far}, "as it stood on the source, and the tombstone beside it left out"
    # As MirrorMaker makes them, and nothing on the source.
    names = ["heartbeats", "edge.heartbeats", SYNCS, CHECKPOINTS]
    admin = AdminClient({"bootstrap.servers": site.target.bootstrap_servers})
    assert {len(admin.list_topics(name, timeout=60).topics[name].partitions) for name in names} == {1}
    configs = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    assert {future.result()["cleanup.policy"].value for future in configs.values()} == {"compact"}
    assert {name for name in topics_of(site.source) if not name.startswith("__")} == {
        "orders",
        "far.heartbeats",
        "core.heartbeats",
    }, "law H"


@pytest.mark.law("B", "G")
def test_law_b_offset_syncs_are_the_exact_map_and_nothing_is_said_twice_or_back(site: Site) -> None:
    """A sync that goes back upstream would make MirrorMaker forget all that it knows."""

    def assert_exact(syncs: list[tuple[int, int, int]]) -> None:
        upstream, remote = consume(site.source, "orders"), consume(site.target, "edge.orders")
        for partition, first, second in syncs:
            [record] = [one for one in upstream[partition] if one.offset == first]
            [copy] = [one for one in remote[partition] if one.offset == second]
            assert record.content == copy.content, (partition, first, second)
        for partition, records in upstream.items():
            mine = [first for number, first, _ in syncs if number == partition]
            assert mine == sorted(set(mine)), "law B"
            assert mine[-1] == records[-1].offset

    before = site.syncs()
    assert_exact(before)
    # What a stranger wrote is stepped over.
    send(site.target, "region.checkpoints.internal", [(b"\0", b"\0", 0)])
    ends = {name: end_of(site.target, name, 0) for name in (CHECKPOINTS, "region.checkpoints.internal", SYNCS)}
    beats = site.beats("edge")
    site.mirror.republish("edge->core", once=True)
    assert site.beats("edge") == beats, "landing did not work since, so nothing says that it does"
    site.mirror.run(once=True)
    assert {name: end_of(site.target, name, 0) for name in ends} == ends, "law G"
    assert site.beats("edge") == beats + 1
    produce(site.source, "orders", 20)
    site.mirror.run(once=True)
    after = site.syncs()
    assert after[: len(before)] == before
    assert_exact(after)


@pytest.mark.law("C")
def test_law_c_a_source_that_has_heartbeats_of_its_own_is_mirrored_and_nobody_writes_beside_them(
    site: Site, make_mirror: MakeMirror
) -> None:
    value, key = heartbeat("far", "wire", 5)
    create_topic(site.source, "heartbeats", 1, cleanup_policy="compact")
    send(site.source, "heartbeats", [(value, key, 0)])
    flow = {"source": "wire", "target": "core", "topics": "orders, heartbeats", "mm2": EVERYTHING}
    mirror = make_mirror({"wire": site.source, "core": site.target}, [flow])
    for _ in range(2):
        mirror.run(once=True)
    assert [(one.value, one.key) for one in consume(site.target, "wire.heartbeats")[0]] == [(value, key)], "one writer"
    assert site.beats("wire") == 2
    [report] = mirror.verify()
    assert (report.equal, report.verified) == (True, count(site.source, "orders") + 1), report.differences


# -- takeover ---------------------------------------------------------------------------------------------------------


def quick_end(target: str) -> dict[str, str]:
    """Return properties with which a killed worker leaves its group after 6 s, and the next one begins at once.

    6 s is the least that a broker allows; the defaults are 10 s, and up to five minutes until lost tasks are assigned again.
    """
    return {
        f"{target}.session.timeout.ms": "6000",
        f"{target}.heartbeat.interval.ms": "1000",
        f"{target}.rebalance.timeout.ms": "6000",
        f"{target}.scheduled.rebalance.max.delay.ms": "0",
    }


@pytest.mark.law("C", "D", "F")
def test_law_f_each_record_arrives_once_after_a_clean_end_and_after_a_kill(
    make_cluster: Callable[..., KafkaCluster], spark: SparkSession, tmp_path: Path
) -> None:
    east, central = start_all([make_cluster("east"), make_cluster("central")])
    servers = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    flows = [{"name": name, "source": "east", "target": "central", "topics": name} for name in ("clean", "killed")]
    conf = str(write_conf(tmp_path, servers, flows))

    def write(topic: str, records: int, *, seed: int) -> None:
        rng = random.Random(seed)
        send(east, topic, ({"partition": number % 3, **odd_record(rng, number)} for number in range(records)))

    def takeover(flow: str, *more: str, code: int = 0) -> dict[str, Any]:
        return dict(told("takeover", "--flow", flow, *more, "--conf", conf, code=code))

    def other_mirror(name: str, topics: str, flush_ms: int) -> MirrorMaker:
        known = base_properties("east", "central", servers, topics=topics) | quick_end("central")
        return MirrorMaker(tmp_path / name, {**known, "central.offset.flush.interval.ms": str(flush_ms)})

    def check(topic: str) -> None:
        upstream, downstream = consume(east, topic), consume(central, f"east.{topic}")
        assert_equal_topics(upstream, downstream)
        [proof] = house.verify(topic)
        assert proof.equal, proof.differences
        assert sum(p.republished for p in proof.partitions) < sum(p.landed for p in proof.partitions), (
            "MM2 sent the rest"
        )
        assert isinstance(house[topic].offsets.translate(topic, 0, 0), ml.BeforeFirst)
        last = house[topic].offsets.translate(topic, 0, upstream[0][-1].offset)
        assert isinstance(last, ml.Exact)
        assert last.offset == downstream[0][-1].offset

    for topic in ("clean", "killed"):
        create_topic(east, topic, 3, max_message_bytes="2000000")
        write(topic, 2000, seed=1)
    house = ml.load(conf, spark=spark)
    other = other_mirror("first", "clean,killed", 500)
    try:
        for topic in ("clean", "killed"):
            wait_until(lambda topic=topic: count(central, f"east.{topic}") == 2000, "MM2 mirrors")
        wait_until(lambda: count(central, "heartbeats"), "its heart beats")
        # Its heart beats every second; where the machine is busy, not in each look of five seconds.
        for sign in ("group east-mm2 on central has 1 member", "heartbeats-0 on central grew"):
            wait_until(lambda sign=sign: any(sign in one for one in takeover("clean", code=3)["refused"]), sign)
        write("clean", 6000, seed=2)
        wait_until(lambda: count(central, "east.clean") == 8000, "it mirrors more")
    finally:
        other.stop()
    # A worker that a busy machine did not let end in time stays a member until its session is over.
    wait_until(lambda: not members(central, "east-mm2"), "the workers' group is empty")
    write("clean", 300, seed=3)
    plan = house["clean"].takeover()
    assert {row.already_there for row in plan.partitions} == {0}, "a clean end stores everything"
    assert [note for note in plan.notes if "killed" in note], "it mirrored a topic that is not the flow's"
    assert takeover("clean", "--apply")["applied"]
    assert "the flow has begun already" in takeover("clean", "--apply", code=3)["refused"][0]
    # Its positions stand in the lake, too: a flow of which they are all that is known does not begin at offset 0 either.
    delete_topic(central, "mirrorlake.clean.ledger")
    with pytest.raises(LedgerLost, match="has taken over from MirrorMaker 2"):
        house.run("clean", once=True)
    house.republish("clean", once=True, restore_ledger=True)
    check("clean")
    # MM2 copied the setting; from now on it is ours to take back when the source gives it up.
    set_configs(east, "clean", max_message_bytes=None)
    [reset] = [one for one in house.plan("clean").changes if one.kind == "topic" and one.name == "east.clean"]
    assert (reset.action, reset.after) == ("reset_configs", {"max.message.bytes": None})

    # This time it stores nothing for an hour, and is killed; the relay knows the source already. Where a busy machine loses the worker
    # from its group, that stores as a clean end does: then again.
    for seed in range(4, 20, 3):
        other, before = other_mirror(f"killed-{seed}", "killed", 3_600_000), count(east, "killed")
        try:
            write("killed", 300, seed=seed)
            wait_until(lambda before=before: count(central, "east.killed") == before + 300, "MM2 goes on")
            write("killed", 6000, seed=seed + 1)
            wait_until(lambda before=before: count(central, "east.killed") > before + 300, "it is in the midst of more")
        finally:
            other.kill()
        wait_until(lambda: not members(central, "east-mm2"), "the workers' group is empty")
        # Where it was quick, nothing of the others is left for the flow.
        write("killed", 300, seed=seed + 2)
        plan = house["killed"].takeover()
        for row in plan.partitions:
            assert row.stored is not None
            assert row.already_there == row.position - row.stored, "plain records have no holes between them"
        if any(row.already_there for row in plan.partitions):
            break
    assert any(row.already_there for row in plan.partitions), plan
    house.apply_takeover(plan)
    house.run("killed", once=True)
    check("killed")


@pytest.mark.law("F")
def test_law_f_what_stored_offsets_and_records_do_not_tell_is_refused_with_the_reason(
    site: Site, tmp_path: Path
) -> None:
    """Each topic is a case: the letters on the source, those on the target, and the offsets that MirrorMaker stored."""
    cases: dict[str, tuple[str, str | None, list[int | None]]] = {
        "absent": ("abc", None, [1]),
        "forgotten": ("abcd", "abc", [1, None]),
        "named": ("", None, []),
        "open": ("ab", "a", [0]),
        "recreated": ("ab", "ab", [99]),
        "strange": ("abcdef", "abcx", [2]),
    }
    for topic, (letters, copies, offsets) in cases.items():
        for where, name, text in ((site.source, topic, letters), (site.target, f"old.{topic}", copies)):
            if text is not None:
                create_topic(where, name, 1)
                # Older records would fall to the brokers' retention at once.
                send(where, name, [{"value": one, "key": one, "partition": 0, "timestamp": NOW} for one in text])
        create_topic(site.target, "mm2-offsets.old.internal", 1) if topic == "absent" else None
        stored = [(*stored_offset("old", topic, 0, offset), 0) for offset in offsets]
        elsewhere = (*stored_offset("elsewhere", topic, 0, 1), 0)
        send(site.target, "mm2-offsets.old.internal", [*stored, elsewhere, (b"{}", b"nonsense", 0)])

    def takeover(topics: str, *more: str, code: int = 3, **flow: Any) -> dict[str, Any]:
        servers = {"old": site.source.bootstrap_servers, "core": site.target.bootstrap_servers}
        conf = write_conf(tmp_path, servers, [{"source": "old", "target": "core", "topics": topics, **flow}])
        return dict(told("takeover", "--flow", "old->core", *more, "--conf", str(conf), code=code))

    with open_transaction(site.target, "old.open", **{"transactional.id": "connect-cluster-old-mm2"}):
        found = takeover(", ".join(cases))
    rows = {row["topic"]: row for row in found["partitions"]}
    reasons = {
        "absent": "there is no old.absent-0",
        "open": "a transaction is open on old.open-0",
        "recreated": "was the topic recreated?",
        "strange": "records that the source does not have there",
    }
    for topic, reason in reasons.items():
        assert reason in rows[topic]["refused"], rows[topic]
    assert not rows["forgotten"]["refused"]
    assert [rows["forgotten"][name] for name in ("stored", "position", "already_there")] == [None, 3, 3], "a tombstone"
    notes = [note for note in found["notes"] if "skipped mm2-offsets.old.internal-0@" in note and "not JSON" in note]
    assert notes, "malformed offsets are stepped over and named"
    [trusted] = takeover("strange", "--trust-stored", code=0)["partitions"]
    assert (trusted["refused"], trusted["position"]) == ("", 3)
    assert "was the topic recreated?" in str(takeover("recreated", "--trust-stored"))
    # The coordinator answers before it has written the transaction's end into the log.
    wait_until(lambda: consume(site.target, "old.open")[0][-1].value == b"a", "what was aborted is not there")
    [ended] = takeover("open", code=0)["partitions"]
    assert (ended["refused"], ended["position"]) == ("", 1)
    assert "set earliest" in str(takeover("named", start="latest"))
    topic = "no topic connect-offsets: name Connect's"
    assert topic in str(takeover("named", "--offsets-topic", "connect-offsets"))
    assert "holds no offsets of mine for topics of old->core" in str(takeover("named", "--connector", "mine"))
