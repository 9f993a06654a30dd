"""Pairs and prefixed chains on real brokers: each record comes to each cluster once, and nothing goes round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import mirrorlake as ml
from mirrorlake import Mirror
from mirrorlake.errors import TopicConflict
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import (
    Record,
    commit,
    committed,
    consume,
    count,
    create_topic,
    produce,
    send,
    topic_name,
    topics_of,
)
from tests.servers.lakes import MakeMirror, mirror_maker

RECORDS = 400


def records_of(alias: str, count: int = RECORDS) -> Iterator[dict[str, Any]]:
    """Yield records that say where they were born; every tenth has headers of its own."""
    for number in range(count):
        headers = [("trace", b"1"), ("trace", None)] if number % 10 == 0 else None
        value, key = f"{alias}-{number}".encode(), str(number % 7).encode()
        yield {"value": value, "key": key, "partition": number % 2, "headers": headers}


def read(cluster: KafkaCluster, topic: str) -> list[Record]:
    return [record for part in consume(cluster, topic).values() for record in part]


def born(records: list[Record]) -> Counter[str]:
    return Counter((record.value or b"").decode() for record in records)


@pytest.mark.law("A", "C", "D", "F")
def test_each_record_comes_to_each_cluster_once_and_nothing_goes_round(
    east: KafkaCluster, west: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    clusters = {"east": east, "west": west, "central": central}
    name = topic_name()
    pair, prefixed = f"{name}-pair", f"{name}-prefixed"
    sync = {"groups": False, "configs": False}
    small = {"sync": sync, "lanes": 1, "groups": f"{name}.*"}
    flows: list[dict[str, Any]] = []
    for source, target in permutations(("east", "west"), 2):
        flows.append({"source": source, "target": target, "topics": pair, "policy": "identity", **small})
    for source, target in (("east", "west"), ("west", "east"), ("west", "central")):
        end = {"name": f"{source}->{target}.d", "source": source, "target": target, **small}
        flows.append({**end, "topics": rf"(?:.*\.)?{prefixed}"})
    members = {"east": east, "west": west}
    for alias, cluster in members.items():
        for topic in (pair, prefixed):
            create_topic(cluster, topic, 2)
            send(cluster, topic, records_of(alias))
    mirror = make_mirror(clusters, flows)
    assert [flow.config.adds_hops for flow in mirror.flows] == [True] * 2 + [False] * 3

    def ends() -> dict[tuple[str, str], int]:
        return {
            (alias, topic): count(cluster, topic)
            for alias, cluster in clusters.items()
            for topic in topics_of(cluster)
            if name in topic
        }

    before: Mapping[tuple[str, str], int] = {}
    rounds = 0
    while (now := ends()) != before:
        before, rounds = now, rounds + 1
        assert rounds < 8, f"it never comes to rest: {now}"
        mirror.run(once=True)

    wanted = Counter(f"{alias}-{number}" for alias in members for number in range(RECORDS))
    for alias, cluster in members.items():
        records = read(cluster, pair)
        assert born(records) == wanted, f"each record of {pair} is on {alias} exactly once"
        for record in records:
            way = ml.hops(record.headers)  # type: ignore[arg-type]
            origin = (record.value or b"").decode().split("-")[0]
            assert [hop.source for hop in way] == ([] if origin == alias else [origin]), "the hop is the origin"
            own = [header for header in record.headers if header[0] != "mirrorlake.hop"]
            assert own in ([], [("trace", b"1"), ("trace", None)]), "law C: the record's own headers stay"
    at_home = {(p, r.offset): r for p, part in consume(east, pair).items() for r in part}
    for partition, part in consume(west, pair).items():
        for record in part:
            first = next(iter(ml.hops(record.headers)), None)  # type: ignore[arg-type]
            if first is not None:
                assert (first.topic, first.partition) == (pair, partition)
                assert at_home[first.partition, first.offset].value == record.value, "the hop names the record's place"

    # Under the default policy names tell: one hop to each side, and further on the chain.
    assert born(read(west, f"east.{prefixed}")) == Counter(f"east-{number}" for number in range(RECORDS))
    assert born(read(east, f"west.{prefixed}")) == Counter(f"west-{number}" for number in range(RECORDS))
    chained = f"west.east.{prefixed}"
    assert born(read(central, chained)) == Counter(f"east-{number}" for number in range(RECORDS))
    assert ml.original_topic(chained) == prefixed
    assert mirror["west->central.d"].config.replication_policy.original_topic(chained) == prefixed
    remote = {topic for cluster in clusters.values() for topic in topics_of(cluster) if prefixed in topic}
    assert remote == {prefixed, f"east.{prefixed}", f"west.{prefixed}", chained}

    newest = len(consume(west, pair)[0]) - 1
    # Records of a cluster's own between those that came over flows; whether they were landed yet does not matter.
    for alias, cluster in members.items():
        send(cluster, pair, records_of(alias, 40))
    # Records that came over the other flow, and a chain.
    for flow in ("west->east", "west->central.d"):
        [verification] = mirror.verify(flow)
        assert verification.equal, (flow, verification.differences[:3])
    held = mirror["west->east"].offsets.translate(pair, 0, newest)
    assert isinstance(held, ml.Filtered), held
    assert_groups_skip_nothing(mirror, clusters, (pair,), group=f"{name}-group")


@pytest.mark.law("F")
def test_two_settings_files_make_no_loop(
    east: KafkaCluster, west: KafkaCluster, spark: SparkSession, empty_lake: Path, tmp_path: Path
) -> None:
    """Two files, each with a lake of its own, one each way under `identity`: 30 records stay 30 on both sides."""
    clusters, name = {"east": east, "west": west}, topic_name()
    plain, traced, sync = f"{name}-plain", f"{name}-traced", {"groups": False, "configs": False}
    for topic, homes in ((plain, (east,)), (traced, (east, west))):
        for home in homes:
            create_topic(home, topic, 1)
            produce(home, topic, 30, partitions=1)
    folders = {alias: tmp_path / alias for alias in clusters}
    make = {alias: mirror_maker(spark, empty_lake, folder) for alias, folder in folders.items()}

    def mirror(source: str, target: str, topic: str, **more: Any) -> Mirror:
        folders[source].mkdir(exist_ok=True)
        end = {"name": f"{name}-{source}", "source": source, "target": target, "policy": "identity", "lanes": 1}
        return make[source](clusters, [{**end, "topics": topic, "sync": sync, **more}])

    there = mirror("east", "west", plain)
    there.run(once=True)
    back = mirror("west", "east", plain)
    assert [(one.name, one.action) for one in back.plan().conflicts] == [(plain, "conflict")]
    with pytest.raises(TopicConflict, match=f"its ledger does not say that {name}-west sent them"):
        back.run(once=True)
    there.run(once=True)
    assert (count(east, plain), count(west, plain)) == (30, 30)
    both = [mirror(source, target, traced, provenance=True) for source, target in permutations(clusters, 2)]
    for _ in range(2):
        for one in both:
            one.run(once=True)
    assert (count(east, traced), count(west, traced)) == (60, 60), "headers keep them apart, in two files as in one"


def assert_groups_skip_nothing(
    mirror: Mirror, clusters: Mapping[str, KafkaCluster], topics: Sequence[str], *, group: str
) -> None:
    """Law A in a pair: a group reads half of everything on east, and goes on at west."""
    at_home = {topic: consume(clusters["east"], topic) for topic in topics}
    read: set[tuple[str, bytes | None, int]] = set()
    for topic, partitions in at_home.items():
        stands = {p: records[len(records) // (p + 2)].offset for p, records in partitions.items()}
        commit(clusters["east"], group, topic, stands)
        read |= {_known(topic, r) for p, records in partitions.items() for r in records if r.offset < stands[p]}
    before = {topic: committed(clusters["east"], group, topic, 2) for topic in topics}
    plan = mirror["east->west"].apply_groups()
    assert len(plan.moves) == 2 * len(topics), plan
    for position in plan:
        tp, place = position.resume.target, position.resume.downstream_offset
        assert place is not None, position
        records = consume(clusters["west"], tp.topic)[tp.partition]
        skipped = [r for r in records if r.offset < place and _known(tp.topic, r) not in read]
        assert not skipped, f"law A: {position} skips {len(skipped)} record(s)"
        again = [r for r in records if r.offset >= place and _known(tp.topic, r) in read]
        assert position.resume.records_again == len(again), position
        unread = [r.offset for r in records if _known(tp.topic, r) not in read]
        spared = [r for r in again if r.offset < unread[0]]
        assert not spared, f"{position} reads {len(spared)} record(s) again without need"
    assert not mirror["west->east"].apply_groups().moves, "nothing echoes"
    assert before == {topic: committed(clusters["east"], group, topic, 2) for topic in topics}


def _known(topic: str, record: Record) -> tuple[str, bytes | None, int]:
    """Tell records of one value apart, which were written at two times."""
    return topic, record.value, record.timestamp
