"""Apply a plan: what is told of it while it is carried out."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterError
from mirrorlake.model.plan import Change, TopicSpec
from mirrorlake.topics import carry_out


class Cluster:
    """Takes changes, and refuses those of one name."""

    def __init__(self, refuses: str = "") -> None:
        self._refuses = refuses
        self.alone: list[str] = []

    def apply(self, change: Change) -> None:
        self.alone.append(change.name)

    def create_all(self, specs: list[TopicSpec]) -> dict[str, ClusterError]:
        names = [spec.name for spec in specs]
        assert len(names) == len({*names}), "Kafka refuses a request that names a topic twice"
        return {name: ClusterError(f"{name} is refused") for name in names if name == self._refuses}

    def wait_for(self, changes: list[Change]) -> None:
        pass


class Written:
    """Takes what is written to the audit."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def record(self, changes: list[Change], **_: Any) -> None:
        self.names += [change.name for change in changes]


def test_each_change_is_told_when_it_is_done_and_the_one_that_is_refused_is_not() -> None:
    after = {"partitions": 1, "configs": {}}
    topics = [Change(where="central", kind="topic", name=f"t{n}", action="create", after=after) for n in range(3)]
    acl = Change(where="central", kind="acl", name="a", action="delete")
    told: list[tuple[str, int, int | None, str]] = []

    def tell(phase: str, done: int, total: int | None, unit: str = "records") -> None:
        told.append((phase, done, total, unit))

    audit = Written()
    carry_out([*topics, acl], admins=cast("Any", {"central": Cluster()}), audit=cast("Any", audit), tell=tell)
    topics_told = [(done, total) for phase, done, total, _ in told if phase == "change topics on central"]
    assert topics_told == [(1, 3), (2, 3), (3, 3)]
    assert told[-1] == ("change acls on central", 1, 1, "acls")
    told.clear()
    audit = Written()
    with pytest.raises(ClusterError):
        carry_out(topics, admins=cast("Any", {"central": Cluster("t1")}), audit=cast("Any", audit), tell=tell)
    assert told[-1] == ("change topics on central", 2, 3, "topics")
    assert audit.names == ["t0", "t2"]


def test_flows_that_merge_make_their_topic_once_in_a_request() -> None:
    after = {"partitions": 1, "configs": {}}
    changes = [
        Change(where="central", kind="topic", name=name, action="create", after=after, flow=flow)
        for flow, name in (("a", "t1"), ("a", "all"), ("b", "all"))
    ]
    cluster, audit = Cluster(), Written()
    carry_out(changes, admins=cast("Any", {"central": cluster}), audit=cast("Any", audit))
    assert (cluster.alone, audit.names) == (["all"], ["t1", "all", "all"]), "the second finds it there"
