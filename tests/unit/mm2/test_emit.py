"""Offset syncs of a remote topic that was lost and is sent again; a ledger and a topic in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import Mm2Writer
from mirrorlake.mm2.emit import SyncFeed
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.mm2 import OffsetSync
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.model.remotes import Remote
from tests.builders import ORDERS, ledger_record, run


class Topic(Mm2Writer):
    """Keep what would be written; `held` is what the topic held before."""

    def __init__(self, flow: FlowConfig, held: list[OffsetSync]) -> None:
        super().__init__(flow, SimpleNamespace(), producer_options={}, reader_options={}, now_ms=int)  # type: ignore[arg-type]
        self.held = held

    def _load(self, *_: Any, **__: Any) -> list[Any]:
        return list(self.held)

    def _write(self, records: Any) -> int:
        self.held += [OffsetSync.from_record(key, value) for _, key, value, _ in records]
        return len(records)


class Ledger:
    """One lane, whose records are told."""

    def __init__(self, records: list[LedgerRecord]) -> None:
        self.records = records

    def ends(self, _: int) -> tuple[int, int]:
        return 0, len(self.records)

    def since(self, _: int, offset: int) -> list[tuple[int, LedgerRecord]]:
        return [*enumerate(self.records)][offset:]


def record(epoch: int, position: int, life: str, *runs: MappedRange) -> LedgerRecord:
    remotes = {"orders": Remote("east.orders", life)}
    return ledger_record(epoch=epoch, positions={ORDERS: position}, remotes=remotes, runs=runs)


def emitted(ledger: list[LedgerRecord], held: list[OffsetSync]) -> list[OffsetSync]:
    """Return what a mirror that starts now adds to the topic, and check that it adds nothing when it starts again."""
    flow = FlowConfig(source="east", target="central", topics="orders").bound_to(TopicPattern(), adds_hops=False)
    states: Any = SimpleNamespace(describe=lambda names: {name: SimpleNamespace(partitions=1) for name in names})
    found: list[list[OffsetSync]] = []
    for _ in range(2):
        feed, topic = SyncFeed(flow, states, {}), Topic(flow, list(held))
        feed._ledger = Ledger(ledger)  # type: ignore[assignment]
        feed.emit(topic)
        found.append(topic.held[len(held) :])
        held = topic.held
    assert found[1] == [], "law G"
    return found[0]


OLD = [OffsetSync("orders", 0, 0, 0), OffsetSync("orders", 0, 99, 99)]
SENT = record(1, 100, "old", run(0, 99))


@pytest.mark.law("A")
def test_law_a_a_remote_topic_that_is_sent_again_begins_again() -> None:
    """The relay lost the first 40 records meanwhile, so that all stand 40 places before where they stood."""
    again = [SENT, record(2, 0, "new"), record(2, 60, "new", run(40, 59, 0))]
    first = emitted(again, OLD)
    assert first == [OffsetSync("orders", 0, 40, 0), OffsetSync("orders", 0, 59, 19)], "the present topic ends at 20"
    further = [*again, record(2, 150, "new", run(60, 149, 20))]
    assert emitted(further, OLD)[0] == OffsetSync("orders", 0, 40, 0), "a sync that goes back is what readers forget by"
    assert emitted(further[1:], OLD)[0] == OffsetSync("orders", 0, 40, 0), "where the ledger was trimmed"
    assert emitted(further, [*OLD, *first])[-1] == OffsetSync("orders", 0, 149, 109)
