"""What a verification has to look at: ranges, claims, samples, groups of partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.verify import workers
from mirrorlake.verify.feeds import FetchedPart, Way
from mirrorlake.verify.hops import claims, passes
from mirrorlake.verify.places import Places
from mirrorlake.verify.scope import Known, Scope
from mirrorlake.verify.spans import OffsetSpan, Spans
from mirrorlake.verify.unit import FeedWork, Unit, bundles
from mirrorlake.verify.workers import Capacity, SparkJob, Threads

ORDERS = SourcePartition("orders", 1, 0)


@pytest.mark.law("E")
def test_law_e_what_differs_or_is_gone_is_not_claimed() -> None:
    due = Spans([(10, 50), (60, 100)])
    assert claims(due, end=2**62, gone=Spans()) == Spans([(10, 100)]), "what lies between is proven already"
    assert claims(due, doubts=[20], end=90, gone=Spans([(10, 15)])) == Spans([(15, 20), (21, 90)])
    assert claims(Spans(), end=5, gone=Spans()) == Spans()


def test_only_what_is_not_proven_of_the_present_topics_is_due() -> None:
    known = Known(proven={ORDERS: Spans([(0, 40)])}, gone={ORDERS: Spans([(40, 50)])})
    whole = Spans([(0, 100)])
    assert known.left(ORDERS, whole, Scope()) == Spans([(50, 100)])
    assert known.left(ORDERS, whole, Scope(full=True)) == whole


def test_a_sample_takes_about_its_share_and_the_same_by_the_same_seed() -> None:
    whole = Spans([(7, 10_000_000)])
    sampled = Scope(sample=0.05, seed="a").of("east", ORDERS, whole)
    assert sampled == Scope(sample=0.05, seed="a").of("east", ORDERS, whole)
    assert sampled != Scope(sample=0.05, seed="b").of("east", ORDERS, whole)
    assert 0.03 < sampled.size / whole.size < 0.07
    time = Scope(between={"east": {ORDERS: OffsetSpan(5, 9)}})
    assert time.of("east", ORDERS, whole) == Spans([(7, 9)])
    assert not time.of("east", SourcePartition("orders", 1, 1), whole), "nothing of that time"


def test_partitions_that_share_a_feed_are_compared_together() -> None:
    parts = [(frozenset([f"s{number}"]), number) for number in range(40)]
    assert sorted(map(len, bundles(parts, 16))) == [8, 16, 16]
    placed = [(frozenset("ab"), number) for number in range(30)]
    assert [sorted(one) for one in bundles([*placed, (frozenset("c"), 30)], 16)] == [list(range(30)), [30]]


def test_a_job_takes_what_is_very_much_where_there_is_a_session() -> None:
    spans = [OffsetSpan(0, 3_000_000), OffsetSpan(7, 2_000_007)]
    assert isinstance(Capacity().workers(spans), Threads), "no session is started for it"
    session: Any = object()
    assert isinstance(Capacity(session=session).workers(spans[:1]), Threads)
    assert isinstance(Capacity(session=session).workers(spans), SparkJob)
    assert Capacity(session=session).workers(spans).together == 1, "a task a partition"
    assert Capacity(session=session).workers(spans * 500).together == 16, "and one consumer for several of very many"


def test_what_a_task_says_is_small_and_the_asker_has_the_rest() -> None:
    places = Places.unchanged([(OffsetSpan(0, 10), 0)])
    feed = FeedWork(key="f", source=ORDERS, places=places, ways=(Way(target=0),))
    unit = Unit(
        alias="east",
        options={"sasl.password": "secret"},
        partitions=(TopicPartition("east.orders", 0),),
        fetched=(FetchedPart(span=OffsetSpan(3, 3)),),
        feeds=(feed,),
        fed_is_source=True,
    )
    [answer] = workers._compare_in_task((0, unit))
    assert b"secret" not in answer.body
    number, found = workers._said([unit], answer)
    assert (number, found.unit.options, found.unit.feeds[0].places.records) == (0, unit.options, 10)
    wider = replace(unit, fetched=(FetchedPart(span=OffsetSpan(0, 10)),))
    _, found = workers._said([wider], answer)
    assert found.unit.feeds[0].places.records == 0, "what left the cluster meanwhile was not compared"


def test_ranges_of_a_partition_come_one_after_another() -> None:
    spans = {"a": Spans([(0, 1), (5, 6)]), "b": Spans([(2, 3)]), "c": Spans()}
    assert list(passes(spans)) == [{"a": (0, 1), "b": (2, 3)}, {"a": (5, 6)}]
