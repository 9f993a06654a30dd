"""Consumer groups of a cluster: of one that is not there, and positions that are set for a group."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.groups import Committed, Groups
from mirrorlake.model.flow import TopicPartition
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import new_topic


def test_a_cluster_that_never_answered_is_not_waited_for_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "admin_timeout_s=1")
    groups = Groups("east", {"bootstrap.servers": "127.0.0.1:9"})
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        with pytest.raises(ClusterUnreachable, match="east does not answer"):
            pool.submit(groups.states).result(timeout=120)
    finally:
        pool.shutdown(wait=False)


def test_an_attempt_that_timed_out_sets_back_nobody_who_read_on_meanwhile(
    east: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(east, 10)
    group, options = f"readers-{topic}", {"bootstrap.servers": east.bootstrap_servers}
    groups, zero = Groups("east", options), TopicPartition(topic, 0)
    carry_out, attempts = Groups._set, []

    def times_out_at_first(self: Groups, consumer: Consumer, group: str, entries: list[ClientPartition]) -> None:
        carry_out(self, consumer, group, entries)
        attempts.append(entries)
        if len(attempts) == 1:
            reader = Consumer({**options, "group.id": group})
            reader.commit(offsets=[ClientPartition(topic, 0, 9)], asynchronous=False)
            reader.close()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(Groups, "_set", times_out_at_first)
    assert not groups.commit(group, {zero: Committed(3)})
    assert len(attempts) == 1
    assert groups.committed([group], [zero], unsure={})[group][zero].offset == 9, "it reads on where it was"


def test_a_coordinator_that_hangs_under_a_commit_ends_no_process(
    make_cluster: Callable[..., KafkaCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`AdminClient.alter_consumer_group_offsets` ends it with an assertion (librdkafka 2.16.1)."""
    own = make_cluster("own").start()
    topic = new_topic(own, 4)
    groups = Groups("own", {"bootstrap.servers": own.bootstrap_servers, "socket.timeout.ms": "2000"})
    zero = TopicPartition(topic, 0)
    groups.commit("readers", {zero: Committed(1)})
    own.pause()
    # While it hangs, and no longer: a broker that starts on a busy machine makes and loads the topic of commits for seconds.
    with monkeypatch.context() as hasty:
        hasty.setenv("MIRRORLAKE_TIMING", "admin_timeout_s=2,retry_timeout_s=2")
        with pytest.raises(ClusterUnreachable):
            groups.commit("readers", {zero: Committed(2)}, seen={zero: 1})
    own.kill()
    own.start()
    assert groups.commit("readers", {zero: Committed(2)}, seen={zero: 1})
    assert groups.committed(["readers"], [zero], unsure={})["readers"][zero].offset == 2
