"""What the lake's copies of a ledger hold, and what of the ledger may go then."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema import FlowConfig
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.offset_map import MappedRange, OffsetMap
from mirrorlake.model.remotes import Remote
from mirrorlake.offsets import to_mapped_range
from mirrorlake.republish import LedgerCopy, fate_rows
from tests.builders import ledger_record, run, run_over


def record(seq: int, full_seq: int | None = None, *, epoch: int = 1) -> LedgerRecord:
    """Return a record that sent something; one of what moved where `full_seq` is given."""
    sent = ledger_record(seq=seq, epoch=epoch, runs=(run(seq, seq, 2 * seq),))
    return replace(sent, full_seq=full_seq, is_whole=full_seq is None)


class Ledger:
    """One lane of a ledger whose records stand at every second offset; what is deleted is remembered."""

    topic = "ledger"

    def __init__(self, *records: LedgerRecord) -> None:
        self._records = records
        self.deleted: dict[TopicPartition, int] = {}

    def since(self, _: int, offset: int) -> list[tuple[int, LedgerRecord]]:
        return [(2 * at, one) for at, one in enumerate(self._records)][offset:]

    def delete_records_before(self, keep: dict[TopicPartition, int]) -> None:
        self.deleted = keep


@pytest.mark.law("F")
@pytest.mark.parametrize(
    ("records", "held", "trimmed", "repaired"),
    [
        ([record(0), record(1, 0), record(2, 0)], 2, {}, {}),
        ([record(0), record(1, 0), record(2), record(3, 2), record(4, 2)], 4, {0: 4}, {0: 4}),
        # A running flow has not copied all: a repair copies it first.
        ([record(0), record(1, 0), record(2), record(3, 2), record(4)], 1, {0: 4}, {0: 8}),
        ([record(3, 0), record(4, 0), record(5, 0)], 5, {}, {}),
    ],
)
def test_law_f_the_last_full_record_and_what_follows_it_is_never_deleted(
    records: list[LedgerRecord], held: int, trimmed: dict[int, int], repaired: dict[int, int]
) -> None:
    row = SimpleNamespace(lane=0, seq=held, epoch=1)
    appended: list[Any] = []
    lake = SimpleNamespace(
        query=lambda *_, **__: [row],
        fence=lambda *_, **__: None,
        append=lambda table, rows, **_: appended.append((table.name, [one["ledger_seq"] for one in rows])),
    )
    ledger = Ledger(*records)
    copy = LedgerCopy(cast("Any", lake), FlowConfig(name="f", source="east", target="central", topics="t"))
    copy.trim(cast("Any", ledger), cast("Any", ledger), [0])
    assert ledger.deleted == {TopicPartition("ledger", lane): at for lane, at in trimmed.items()}
    lacking = copy.repair(cast("Any", ledger), cast("Any", ledger), [0])
    assert [one.seq for one in lacking] == [one.seq for one in records if one.seq > held]
    assert ledger.deleted == {TopicPartition("ledger", lane): at for lane, at in repaired.items()}
    assert appended == ([("offset_map", [one.seq for one in lacking])] if lacking else [])


def chunk(seq: int, sent: MappedRange, **more: Any) -> LedgerRecord:
    return ledger_record(**{"seq": seq, "runs": (sent,), "committed_at_ms": 1000 + 10 * seq, **more})


@pytest.mark.parametrize(
    "second",
    [
        chunk(6, run(10, 19, 111)),
        chunk(6, run(10, 19, 110), epoch=2),
        chunk(6, run(10, 19, 110), view="other"),
        chunk(6, run(10, 19, 110), remotes={"orders": Remote("east.orders", "x2")}),
        chunk(6, run(10, 19, 110), lane=1, lanes=2),
        chunk(6, run(10, 19, 110, target=TopicPartition("east.orders", 1))),
        chunk(6, run(10, 19, 110), committed_at_ms=2051),
    ],
    ids=["marker", "owner", "view", "topic", "lane", "target", "time"],
)
def test_runs_of_another_transaction_owner_topic_or_second_are_rows_of_their_own(second: LedgerRecord) -> None:
    assert [row["ledger_seq"] for row in fate_rows("f", [chunk(5, run(0, 9, 100)), second])] == [5, 6]


@pytest.mark.law("A", "B")
@given(st.lists(st.tuples(st.sets(st.integers(0, 15), min_size=1), st.integers(0, 1)), min_size=1, max_size=8))
def test_laws_a_b_joined_rows_translate_as_the_runs_did(sent: list[tuple[set[int], int]]) -> None:
    runs, downstream = list[MappedRange](), 0
    for number, (offsets, gap) in enumerate(sent):
        downstream += gap
        runs.append(run_over(sorted(16 * number + offset for offset in offsets), downstream))
        downstream += len(offsets)
    rows = fate_rows("f", [chunk(seq, one) for seq, one in enumerate(runs)])
    joined = [to_mapped_range(SimpleNamespace(**row)) for row in rows]
    assert len(joined) == 1 + sum(gap for _, gap in sent[1:])
    before, now = OffsetMap(runs), OffsetMap(joined)
    assert max(row["ledger_seq"] for row in rows) == len(runs) - 1
    for offset in range(16 * len(sent)):
        assert now.translate(offset) == before.translate(offset)
    for offset in range(downstream + 1):
        place = runs[0].target
        assert now.translate_back(offset, partition=place) == before.translate_back(offset, partition=place)


@pytest.mark.law("F")
def test_law_f_a_repair_joins_only_what_the_table_lacks() -> None:
    """Killed between two appends: the first holds a row up to record 6, and a join of all would hold its records twice."""
    appended: list[Any] = []
    lake = SimpleNamespace(append=lambda _, rows, **__: appended.extend(rows), query=lambda *_, **__: [])
    records = [chunk(seq, run(10 * seq, 10 * seq + 9, 10 * seq)) for seq in range(5, 9)]
    copy = LedgerCopy(cast("Any", lake), FlowConfig(name="f", source="east", target="central", topics="t"))
    copy.add(records[:2])
    copy.add(records)
    assert [(row["first_upstream"], row["last_upstream"], row["ledger_seq"]) for row in appended] == [
        (50, 69, 6),
        (70, 89, 8),
    ]
