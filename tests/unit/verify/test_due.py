"""What a verification has to look at: ranges, claims, samples, groups of partitions."""

from __future__ import annotations

import pytest

from mirrorlake.model.flow import SourcePartition
from mirrorlake.verify.hops import claims, passes
from mirrorlake.verify.scope import Known, Scope
from mirrorlake.verify.spans import OffsetSpan, Spans
from mirrorlake.verify.unit import bundles

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
    assert sorted(map(len, bundles(parts))) == [8, 16, 16]
    placed = [(frozenset("ab"), number) for number in range(30)]
    assert [sorted(one) for one in bundles([*placed, (frozenset("c"), 30)])] == [list(range(30)), [30]]


def test_ranges_of_a_partition_come_one_after_another() -> None:
    spans = {"a": Spans([(0, 1), (5, 6)]), "b": Spans([(2, 3)]), "c": Spans()}
    assert list(passes(spans)) == [{"a": (0, 1), "b": (2, 3)}, {"a": (5, 6)}]
