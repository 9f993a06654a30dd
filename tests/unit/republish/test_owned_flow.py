"""What the driver of live lanes takes note of, and when it copies that to the lake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import LaneFenced
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.republish.owned_flow import OwnedFlow
from tests.builders import ledger_record


class Ledger:
    """Lanes of committed records, read from an offset on."""

    def __init__(self, *lanes: list[LedgerRecord]) -> None:
        self.lanes = lanes

    def since(self, lane: int, offset: int) -> list[tuple[int, LedgerRecord]]:
        return list(enumerate(self.lanes[lane]))[offset:]


def committed(lane: int, seq: int, *, epoch: int = 7) -> LedgerRecord:
    return ledger_record(lane=lane, lanes=2, epoch=epoch, seq=seq)


@pytest.fixture
def copied() -> list[list[int]]:
    return []


@pytest.fixture
def owned(copied: list[list[int]]) -> OwnedFlow:
    claim = committed(0, 0).claim
    heard = SimpleNamespace(committed=lambda _: None, passed=lambda _: None)
    return OwnedFlow(
        lake=cast("Any", None),
        settings=cast("Any", SimpleNamespace(listener=heard)),
        topics=cast("Any", None),
        remotes=cast("Any", None),
        copy=cast("Any", SimpleNamespace(add=lambda records: copied.append([one.seq for one in records]))),
        claims=cast("Any", SimpleNamespace(claim=claim, seqs={0: 4, 1: 8}, positions={})),
        settled=cast("Any", None),
        progress=cast("Any", heard),
    )


@pytest.mark.law("F")
def test_law_f_what_was_read_is_copied_later_once_and_in_one_append(owned: OwnedFlow, copied: list[list[int]]) -> None:
    ledger, read_to = Ledger([committed(0, 5)], [committed(1, 9)]), {0: 0, 1: 0}
    owned.keep_since(cast("Any", ledger), read_to, copies=False)
    assert (copied, owned.claims.seqs, read_to) == ([], {0: 5, 1: 9}, {0: 1, 1: 1})
    ledger.lanes[0].append(committed(0, 6))
    owned.keep_since(cast("Any", ledger), read_to)
    owned.keep_since(cast("Any", ledger), read_to)
    assert copied == [[5, 9, 6]]
    assert owned.keep([committed(1, 10)])
    assert copied == [[5, 9, 6], [10]], "a batch that is sent in between brings its own"


@pytest.mark.law("F")
def test_law_f_a_newer_owner_ends_it(owned: OwnedFlow, copied: list[list[int]]) -> None:
    ledger = Ledger([committed(0, 5)], [committed(1, 9), committed(1, 10, epoch=8)])
    with pytest.raises(LaneFenced):
        owned.keep_since(cast("Any", ledger), {}, copies=False)
    assert copied == [], "its heir has read the ledger, and copies what the tables lack"
