"""When a source is taken for lost, and what waits to be sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterUnreachable, LoginRefused, MirrorlakeError
from mirrorlake.failover.loss import PartitionProgress, read_flow_progress
from mirrorlake.failover.operation_context import OperationContext
from mirrorlake.model.patterns import TopicPattern
from tests.builders import ORDERS
from tests.kit.lake import LakeBuilder


def work_on(says: MirrorlakeError, *, paused: bool = False) -> OperationContext:
    def count() -> int:
        raise says

    pause = SimpleNamespace(who="ann") if paused else None
    state = SimpleNamespace(of_cluster=lambda _: pause)
    flow = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "orders"})
    context: Any = SimpleNamespace(
        admin=lambda _: SimpleNamespace(broker_count=count), control=lambda: SimpleNamespace(state=lambda: state)
    )
    return OperationContext(context=context, flow=flow, journal=cast("Any", None), wait=lambda _: None)


def test_a_source_that_refuses_the_login_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "restart_timeout_s=0")
    assert work_on(ClusterUnreachable("connection refused")).unreachable_reason("east") == "connection refused"
    refused = LoginRefused("cluster east: SASL fails", remedy="check sasl.password", alias="east", layer="SASL")
    with pytest.raises(LoginRefused, match="east is not lost, and nothing was done") as said:
        work_on(refused).unreachable_reason("east")
    assert "check sasl.password; " in said.value.remedy
    assert "mirrorlake pause --cluster east" in said.value.remedy
    assert "paused by ann" in work_on(refused, paused=True).unreachable_reason("east"), "a person has given it up"


@pytest.mark.law("E")
def test_law_e_what_left_the_relay_before_it_was_sent_does_not_wait(built: LakeBuilder) -> None:
    # 8 was a marker, and 9 was landed and erased.
    lake = built.land("orders", 0, range(8)).position("landed", 10).observe("orders").lake
    there = work_on(ClusterUnreachable("gone"))
    flow = there.flow.bound_to(TopicPattern(), adds_hops=False)
    there.context.lake = lake  # type: ignore[misc]
    assert there.unsent(flow, {ORDERS: 8}) == [], "a failover would be refused for ever"
    assert there.unsent(flow, {ORDERS: 6}) == [(ORDERS, 4)]
    assert there.unsent(flow, {}) == [(ORDERS, 10)]
    assert read_flow_progress(lake, flow, {ORDERS: 8}) == {ORDERS: PartitionProgress(10, 10)}, "nothing is lost"
    assert read_flow_progress(lake, flow, {ORDERS: 6}) == {ORDERS: PartitionProgress(10, 6)}
    built.land("orders", 0, [10, 11])
    assert there.unsent(flow, {ORDERS: 8}, {ORDERS: 10}) == [], "what came later is not what was held then"
    assert there.unsent(flow, {ORDERS: 8}) == [(ORDERS, 4)]
