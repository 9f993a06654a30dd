"""Remote topics are made ready in a few calls, each fails by itself, and each change of a plan is told when it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterError, MirrorlakeError, RemoteTopicLost, TopicConflict
from mirrorlake.kafka import TopicState
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import Change, TopicSpec
from mirrorlake.model.remotes import Remote
from mirrorlake.topics import RemoteTopics, carry_out
from tests.builders import config_of


class Target:
    """A target's admin that counts its calls."""

    alias = "c"

    def __init__(self, there: Iterable[TopicState] = (), *, refuses: Collection[str] = ()) -> None:
        self.topics = {state.name: state for state in there}
        self.calls: Counter[str] = Counter()
        self.requests: list[int] = []
        self._refuses = refuses
        self.topic_metadata = SimpleNamespace(settings=self._settings)

    def describe(self, names: Iterable[str], **_: Any) -> dict[str, TopicState]:
        self.calls["describe"] += bool(names := list(names))
        return {name: self.topics[name] for name in names if name in self.topics}

    def topic_names(self) -> list[str]:
        self.calls["topic_names"] += 1
        return list(self.topics)

    def create_all(self, specs: Sequence[TopicSpec], **_: bool) -> dict[str, MirrorlakeError]:
        self.calls["create"] += 1
        self.requests.append(len(specs))
        assert len(specs) == len({spec.name for spec in specs}), "Kafka refuses a request that names a topic twice"
        refused = {spec.name for spec in specs if spec.name in self._refuses}
        for spec in specs:
            if spec.name not in refused:
                state = TopicState(name=spec.name, topic_id=spec.name, partitions=spec.partitions)
                self.topics[spec.name] = state
        return {name: ClusterError(f"could not create topic {name}") for name in refused}

    def apply(self, change: Change) -> None:
        pass

    def wait_for(self, _: Sequence[Change]) -> None:
        self.calls["wait"] += 1

    def _settings(self, names: Collection[str]) -> dict[str, Any]:
        self.calls["settings"] += 1
        return {name: {"max.message.bytes": SimpleNamespace(value="2000")} for name in names}


class Written:
    """The table `audit` without a lake."""

    def __init__(self) -> None:
        self.appends: list[list[str]] = []
        self.reads = 0

    def record(self, changes: Sequence[Change], **_: Any) -> None:
        if changes:
            self.appends.append([f"{change.action} {change.name}" for change in changes])

    def entries(self, *_: str) -> list[Any]:
        self.reads += 1
        return []


class Topics:
    """A lake that knows some topics of every source."""

    def __init__(self, names: Iterable[str]) -> None:
        self.asked = 0
        self._names = names

    def query(self, *_: Any, **__: Any) -> list[Any]:
        self.asked += 1
        facts = {"generation": 1, "topic_id": "", "partitions": 1, "configs": (), "cuts": (), "leader_epochs": ()}
        return [SimpleNamespace(topic=name, present=True, **facts) for name in self._names]


def remote_topics(target: Target, audit: Written, lake: Topics, *flows: str) -> RemoteTopics:
    made = config_of(*flows).flows
    return RemoteTopics(cast("Any", target), made[0], cast("Any", audit), cast("Any", lake), all_flows=made)


MINE = "source: a, target: c, topics: 'x.+', policy: identity"
RIVAL = "source: b, target: c, topics: '.+y', policy: identity"


def ensure(remotes: RemoteTopics, names: Iterable[str], partitions: int = 1) -> None:
    known = {name: KnownTopic(name=name, partitions=partitions) for name in names}
    remotes.ensure([SourcePartition(name, 0, 0) for name in known], known, mirrored_before=())


def test_five_hundred_topics_take_a_few_calls_none_larger_than_a_controller_takes_and_one_look_at_the_lake() -> None:
    target, audit, lake = Target(), Written(), Topics([f"q{n}y" for n in range(500)])
    remotes = remote_topics(target, audit, lake, MINE, RIVAL)
    names = [f"x{n}" for n in range(500)]
    ensure(remotes, names)
    assert target.requests == [100] * 5
    assert target.calls == {"describe": 2, "topic_names": 1, "create": 5, "wait": 5, "settings": 1}
    assert [len(rows) for rows in audit.appends] == [500]
    assert lake.asked == 1
    assert remotes.of(["x7"]) == {"x7": Remote("x7", "x7")}
    assert remotes.batch_bytes() == 2000 - 512
    target = Target()
    ensure(remote_topics(target, Written(), Topics(()), MINE), [f"x{n}" for n in range(5)], partitions=200)
    assert target.requests == [2, 2, 1]


def test_what_stands_in_the_way_of_one_topic_is_named_after_the_others_were_made() -> None:
    small = TopicState(name="x2", topic_id="2", partitions=1)
    target, audit, lake = Target([small], refuses={"x5"}), Written(), Topics(["x3y", "other"])
    remotes = remote_topics(target, audit, lake, MINE, RIVAL)
    with pytest.raises(ClusterError, match="create topic x5"):
        ensure(remotes, ["x5", "x1", "x2", "x3y", "x.4", "x_4", "x6"], partitions=3)
    assert audit.appends == [["create x1", "create x.4", "create x6"]]
    with pytest.raises(TopicConflict, match=r"x2 exists on c with 1 partitions"):
        ensure(remotes, ["x2", "x3y"], partitions=3)
    assert audit.reads == 2, "once a call"
    with pytest.raises(TopicConflict, match=r"a->c \(x3y\) and b->c \(x3y\) both write x3y"):
        ensure(remotes, ["x1", "x3y"], partitions=3)
    with pytest.raises(TopicConflict, match=r"x_4 .* differs from x.4 in"):
        ensure(remotes, ["x_4"])


@pytest.mark.law("F")
def test_law_f_a_topic_that_holds_records_is_never_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    target, audit = Target(), Written()
    remotes = remote_topics(target, audit, Topics(()), MINE)
    remotes.expect([Remote("x1", "AAAAAAAAAAAAAAAAAAAAAA")])
    monkeypatch.setattr("mirrorlake.topics.remote_topics.check_topic_ids", lambda *_, **__: None)
    with pytest.raises(RemoteTopicLost, match="x1"):
        ensure(remotes, ["x1", "x2"])
    assert audit.appends == [["create x2"]], "it was deleted after the look"


def test_each_change_is_told_when_it_is_done_and_the_one_that_is_refused_is_not() -> None:
    after = {"partitions": 1, "configs": {}}
    topics = [Change(where="central", kind="topic", name=f"t{n}", action="create", after=after) for n in range(3)]
    acl = Change(where="central", kind="acl", name="a", action="delete")
    told: list[tuple[str, int, int | None, str]] = []

    def tell(phase: str, done: int, total: int | None, unit: str = "records") -> None:
        told.append((phase, done, total, unit))

    audit, admins = Written(), {"central": Target(refuses={"t1"})}
    with pytest.raises(ClusterError):
        carry_out([*topics, acl], admins=cast("Any", admins), audit=cast("Any", audit), tell=tell)
    changed = [("change topics on central", done, 3, "topics") for done in (1, 2)]
    assert told == [*changed, ("change acls on central", 1, 1, "acls")]
    assert audit.appends == [["create t0", "create t2", "delete a"]], "one that is refused stops no other"
