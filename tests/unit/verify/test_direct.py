"""A feed that reads the source in the relay's place: what it gives, what it leaves out, and what nobody sent; no broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import Fetched, FetchedRows, PositionGone, TopicState
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import LogTruncation
from mirrorlake.verify.direct import SourceFeed, compare_while_deleted, find_before_landing
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRange, OffsetRanges
from mirrorlake.verify.relays import ALL_COLUMNS
from mirrorlake.verify.source_end import compacts, read_available_ranges
from tests.unit.verify.test_stream_comparison import batch

SOURCE = SourcePartition("orders", 1, 0)
TP = TopicPartition("orders", 0)
END = 60


def rows_at(*offsets: int) -> Any:
    return batch([(offset, offset, b"k", b"%d" % offset, None) for offset in offsets])


class Source:
    """A source whose partitions hold offsets 20 to 59."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        return {name: TopicState(name=name, topic_id="s1", partitions=2) for name in names}

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 20)

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, END)


def known(name: str, **given: Any) -> KnownTopic:
    return KnownTopic(name=name, generation=1, topic_id="s1", partitions=2, **given)


@pytest.mark.law("E")
def test_law_e_what_a_log_that_went_back_holds_from_before_is_of_an_earlier_life() -> None:
    recorded = {"orders": known("orders", truncations=(LogTruncation(partition=0, generation=2, first_offset=45),))}
    lives = [SourcePartition("orders", 1, 0), SourcePartition("orders", 2, 0), SourcePartition("orders", 1, 1)]
    assert read_available_ranges(cast("Any", Source()), recorded, lives, default_cleanup="") == {
        lives[1]: OffsetRange(45, END),
        lives[2]: OffsetRange(20, END),
    }


@pytest.mark.law("E")
def test_law_e_a_compacted_source_is_not_read_directly_and_its_relay_is_compared_with_it() -> None:
    policies = {"orders": "delete", "state": "compact,delete"}
    recorded = {name: known(name, configs={"cleanup.policy": policy}) for name, policy in policies.items()}
    recorded["bare"] = known("bare")
    lives = [SourcePartition(name, 1, 0) for name in recorded]
    for default, relayed in (("delete", {"state"}), ("compact", {"state", "bare"})):
        directly = read_available_ranges(cast("Any", Source()), recorded, lives, default_cleanup=default)
        assert {source.topic for source in directly} == recorded.keys() - relayed, f"law E: brokers say {default}"
        compacted = {name for name in (*recorded, "unknown") if compacts(recorded.get(name), default)}
        assert compacted == relayed, f"law E: brokers say {default}"


@pytest.mark.law("E")
def test_law_e_what_precedes_the_landing_is_no_loss_and_what_left_the_relay_does_not_precede_it() -> None:
    held = OffsetRanges([(20, END)])
    assert find_before_landing(SOURCE, 45, OffsetRanges(), held) == OffsetRanges([(20, 45)])
    assert find_before_landing(SOURCE, 10, OffsetRanges(), held) == OffsetRanges()
    assert find_before_landing(SOURCE, 45, OffsetRanges([(0, 30)]), held) == OffsetRanges(), "it had been landed"


@pytest.mark.law("E")
def test_law_e_a_relay_that_lost_its_beginning_does_not_explain_it_by_a_later_landing() -> None:
    held = OffsetRanges([(20, END)])
    assert find_before_landing(SOURCE, 45, OffsetRanges(), held, sent_from=25) == OffsetRanges([(20, 25)]), (
        "25 was sent, so it was landed"
    )
    again = SourcePartition("orders", 2, 0)
    assert find_before_landing(again, 45, OffsetRanges(), held) == OffsetRanges(), (
        "a later life is landed from its beginning"
    )


class OldRelay:
    """A relay that holds offsets 0 to 9 still."""

    def rows(self, _: SourcePartition, span: OffsetRange) -> Iterator[Any]:
        held = [offset for offset in range(10) if span.first <= offset < span.end]
        if held:
            yield rows_at(*held).select(list(ALL_COLUMNS))


def source(span: OffsetRange) -> Iterator[Fetched]:
    """Give seven offsets at a time; every fifth is a marker."""
    for first in range(span.first, span.end, 7):
        offsets = [offset for offset in range(first, first + 7) if offset % 5 and offset < END]
        rows = {TP: pa.Table.from_batches([rows_at(*offsets)])} if offsets else {}
        yield Fetched(FetchedRows.from_tables(rows), {TP: first + 7})


def feed(**given: Any) -> SourceFeed:
    of = {
        "relay": OldRelay(),
        "alias": "east",
        "source": SOURCE,
        "available": OffsetRange(20, END),
        "due": OffsetRanges([(20, END)]),
        "processed": OffsetColumns.identity([(OffsetRange(0, END), 0)]),
        "erased": OffsetRanges(),
        "fetched": source,
    }
    return SourceFeed(**{**of, **given})


def offsets_of(batches: Iterator[Any]) -> list[int]:
    return np.concatenate([one.column("offset").to_numpy() for one in batches]).tolist()


def test_the_source_is_read_where_it_holds_a_range_and_the_relay_before_it() -> None:
    held = [offset for offset in range(20, 50) if offset % 5]
    one = feed()
    assert offsets_of(one.rows(SOURCE, OffsetRange(5, 50))) == [5, 6, 7, 8, 9, *held]
    assert one.unknown == set()
    without = feed(erased=OffsetRanges([(31, 33)]))
    assert offsets_of(without.rows(SOURCE, OffsetRange(20, 50))) == [o for o in held if o not in (31, 32)]


@pytest.mark.law("E")
def test_law_e_what_is_due_and_was_neither_sent_nor_kept_back_is_known_by_offset_also_past_the_last_run() -> None:
    spans = (OffsetRange(0, 30), OffsetRange(33, 40), OffsetRange(42, 44))
    one = feed(processed=OffsetColumns.identity((span, 0) for span in spans), due=OffsetRanges([(20, 49)]))
    list(one.rows(SOURCE, OffsetRange(20, 40)))
    assert one.unknown == {31, 32}
    one.rest()
    assert one.unknown == {31, 32, 41, 44, 46, 47, 48}


@pytest.mark.law("E")
def test_law_e_what_a_source_deletes_meanwhile_is_not_compared_and_the_rest_is() -> None:
    earliest = [20]

    def deleting(span: OffsetRange) -> Iterator[Fetched]:
        if span.first < earliest[0]:
            raise PositionGone("orders-0")
        return source(span)

    def retention_goes_on() -> dict[tuple[str, SourcePartition], OffsetRange]:
        return {("east", SOURCE): OffsetRange(earliest[0], END)}

    one, due = feed(fetched=deleting), list[OffsetRanges]()

    def compare() -> str:
        due.append(one.due)
        earliest[0] = 41
        list(one.rows(SOURCE, OffsetRange(one.due.first, END)))
        return "compared"

    assert compare_while_deleted(compare, [one], retention_goes_on) == "compared"
    assert due == [OffsetRanges([(20, END)]), OffsetRanges([(41, END)])]
    assert one.unknown == set()

    def gone(_: OffsetRange) -> Iterator[Fetched]:
        raise PositionGone("orders-0")

    one.fetched = gone
    with pytest.raises(ClusterError, match="faster than they are read"):
        compare_while_deleted(compare, [one], retention_goes_on)
    one.narrow(OffsetRange(UNBOUNDED, UNBOUNDED))
    assert (one.available, one.due) == (OffsetRange(END, END), OffsetRanges()), "all of it is gone"
