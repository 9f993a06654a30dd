"""Other partition counts and merged topics, on real brokers: by key as Java does, several regions in one topic."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import Mirror
from mirrorlake.errors import TopicConflict
from mirrorlake.sandbox import KafkaCluster
from tests.kit.java import PRODUCER, java
from tests.kit.map_check import assert_map_is_exact
from tests.kit.processes import wait_until
from tests.kit.records import (
    Record,
    Where,
    add_partitions,
    assert_equal_topics,
    commit,
    committed,
    consume,
    count,
    create_topic,
    end_of,
    send_transactions,
    topic_name,
)
from tests.servers.lakes import MakeMirror, Pair

KEYS = [f"key-{number}" for number in range(40)]
Topic = dict[int, list[Record]]


def write(where: Where, topic: str, count: int, *, seed: int, partitions: int | None = None) -> None:
    """Write transactions of keyed records, some without a key and some aborted; values are unique."""
    rng = random.Random(seed)

    def transaction(start: int) -> tuple[list[dict[str, Any]], bool]:
        records: list[dict[str, Any]] = []
        for number in range(start, min(start + 25, count)):
            key = rng.choice([None, *KEYS]) if partitions is None else None
            place = {} if partitions is None else {"partition": number % partitions}
            records.append({"value": f"{seed}-{number}".encode(), "key": key, **place})
        return records, rng.random() >= 0.2

    send_transactions(where, topic, map(transaction, range(0, count, 25)))


def by_key(topic: Topic) -> dict[bytes, list[bytes | None]]:
    found: dict[bytes, list[bytes | None]] = defaultdict(list)
    for records in topic.values():
        for record in records:
            if record.key is not None:
                found[record.key].append(record.value)
    return found


def java_places(cluster: KafkaCluster, keys: list[str], partitions: int) -> dict[bytes, int]:
    """Return where Java's own producer puts keys, by letting it write them."""
    topic = topic_name("java")
    create_topic(cluster, topic, partitions)
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic]
    arguments += ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    java(PRODUCER, *arguments, stdin="".join(f"{key}:x\n" for key in keys))
    return {r.key: p for p, records in consume(cluster, topic).items() for r in records if r.key}


def assert_goes_on(target: list[Record], position: int, *, unread: set[bytes | None], read: set[bytes | None]) -> None:
    """Law A on one target partition, and no record again that a single position could spare."""
    missing = {r.value for r in target if r.offset < position} & unread
    assert not missing, f"law A: {len(missing)} record(s) would be skipped at {position}"
    first = min((r.offset for r in target if r.value in unread), default=None)
    again = {r.value for r in target if r.offset >= position} & read
    unavoidable = {r.value for r in target if first is not None and r.offset > first} & read
    assert again == unavoidable, f"{len(again - unavoidable)} record(s) would be read again without need"


def positions_by_chance(topic: Topic, seed: int, *, without: int | None = None) -> dict[int, int]:
    rng = random.Random(seed)
    return {
        p: rng.randint(records[0].offset, records[-1].offset + 1)
        for p, records in topic.items()
        if records and p != without
    }


def split(topic: Topic, positions: dict[int, int]) -> tuple[set[bytes | None], set[bytes | None]]:
    """Return the values that a group has read, and those it has not."""
    read = {r.value for p, records in topic.items() for r in records if r.offset < positions.get(p, 0)}
    return read, {r.value for records in topic.values() for r in records} - read


@pytest.mark.law("A", "C", "D", "E")
def test_law_d_by_key_as_java_places_them_and_while_the_source_grows(pair: Pair) -> None:
    topic, remote, group, flow_name = pair.topic, pair.remote, topic_name("billing"), "east->central"
    east, central = pair.east, pair.central
    pair.create(partitions=3)
    write(east, topic, 600, seed=1)
    placement = {"by": "key", "count": 5}
    mirror = pair.mirror(placement=placement, chunk_records=60, groups=group, sync={"groups": False})
    mirror.run(once=True)
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        reference = pool.submit(java_places, central, KEYS, 5)
        live = pool.submit(mirror.run, stop=stop)
        try:
            add_partitions(east, topic, 4)
            write(east, topic, 100, seed=2, partitions=4)
            write(east, topic, 100, seed=3)
            last = count(east, topic)
            wait_until(lambda: live.done() or count(central, remote) == last, "the grown source is mirrored")
        finally:
            stop.set()
        live.result()
    source, target = consume(east, topic), consume(central, remote)
    assert len(target) == 5, "a source that grows does not grow a topic that is placed by key"
    assert source[3], "the new partition has records"
    origin = {record.value: p for p, records in source.items() for record in records}
    java_says = reference.result()
    assert set(java_says) == {key.encode() for key in KEYS}
    for partition, records in target.items():
        for record in records:
            wanted = java_says[record.key] if record.key is not None else origin[record.value] % 5
            assert partition == wanted, f"law D: {record} is not where Java puts it"
    by_source, by_target = by_key(source), by_key(target)
    assert by_target.keys() == by_source.keys()
    for key, values in by_target.items():
        for partition in source:
            mine = [value for value in values if origin[value] == partition]
            assert mine == [r.value for r in source[partition] if r.key == key], f"law D: the order of key {key!r}"
    assert_map_is_exact(pair.lake, flow_name, topic, source, target, asked=mirror[flow_name])
    verification = mirror[flow_name].verify()
    assert verification.equal, verification.differences
    assert sum(p.verified for p in verification.partitions) == last

    positions = positions_by_chance(source, seed=4, without=1)
    commit(east, group, topic, positions)
    plan = mirror[flow_name].apply_groups()
    assert len(plan) == 5, str(plan)
    assert all("4 source partitions feed" in position.reason for position in plan), str(plan)
    read, unread = split(source, positions)
    there = committed(central, group, remote, 5)
    for partition, records in target.items():
        assert_goes_on(records, there[partition], unread=unread, read=read)
    counted = {p.resume.target.partition: p.resume.records_again for p in plan}
    again = {p: len([r for r in records if r.offset >= there[p] and r.value in read]) for p, records in target.items()}
    assert counted == again, "the plan says how many records are read again"
    commit(east, group, topic, {p: end_of(east, topic, p) for p in source})
    assert all(position.resume.exact for position in mirror[flow_name].groups())


