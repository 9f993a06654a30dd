"""Topics that never leave: every door is tried on real brokers, also for what was landed before the rule was there."""

from __future__ import annotations

import pytest

from mirrorlake.errors import TopicDenied
from mirrorlake.mirror import Mirror
from tests.kit.records import count, create_topic, held, produce, topic_name
from tests.servers.lakes import Pair


def landed(mirror: Mirror, topic: str) -> int:
    return len(held(mirror.lake.relay_location("east"), topic))


def test_what_never_leaves_leaves_by_no_door(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    name, east, central = topic_name(), pair.east, pair.central
    orders, pii = f"{name}.orders", f"{name}.pii"
    for topic in (orders, pii):
        create_topic(east, topic, 1)
        produce(east, topic, 100, partitions=1)
    every = pair.flow(topics=rf"{name}\..*")
    flows = [
        every,
        {**every, "name": "spark", "policy": {"template": "spark.{topic}"}, "execution": "streaming"},
        {**every, "name": "by-name", "policy": {"template": "named.{topic}"}, "topics": [orders, pii]},
        {**every, "name": "merged", "policy": {"template": "all.{topic}"}, "mm2": {"offset_syncs": True}},
    ]
    pair.mirror(*flows).land("east", once=True)

    rule = {"never_leave": [rf"(?i){name}\.PII"]}
    mirror = pair.mirror(*flows, east=rule)
    assert landed(mirror, pii) == 100, "it was landed before the rule was there, and stays"
    for topic in (orders, pii):
        produce(east, topic, 100, partitions=1, seed=2)
    assert not any(pii in change.name for change in mirror.plan().changes)
    mirror.apply()
    mirror.run(once=True)
    assert landed(mirror, pii) == 100, "and no more of it is landed"
    assert landed(mirror, orders) == 200

    there = mirror.admin("central").topic_names()
    assert not [topic for topic in there if "pii" in topic], "no remote topic was made"
    assert count(central, f"all.{orders}") == 200, "of a merged topic, only what may leave"
    for remote in (f"east.{orders}", f"spark.{orders}", f"named.{orders}"):
        assert count(central, remote) == 200
    for verification in mirror.verify():
        assert verification.equal, verification.differences[:3]
    assert {row.topic for rows in mirror.status().values() for row in rows} == {orders}

    # What comes to the last door in spite of everything stops there.
    late = pair.mirror({**every, "name": "late", "policy": {"template": "late.{topic}"}}, east=rule)
    monkeypatch.setattr(type(late.config.flows[0]), "carries", lambda _, topic: topic.startswith(name))
    with pytest.raises(TopicDenied) as caught:
        late.republish("late", once=True)
    assert caught.value.topic == pii  # type: ignore[attr-defined]
    assert not [topic for topic in late.admin("central").topic_names() if topic.startswith(f"late.{name}")]
