"""The steps of a failover in `audit`, and what may be lost by the looks that the lake recorded; no broker, no session."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from mirrorlake.failover import loss
from mirrorlake.failover.loss import PartitionProgress, SourceSeen, estimate_loss, read_source_seen, rpo_seconds
from mirrorlake.failover.operation_context import FAILBACK, FAILOVER, failed_over
from mirrorlake.failover.report import ProofSummary, TopicEndpoints
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landed_mark import LandedMark
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.verify import Difference, VerifyReport
from mirrorlake.procedure import BEGIN, DONE, Journal
from tests.builders import NOON, ORDERS, mirror_config
from tests.kit.lake import LakeBuilder

EAST_TO_CENTRAL = mirror_config({"target": "central"}).flows[0]
FLOW = EAST_TO_CENTRAL.name


def journal_of(lake: Lake, *times: datetime) -> Journal:
    clock = iter(times)
    return Journal(lake, (FAILOVER, FAILBACK), flow=FLOW, where="central", now=lambda: next(clock))


@pytest.mark.law("F")
def test_law_f_an_operation_goes_on_after_its_last_step_whatever_the_clock_says(lake: Lake) -> None:
    journal = journal_of(lake, NOON, NOON - timedelta(hours=3), NOON - timedelta(hours=2))
    begun = journal.begin(FAILOVER, before={"unproven": False})
    frozen = journal.write(begun, "freeze", after={"ends": []})
    assert [step.name for step in frozen.steps] == [BEGIN, "freeze"]
    [found] = journal.operations()
    assert [step.name for step in found.steps] == [BEGIN, "freeze"], "a clock that was set back changes no order"
    assert found.began_at == NOON
    assert found.step(BEGIN) is not None
    assert not found.is_done
    assert failed_over([found]) is None
    journal.write(found, DONE, after={"rpo_s": 1.5})
    assert failed_over(journal.operations()) is not None


@pytest.mark.law("F")
def test_law_f_operations_of_hosts_whose_clocks_disagree_keep_their_order(lake: Lake) -> None:
    minute = timedelta(minutes=1)
    ahead = journal_of(lake, *(NOON + (30 + number) * minute for number in range(4)))
    right = journal_of(lake, *(NOON + number * minute for number in range(8)))
    ahead.write(ahead.begin(FAILOVER), DONE)
    right.write(right.begin(FAILBACK), DONE)
    assert failed_over(right.operations()) is None, "failed over for ever by a clock that is half an hour ahead"
    over = right.write(right.begin(FAILOVER), DONE)
    assert failed_over(ahead.operations()) == failed_over(right.operations())
    assert [one.command for one in right.operations()] == [FAILOVER, FAILBACK, FAILOVER]
    assert right.operations()[-1].id == over.id


def test_the_looks_at_a_source_bound_what_may_be_lost(built: LakeBuilder, lake: Lake) -> None:
    minute = timedelta(minutes=1)
    built.sample(NOON, topic="orders", last_stable=90)
    # Nothing new: no position is written, and the look counts.
    built.sample(NOON + minute).sample(NOON + 2 * minute, topic="orders", last_stable=97)
    built.sample(NOON + 3 * minute, error="away")
    reached = {ORDERS: PartitionProgress(90, 90)}
    seen = read_source_seen(lake, EAST_TO_CENTRAL, reached)
    assert seen.ends == {ORDERS: 97}
    assert seen.answered_at == NOON + 2 * minute
    assert seen.silent_at == NOON + 3 * minute
    assert seen.in_step_at == NOON + minute, "the newest look at which all that was seen is landed now"
    assert rpo_seconds(seen, lost_at=NOON + timedelta(hours=1)) == 120
    [row] = estimate_loss(reached, seen.ends, seen_at=seen.answered_at)
    assert (row.missing, row.seen_end) == (7, 97)
    whole = read_source_seen(lake, EAST_TO_CENTRAL, {ORDERS: PartitionProgress(97, 97)})
    assert whole.in_step_at == NOON + 2 * minute
    assert rpo_seconds(whole, lost_at=NOON + timedelta(hours=1)) == 60, "until the first look without an answer"


@pytest.mark.law("E")
def test_law_e_a_landers_mark_is_newer_than_the_looks(
    built: LakeBuilder, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = timedelta(seconds=1)
    built.sample(NOON, topic="orders", last_stable=90).sample(NOON + 30 * second, error="away")
    mark = LandedMark(landed=(1, 1), complete_at=NOON + 9 * second, answered_at=NOON + 9.5 * second)

    def seen(**changes: Any) -> SourceSeen:
        monkeypatch.setattr(loss, "read_mark", lambda *_: replace(mark, **changes))
        return read_source_seen(lake, EAST_TO_CENTRAL, {ORDERS: PartitionProgress(90, 90)})

    later = NOON + timedelta(hours=1)
    assert rpo_seconds(seen(silent_at=NOON + 10 * second), lost_at=later) == 1
    assert rpo_seconds(seen(), lost_at=later) == 21, "the lander died, too: until the first look without an answer"
    assert seen().ends_at == NOON, "a mark holds no ends"
    behind = {TopicPartition("orders", 0): None}
    assert rpo_seconds(seen(behind=behind), lost_at=later) == 30, "a partition that was not up to date"
    assert rpo_seconds(seen(behind={TopicPartition("users", 0): None}), lost_at=later) == 21
    back = seen(answered_at=NOON + 40 * second, complete_at=NOON + 40 * second)
    assert rpo_seconds(back, lost_at=NOON + 50 * second) == 10, "it has answered since that look"


def test_nobody_looked(lake: Lake) -> None:
    seen = read_source_seen(lake, EAST_TO_CENTRAL, {})
    assert seen == SourceSeen(ends={})
    assert rpo_seconds(seen, lost_at=NOON) is None


def test_where_producers_go_on() -> None:
    back = {"source": "central", "target": "east", "topics": "orders"}
    config = mirror_config({"source": "east", "target": "central", "topics": "orders"}, back)
    open_topic = TopicEndpoints.of("orders", config.flow(FLOW), config.flows)
    assert (open_topic.write_to, open_topic.read_from) == ("orders", ("east.orders", "orders"))
    assert open_topic.goes_back_by == "central->east"
    same = mirror_config({"source": "east", "target": "central", "topics": "orders", "policy": "identity"})
    assert TopicEndpoints.of("orders", same.flow(FLOW), same.flows) == TopicEndpoints(
        topic="orders", write_to="orders", read_from=("orders",)
    )


def test_what_is_landed_after_the_freeze_is_no_difference() -> None:
    def waiting(offset: int, problem: str = "not_republished") -> Difference:
        return Difference(where="relay", problem=problem, topic="orders", partition=0, offset=offset)

    found = VerifyReport(flow=FLOW, equal=False, partitions=(), differences=(waiting(7), waiting(9, "missing")))
    assert ProofSummary.of(found, stops_at={ORDERS: 7}).differences == ("relay: missing orders-0@9",)
    missed = ProofSummary.of(found, stops_at={ORDERS: 8}).differences
    assert len(missed) == 2, "before the freeze it should have been sent"
    assert len(ProofSummary.of(found).differences) == 2