def test_a_topic_with_another_count_is_a_conflict_that_names_what_becomes_of_keys(pair: Pair) -> None:
    pair.create(partitions=1)
    create_topic(pair.central, pair.remote, 4)
    write(pair.east, pair.topic, 25, seed=6)
    mirror = pair.mirror(placement={"by": "key", "count": 3})
    [conflict] = mirror.plan().conflicts
    assert "order per key" in conflict.reason
    with pytest.raises(TopicConflict, match="has 4 partitions") as refused:
        mirror.run(once=True)
    assert "count: 4" in refused.value.remedy


@pytest.mark.law("A", "C", "D", "E")
def test_a_merged_topic_and_groups_of_every_region(
    east: KafkaCluster, west: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    topic, group = topic_name("orders"), topic_name("billing")
    clusters = {"east": east, "west": west, "central": central}
    plain: dict[str, Any] = {
        "topics": topic,
        "policy": {"template": "all.{topic}"},
        "groups": f"{group}.*",
        "chunk_records": 40,
        "sync": {"groups": False},
    }
    flows = [{"source": region, "target": "central", **plain} for region in ("east", "west")]
    same = {
        "name": "same",
        "source": "east",
        "target": "central",
        "topics": topic,
        "policy": "identity",
        "groups": "none",
    }
    mirror = make_mirror(clusters, [*flows, same])
    for region in ("east", "west"):
        create_topic(clusters[region], topic, 2)
    for turn in range(2):
        for number, region in enumerate(("east", "west")):
            write(clusters[region], topic, 150, seed=10 * turn + number, partitions=2)
        mirror.run(once=True)
    assert_equal_topics(consume(east, topic), consume(central, topic))
    assert_merged(mirror, clusters, topic, tmp_path / "lake")
    assert_groups_of_every_region(mirror, clusters, topic, group)


def assert_merged(mirror: Mirror, clusters: dict[str, KafkaCluster], topic: str, lake: Path) -> None:
    target = consume(clusters["central"], f"all.{topic}")
    for name in ("east", "west"):
        source = consume(clusters[name], topic)
        flow = f"{name}->central"
        assert_map_is_exact(lake, flow, topic, source, target, asked=mirror[flow])
        values = {r.value for records in source.values() for r in records}
        for partition, records in target.items():
            assert [r.value for r in records if r.value in values] == [r.value for r in source[partition]], "law D"
    for verification in mirror.verify():
        assert verification.equal, verification.differences[:3]


def assert_groups_of_every_region(mirror: Mirror, clusters: dict[str, KafkaCluster], topic: str, group: str) -> None:
    regions, remote = ("east", "west"), f"all.{topic}"
    sources = {name: consume(clusters[name], topic) for name in regions}
    target = consume(clusters["central"], remote)
    positions = {name: positions_by_chance(source, seed=ord(name[0])) for name, source in sources.items()}
    for name in regions:
        commit(clusters[name], group, topic, positions[name])
        commit(clusters[name], f"{group}-{name}", topic, positions[name])
    plans = {name: mirror[f"{name}->central"].apply_groups() for name in regions}
    answers = [
        {p.resume.target: p.resume.downstream_offset for p in plan if p.group == group} for plan in plans.values()
    ]
    assert answers[0] == answers[1], "both flows give a group that reads both regions the same positions"
    assert not any(plan.held for plan in plans.values()), f"no flow holds back what the other has set: {plans}"
    for reader, names in ((group, regions), *((f"{group}-{name}", (name,)) for name in regions)):
        there = committed(clusters["central"], reader, remote, 2)
        parts = [split(sources[name], positions[name]) for name in names]
        read, unread = set.union(*(r for r, _ in parts)), set.union(*(u for _, u in parts))
        for partition, records in target.items():
            assert_goes_on(records, there[partition], unread=unread, read=read)
    assert {p.group for p in plans["east"]} == {group, f"{group}-east"}
