"""The divergent tail in a folder's relay, the view that steps over it, groups on their way home, and the verdicts of a drill."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.failover.divergent_tail import SkipTailView
from mirrorlake.failover.drill import DrillReport
from mirrorlake.failover.groups_back import _resume
from mirrorlake.failover.loss import PossibleLoss
from mirrorlake.failover.report import FailoverReport, ProofSummary
from mirrorlake.kafka import Committed
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.rules.view import Viewed
from tests.builders import NOON, ORDERS, batch_of

TARGET = TopicPartition("east.orders", 0)


def test_the_flows_own_view_comes_first() -> None:
    class Half:
        version = "12345678"

        def __call__(self, _: SourcePartition, records: Any) -> Viewed:
            return Viewed(records=records.slice(4))

    view = SkipTailView(Half(), {ORDERS: (2, 5)}, "why")
    viewed = view(ORDERS, batch_of(range(8), values=[b""] * 8))
    assert viewed.records.column("offset").to_pylist() == [5, 6, 7]
    assert viewed.withheld[0].ranges.pairs == ((4, 1),), "what the flow itself left out is its own account"
    assert view.version == "12345678"


@pytest.mark.law("A")
def test_law_a_a_group_goes_home_after_what_it_has_read_and_before_what_it_has_not() -> None:
    held = {TARGET: Committed(20)}
    home = _resume(ORDERS, [TARGET], held, {((TARGET, ORDERS), 20): (30, 35)})
    assert (home.downstream_offset, home.exact, home.records_again) == (31, True, 0)
    nothing = _resume(ORDERS, [TARGET], held, {})
    assert nothing.downstream_offset is None
    # Placed by key: it has read one partition further than the other, on which it has committed nothing.
    second = TopicPartition("east.orders", 1)
    uneven = _resume(
        ORDERS, [TARGET, second], held, {((TARGET, ORDERS), 20): (30, None), ((second, ORDERS), 0): (None, 12)}
    )
    assert (uneven.downstream_offset, uneven.exact, uneven.records_again) == (12, False, None)


def drilled(**more: Any) -> DrillReport:
    over = FailoverReport(
        flow="f.drill",
        source="east",
        target="scratch",
        state="done",
        proof=ProofSummary(verified=9),
        partitions=(PossibleLoss(topic="orders", generation=1, partition=0, landed=9, republished=9),),
        rpo_s=2.0,
        rto_s=40.0,
        **more,
    )
    return DrillReport(flow="f", scratch="scratch", began_at=NOON, ended_at=NOON, records=9, fill_s=1.0, failover=over)


def test_a_drill_fails_where_one_objective_is_missed() -> None:
    assert drilled().passed
    assert drilled(objective_rto_s=60.0).passed
    missed = drilled(objective_rpo_s=1.0)
    assert not missed.passed
    assert [one.objective for one in missed.verdicts if one.result == "fail"] == ["RPO"]
    assert "failed" in str(missed)
    assert missed.as_dict()["rpo_s"] == 2.0
