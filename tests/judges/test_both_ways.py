"""Groups where identity runs both ways: nothing is skipped, nothing echoes, nobody is moved where they read (law A)."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import commit, committed, consume, create_topic, produce, topic_name
from tests.servers.lakes import MakeMirror


def values(cluster: KafkaCluster, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in consume(cluster, topic)[0]]


def planned(mirror: Mirror, flow: str) -> dict[str, Any]:
    return {position.group: position for position in mirror[flow].groups()}


@pytest.mark.law("A", "G")
def test_law_a_groups_of_a_pair_skip_nothing_and_nothing_echoes(
    east: KafkaCluster, west: KafkaCluster, make_mirror: MakeMirror
) -> None:
    tag, clusters = topic_name(), {"east": east, "west": west}
    topic, two, five, one = f"orders-{tag}", f"{tag}-two", f"{tag}-five", f"{tag}-one"
    for alias, count in (("east", 2), ("west", 3)):
        create_topic(clusters[alias], topic, 1)
        produce(clusters[alias], topic, count, partitions=1, prefix=alias[0])
    ends = [{"source": "east", "target": "west"}, {"source": "west", "target": "east"}]
    flows = [{**end, "topics": topic, "policy": "identity", "groups": f"{tag}.*", "lanes": 1} for end in ends]
    mirror = make_mirror(clusters, flows)
    mirror.run(once=True)
    assert values(east, topic) == ["e1-0", "e1-1", "w1-0", "w1-1", "w1-2"]
    assert values(west, topic) == ["w1-0", "w1-1", "w1-2", "e1-0", "e1-1"]

    def held(alias: str) -> dict[str, int | None]:
        return {group: committed(clusters[alias], group, topic, 1).get(0) for group in (two, five, one)}

    commit(clusters["east"], two, topic, {0: 2})
    commit(clusters["east"], five, topic, {0: 5})
    commit(clusters["west"], one, topic, {0: 1})
    outward, homeward = planned(mirror, "east->west"), planned(mirror, "west->east")
    assert (outward[two].resume.downstream_offset, outward[two].resume.records_again) == (0, 2), "it has not read w1-0"
    assert "west's own record" in outward[two].reason
    assert (outward[five].resume.downstream_offset, outward[five].resume.exact) == (5, True)
    assert (homeward[one].resume.downstream_offset, homeward[one].resume.records_again) == (0, 1)
    outside = mirror["east->west"].offsets.move_positions({topic: {"0": 2}})
    assert outside.document == {topic: {"0": 0}}, "a reader outside of Kafka goes where a group goes"
    mirror.run(once=True)
    assert held("east") == {two: 2, five: 5, one: 0}, "law A: nobody is moved where they read"
    assert held("west") == {two: 0, five: 5, one: 1}
    for flow in ("east->west", "west->east"):
        assert {position.action for position in mirror[flow].groups()} == {"in_step"}, "law G"

    # Over to west, where it reads all but the last record; what it read on east counts, and west stays as it is.
    commit(clusters["west"], two, topic, {0: 4})
    mirror.run(once=True)
    assert (held("east")[two], held("west")[two]) == (5, 4), "the group itself committed last on west"
    assert (held("east")[five], held("west")[one]) == (5, 1), "what mirrorlake set does not come home"
    # And home again, where new records of both sides wait.
    for alias in clusters:
        produce(clusters[alias], topic, 1, partitions=1, prefix=alias[0], seed=2)
    mirror.run(once=True)
    at_home = next(r.offset for r in consume(clusters["east"], topic)[0] if r.value == b"e2-0")
    commit(clusters["east"], two, topic, {0: at_home + 1})
    mirror.run(once=True)
    read_on = [r.value for r in consume(clusters["west"], topic)[0] if r.offset >= (held("west")[two] or 0)]
    assert b"w2-0" in read_on, "law A: west's own new record was read on no cluster"
    assert held("east")[two] == at_home + 1
