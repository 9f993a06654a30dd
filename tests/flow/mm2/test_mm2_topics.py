"""A flow that speaks for MirrorMaker 2: what `run` leaves in its topics is what the exact map says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mirrorlake.kafka.record_reader import RecordReader
from mirrorlake.model.mm2 import Checkpoint, Heartbeat, OffsetSync, decode_all
from mirrorlake.model.offset_map import Exact
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import commit, create_topic, delete_topic, new_topic, send, topic_name
from tests.servers.lakes import MakeMirror


@pytest.mark.law("G")
@pytest.mark.parametrize("groups", [True, False], ids=["groups moved", "groups only told"])
def test_a_run_writes_what_mirrormaker_would(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror, groups: bool
) -> None:
    # Whoever ran a MirrorMaker on these brokers leaves heartbeats, which this source does not have yet.
    delete_topic(east, "heartbeats", missing_ok=True)
    # An alias of its own: its checkpoints topic is nobody else's.
    alias, topic = topic_name("wire"), new_topic(east, 1000, partitions=1)
    commit(east, alias, topic, {0: 321}, metadata="über")
    flow = {
        "source": alias,
        "target": "central",
        "topics": topic,
        "groups": alias,
        "sync": {"groups": groups},
        "mm2": {"heartbeats": True, "checkpoints": True, "offset_syncs": True},
    }
    mirror = make_mirror({alias: east, "central": central}, [flow])
    mirror.apply()
    assert not mirror.plan(), "law G: MirrorMaker's topics are part of the plan"
    mirror.run(once=True)

    def held(name: str, decode: Callable[..., Any]) -> list[Any]:
        with RecordReader("central", {"bootstrap.servers": central.bootstrap_servers}) as reader:
            found = decode_all(name, reader.read(name, 0), decode)
        assert not found.skipped
        return found.values

    handle = mirror[f"{alias}->central"]
    there = handle.offsets.translate(topic, 0, 321)
    assert isinstance(there, Exact)
    assert held(f"{alias}.checkpoints.internal", Checkpoint.from_record) == [
        Checkpoint(alias, f"{alias}.{topic}", 0, 321, there.offset, "über")
    ]
    syncs = held(f"mm2-offset-syncs.{alias}.internal", OffsetSync.from_record)
    assert [handle.offsets.translate(topic, 0, sync.upstream_offset).offset for sync in syncs[::5]] == [  # type: ignore[union-attr]
        sync.downstream_offset for sync in syncs[::5]
    ]
    assert syncs[-1].upstream_offset == 999
    assert [(beat.source, beat.target) for beat in held(f"{alias}.heartbeats", Heartbeat.from_record)] == [
        ("central", alias)
    ]
    assert (alias, "central") in {(b.source, b.target) for b in held("heartbeats", Heartbeat.from_record)}

    def beats() -> list[int]:
        return [beat.timestamp_ms for beat in held("heartbeats", Heartbeat.from_record) if beat.source == alias]

    told = beats()
    mirror.republish(handle.name, once=True)
    assert beats() == told, "landing did not work since, so nothing says that it does"
    if groups:
        return
    # From now on the source has heartbeats of its own: they go through the relay, and nobody else writes beside them.
    strange = Heartbeat("far", alias, 5)
    create_topic(east, "heartbeats", 1, cleanup_policy="compact")
    try:
        send(east, "heartbeats", [(strange.value(), strange.key(), 0)])
        mirror = make_mirror({alias: east, "central": central}, [{**flow, "topics": [topic, "heartbeats"]}])
        for _ in range(2):
            mirror.run(once=True)
        mirrored = held(f"{alias}.heartbeats", Heartbeat.from_record)
        assert mirrored[1:] == [strange], "one writer"
        assert len(beats()) == len(told) + 2
        [report] = mirror.verify()
        assert report.equal, report.differences
        assert report.verified == 1001
    finally:
        delete_topic(east, "heartbeats")
