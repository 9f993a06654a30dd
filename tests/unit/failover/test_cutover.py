"""When groups have their place for a cutover."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mirrorlake.failover.cutover import Cutover
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan, Resume, decide
from tests.builders import ORDERS


def test_a_group_that_has_read_on_at_the_target_need_not_run_for_a_cutover() -> None:
    remote = TopicPartition("east.orders", 0)
    resume = Resume(source=ORDERS, upstream_offset=25, target=remote, downstream_offset=25, exact=True)

    def line(at: int | None, *, was_placed: bool) -> str:
        plan = GroupPlan("f", (decide("billing", resume, metadata="", target_offset=at, is_active=False),))
        desk: Any = SimpleNamespace(
            flow=SimpleNamespace(name="f", target="central"),
            hands=SimpleNamespace(groups=lambda *_, **__: SimpleNamespace(apply=lambda: plan)),
            clusters=SimpleNamespace(groups=lambda _: SimpleNamespace(active=set)),
        )
        planned: Any = None
        return Cutover(desk, plan=planned)._groups(was_placed=was_placed).state

    assert line(25, was_placed=False) == "ok"
    assert line(40, was_placed=True) == "ok", "it was placed at 25, and has read on"
    assert line(40, was_placed=False) == "open", "nobody knows what it has read there"
