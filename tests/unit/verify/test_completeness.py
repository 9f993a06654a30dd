"""What a verification has to look at: ranges, claims, samples, groups of partitions."""

from __future__ import annotations

import numpy as np
import pytest

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.verify.feeds import Feed, FeedKey, FeedTarget
from mirrorlake.verify.hop import range_passes, upstream_of
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import OffsetRange, OffsetRanges
from mirrorlake.verify.unit import group_by_shared_feed

ORDERS = SourcePartition("orders", 1, 0)


@pytest.mark.law("E")
def test_law_e_only_what_left_a_partition_is_gone_in_ranges_that_stay_few() -> None:
    left, held = (TopicPartition("east.orders", number) for number in (0, 1))

    def gone(places: list[tuple[int, int, int]]) -> OffsetRanges:
        """Return what left of ranges: target partition, first offset at both ends, and length."""
        label, first, length = (np.array(column, np.int64) for column in zip(*places, strict=True))
        columns = OffsetColumns(upstream=first, downstream=first, lengths=length, labels=label)
        feed = Feed(key=FeedKey("f", ORDERS), offsets=columns, targets=(FeedTarget(tp=left), FeedTarget(tp=held)))
        return upstream_of(feed, {left: OffsetRange(0, 10_000)})

    assert gone([(0, 1, 2), (0, 7, 2), (1, 10, 3), (0, 20, 5), (1, 30, 1)]) == OffsetRanges([(1, 9), (20, 25)]), (
        "no other record lies between the first two"
    )
    assert gone([(1, 1, 2)]) == OffsetRanges()
    held_lengths = {number: 5 if number in (10, 40) else 1 for number in range(99)}
    many = gone([one for n, length in held_lengths.items() for one in ((0, 10 * n, 2), (1, 10 * n + 4, length))])
    assert len(many) == 16
    assert (many.first, many.end) == (0, 982)
    assert all(
        OffsetRanges([(10 * n, 10 * n + 2)]) & many == OffsetRanges([(10 * n, 10 * n + 2)]) for n in held_lengths
    )
    assert not OffsetRanges([(104, 109), (404, 409)]) & many, "the most records that are held are not among them"


def test_partitions_that_share_a_feed_are_compared_together() -> None:
    a, b, *others = [FeedKey("f", SourcePartition("orders", 1, number)) for number in range(40)]
    remotes = [TopicPartition("east.orders", number) for number in range(40)]
    apart = {tp: frozenset([key]) for tp, key in zip(remotes, [a, b, *others], strict=True)}
    assert sorted(map(len, group_by_shared_feed(apart, 16))) == [8, 16, 16]
    placed = {tp: frozenset([a, b]) for tp in remotes[:30]}
    found = group_by_shared_feed({**placed, remotes[30]: frozenset(others[:1]), remotes[31]: frozenset()}, 16)
    assert [sorted(one) for one in found] == [remotes[:30], remotes[30:32]]


def test_ranges_of_a_partition_come_one_after_another() -> None:
    spans = {"a": OffsetRanges([(0, 1), (5, 6)]), "b": OffsetRanges([(2, 3)]), "c": OffsetRanges()}
    assert list(range_passes(spans)) == [{"a": (0, 1), "b": (2, 3)}, {"a": (5, 6)}]
