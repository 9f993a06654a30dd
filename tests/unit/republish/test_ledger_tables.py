"""What the lake's copies of a ledger hold, and what of the ledger may go then."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.republish.ledger_tables import LedgerCopy
from tests.builders import ledger_record, run


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
    row = SimpleNamespace(name="offset_map", lane=0, seq=held, epoch=1)
    appended: list[Any] = []
    lake = SimpleNamespace(
        ask=lambda *_, **__: [row],
        fence=lambda *_, **__: None,
        append_rows=lambda table, rows, **_: appended.append((table.name, [one["ledger_seq"] for one in rows])),
    )
    ledger = Ledger(*records)
    copy = LedgerCopy(cast("Any", lake), "f", "east")
    copy.trim(cast("Any", ledger), cast("Any", ledger), [0])
    assert ledger.deleted == {TopicPartition("ledger", lane): at for lane, at in trimmed.items()}
    lacking = copy.repair(cast("Any", ledger), cast("Any", ledger), [0])
    assert [one.seq for one in lacking] == [one.seq for one in records if one.seq > held]
    assert ledger.deleted == {TopicPartition("ledger", lane): at for lane, at in repaired.items()}
    assert appended == ([("offset_map", [one.seq for one in lacking])] if lacking else [])
