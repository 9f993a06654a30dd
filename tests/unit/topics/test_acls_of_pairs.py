"""Law G: ACLs of clusters that mirror each other under one name; what is revoked where it was given does not come back."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import TopicState
from mirrorlake.lake.audit import AuditEntry
from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change
from mirrorlake.topics.acl_plan import acl_plan, clusters_own, read_target
from mirrorlake.topics.topic_plan import BothEnds
from tests.builders import mirror_config
from tests.unit.topics.test_acls import allow

TOPIC = "orders"


class Pair:
    """Two clusters with one topic, their ACLs, and the audit of what mirrorlake did to them."""

    def __init__(self) -> None:
        both = {"topics": TOPIC, "policy": "identity", "sync": {"acls": True}}
        ends = [("east", "west"), ("west", "east")]
        self.config = mirror_config(*({"source": one, "target": other, **both} for one, other in ends))
        self.acls: dict[str, set[Acl]] = {"east": set(), "west": set()}
        self.done: list[tuple[str, AuditEntry]] = []

    def entries(self, where: str, _: str) -> list[AuditEntry]:
        return [entry for alias, entry in self.done if alias == where]

    def plan(self) -> list[Change]:
        return [change for flow in self.config.flows for change in self._plan(flow)]

    def _plan(self, flow: FlowConfig) -> tuple[Change, ...]:
        topic = {TOPIC: TopicState(name=TOPIC, topic_id="x", partitions=1)}
        configs: dict[str, dict[str, str]] = {TOPIC: {}}
        ends = BothEnds(
            source=topic, source_configs=configs, remote=topic, remote_configs=configs, target_names=(TOPIC,)
        )
        cluster: Any = type("Admin", (), {"alias": flow.target, "acls": self})()
        self._listed = flow.target
        audit = cast("Any", self)
        own = clusters_own(sorted(self.acls[flow.source]), flow, self.config.flows, audit)
        target = read_target(cluster, audit)
        return acl_plan(flow, ends, source=own, target=target, known=[TOPIC], all_flows=self.config.flows).changes

    def list(self) -> list[Acl]:
        return sorted(self.acls[self._listed])

    def apply(self) -> None:
        for change in self.plan():
            acl = Acl(**(change.after or change.before))
            if change.action == "create":
                self.acls[change.where].add(acl)
            elif change.action == "delete":
                self.acls[change.where].discard(acl)
            entry = AuditEntry(
                object=str(acl), action=change.action, flow=change.flow, before=change.before, after=change.after
            )
            self.done.append((change.where, entry))


@pytest.mark.law("G")
def test_law_g_what_is_revoked_on_one_of_a_pair_does_not_come_back_from_the_other() -> None:
    pair, read, write = Pair(), allow(TOPIC), allow(TOPIC, "ALL", principal="User:etl")
    pair.acls["east"] = {read, write}
    pair.apply()
    described = {allow(TOPIC, operation, principal="User:etl") for operation in ("READ", "DESCRIBE")}
    assert pair.acls == {"east": {read, write}, "west": {read, *described}}
    assert pair.plan() == []
    pair.acls["east"].discard(read)
    pair.apply()
    assert pair.acls == {"east": {write}, "west": described}, "a revoked permission comes back"
    mine = allow(TOPIC, principal="User:west")
    pair.acls["west"].add(mine)
    pair.apply()
    assert pair.acls == {"east": {write, mine}, "west": {*described, mine}}
    assert pair.plan() == []
