"""Distribution: one source, three targets, one landing. What the source gives out is read from its own metrics."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from mirrorlake import Mirror
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import (
    ABORTED,
    Where,
    add_partitions,
    assert_equal_topics,
    configs_of,
    consume,
    count,
    create_topic,
    produce,
    send,
    send_transactions,
    topic_name,
    topics_of,
)
from tests.servers.lakes import MakeMirror, Pair
from tests.servers.metered import Metered

PARTITIONS = 4
RECORDS = 12_000
# A batch ends in the midst of the source's own record batches, which hold up to 1 MB.
PER_BATCH = 3_000
LIVE = 4_000
MOST = 1.05
NOBODY_LISTENS = {"bootstrap_servers": "127.0.0.1:9"}


class Fan(NamedTuple):
    """What the tests share: a topic that was landed once, with nobody on the way to a target yet."""

    topic: str
    flows: list[dict[str, str]]
    clusters: dict[str, KafkaCluster]

    def remote(self, alias: str) -> tuple[KafkaCluster, str]:
        return self.clusters[alias], f"origin.{self.topic}"


def write(where: Where, topic: str, count: int, *, seed: int) -> None:
    """Write records of 1 KB that nothing compresses, in as few record batches as the client can make."""
    rng = random.Random(seed)
    records = ((rng.randbytes(1_000), b"%d" % number, number % PARTITIONS) for number in range(count))
    send(where, topic, records, **{"linger.ms": 200, "enable.idempotence": True})


@pytest.fixture(scope="module")
def fan(
    origin: Metered, east: KafkaCluster, west: KafkaCluster, central: KafkaCluster, make_shared_mirror: MakeMirror
) -> Fan:
    topic = topic_name("spread")
    clusters = {"origin": origin.cluster, "east": east, "west": west, "central": central}
    flows = [{"source": "origin", "target": alias, "topics": topic} for alias in ("east", "west", "central")]
    address = origin.cluster
    create_topic(address, topic, PARTITIONS)
    write(address, topic, RECORDS, seed=1)
    return Fan(topic, flows, clusters)


def mirror_of(make: MakeMirror, fan: Fan, **settings: Any) -> Mirror:
    return make(fan.clusters, fan.flows, origin={"land": {"max_records_per_batch": PER_BATCH}}, **settings)


def arrived(fan: Fan, flow: dict[str, str]) -> int:
    return count(*fan.remote(flow["target"]))


def lags(mirror: Mirror, target: str) -> int:
    return sum(row.offset_lag for row in mirror.status(f"origin->{target}")[f"origin->{target}"])


@pytest.mark.law("C", "D", "F")
def test_one_landing_serves_targets_that_come_and_go_and_come_late(
    fan: Fan, origin: Metered, make_shared_mirror: MakeMirror
) -> None:
    topic, address = fan.topic, origin.cluster
    before = mirror_of(make_shared_mirror, fan, central=NOBODY_LISTENS)
    assert before.land("origin", once=True).records == RECORDS
    read, held = origin.bytes_out(topic), origin.bytes_held(topic)
    assert held <= read <= MOST * held, (
        f"{read / held:.3f} x of the topic was read by {RECORDS / PER_BATCH:.0f} batches"
    )

    # Each target has a progress of its own, and one that is down is in nobody's way.
    with ThreadPoolExecutor() as pool:
        down = pool.submit(before.republish, "origin->central", once=True)
        assert before.republish("origin->east", once=True).records == RECORDS
        assert (lags(before, "east"), lags(before, "west")) == (0, RECORDS)
        assert before.republish("origin->west", once=True).records == RECORDS
        assert before.republish("origin->east", once=True).records == 0
        with pytest.raises(ClusterUnreachable):
            down.result()
    assert origin.bytes_out(topic) == read, "republishing read from the source"

    # A target that comes late gets the history from the relay, and then what is live.
    mirror = mirror_of(make_shared_mirror, fan)
    assert mirror.republish("origin->central", once=True).records == RECORDS
    assert origin.bytes_out(topic) == read, "a late target read from the source"
    with staying_on(mirror) as failures:
        for seed in (2, 3, 4, 5):
            write(address, topic, LIVE // 4, seed=seed)
        for flow in fan.flows:
            wait_until(
                lambda flow=flow: failures or arrived(fan, flow) == RECORDS + LIVE, f"{flow['target']} has it all"
            )
    read, held = origin.bytes_out(topic), origin.bytes_held(topic)
    assert held <= read <= MOST * held, f"{read / held:.3f} x of the topic was read for three targets"
    source = consume(address, topic)
    assert sum(map(len, source.values())) == RECORDS + LIVE
    for flow in fan.flows:
        assert_equal_topics(source, consume(*fan.remote(flow["target"])))


@pytest.mark.law("C", "D", "F")
def test_new_topics_and_partitions_are_mirrored_without_a_restart(pair: Pair) -> None:
    prefix, east, central = topic_name("grow"), pair.east, pair.central
    first, second = f"{prefix}-a", f"{prefix}-b"
    create_topic(east, first, 1)
    produce(east, first, 50, partitions=1)
    mirror = pair.mirror(topics=f"{prefix}-.*")
    with staying_on(mirror) as failures:
        wait_until(lambda: f"east.{first}" in topics_of(central) or failures, "the first topic is mirrored")
        create_topic(east, second, 3, retention_ms="86400000")
        produce(east, second, 300, partitions=3)
        add_partitions(east, first, 3)
        produce(east, first, 300, partitions=3, seed=2)
        wait_until(
            lambda: failures or (count(central, f"east.{first}"), count(central, f"east.{second}")) == (350, 300),
            "both topics with all their partitions are mirrored",
        )
        send_transactions(
            east, second, [([(b"kept", None, 0)], True), ([(ABORTED, None, partition) for partition in (0, 1)], False)]
        )
        wait_until(
            lambda: failures or all(row.state == "caught_up" for row in mirror.status()["east->central"]),
            "markers and aborted records at the ends are passed while running",
        )
    for name in (first, second):
        assert_equal_topics(consume(east, name), consume(central, f"east.{name}"))
    assert configs_of(central, f"east.{second}") == {"retention.ms": "86400000"}
