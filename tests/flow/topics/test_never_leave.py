"""Topics that never leave: every door is tried on real brokers, also for what was landed before the rule was there."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.errors import TopicDenied
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import consume, create_topic, produce
from tests.flow.mirror.test_laws import topic_name
from tests.servers.lakes import MakeMirror


def landed(mirror: Mirror, topic: str) -> int:
    return mirror.lake.relay("east").where(f"topic = '{topic}'").count()


def test_what_never_leaves_leaves_by_no_door(
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic_name()
    orders, pii = f"{name}.orders", f"{name}.pii"
    for topic in (orders, pii):
        create_topic(east.bootstrap_servers, topic, 1)
        produce(east.bootstrap_servers, topic, 100, partitions=1)
    clusters = {"east": east, "central": central}
    every: dict[str, Any] = {"source": "east", "target": "central", "topics": rf"{name}\..*"}
    flows = [
        every,
        {**every, "name": "spark", "policy": {"template": "spark.{topic}"}, "feeder": "spark"},
        {**every, "name": "by-name", "policy": {"template": "named.{topic}"}, "topics": [orders, pii]},
        {**every, "name": "merged", "policy": {"template": "all.{topic}"}, "mm2": {"offset_syncs": True}},
    ]
    make_mirror(clusters, flows).land("east", once=True)

    rule = {"never_leave": [rf"(?i){name}\.PII"]}
    mirror = make_mirror(clusters, flows, east=rule)
    assert landed(mirror, pii) == 100, "it was landed before the rule was there, and stays"
    for topic in (orders, pii):
        produce(east.bootstrap_servers, topic, 100, partitions=1, seed=2)
    assert not any(pii in change.name for change in mirror.plan().changes)
    mirror.apply()
    mirror.run(once=True)
    assert landed(mirror, pii) == 100, "and no more of it is landed"
    assert landed(mirror, orders) == 200

    there = mirror.admin("central").topic_names()
    assert not [topic for topic in there if "pii" in topic], "no remote topic was made"
    merged = [record for part in consume(central.bootstrap_servers, f"all.{orders}").values() for record in part]
    assert len(merged) == 200, "of a merged topic, only what may leave"
    for remote in (f"east.{orders}", f"spark.{orders}", f"named.{orders}"):
        assert sum(map(len, consume(central.bootstrap_servers, remote).values())) == 200
    for verification in mirror.verify():
        assert verification.equal, verification.differences[:3]
    assert {row.topic for rows in mirror.status().values() for row in rows} == {orders}

    # What comes to the last door in spite of everything stops there.
    late = make_mirror(clusters, [{**every, "name": "late", "policy": {"template": "late.{topic}"}}], east=rule)
    monkeypatch.setattr(type(late.config.flows[0]), "carries", lambda _, topic: topic.startswith(name))
    with pytest.raises(TopicDenied) as caught:
        late.republish("late", once=True)
    assert caught.value.topic == pii  # type: ignore[attr-defined]
    assert not [topic for topic in late.admin("central").topic_names() if topic.startswith(f"late.{name}")]
