"""A full ledger record carries all positions of its lane, others what moved: how large may a flow become?"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.kafka.lane import LaneSpec
from mirrorlake.kafka.lane.lane_records import MAX_PARTIAL_RECORDS, LaneRecords
from mirrorlake.kafka.lane.ledger_reader import LEDGER_CONFIGS
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.lanes import of_lane
from mirrorlake.model.ledger import Claim, LedgerRecord, fold
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.remotes import Remote

# The longest name that Kafka takes, with a prefix on the target.
_LONGEST = 249


def record_of(sources: list[SourcePartition], *, with_runs: bool) -> LedgerRecord:
    runs = [
        MappedRange(
            source=source,
            target=TopicPartition(f"e.{source.topic}", source.partition),
            first_upstream=10**12,
            last_upstream=10**12 + 99,
            first_downstream=10**12,
            count=100,
        )
        for source in sources
    ]
    return LedgerRecord(
        claim=Claim(flow="east->central", lanes=2, epoch=10**12, owner="x" * 36),
        seq=10**9,
        positions=dict.fromkeys(sources, 10**12),
        runs=tuple(runs) if with_runs else (),
        remotes={source.topic: Remote(f"e.{source.topic}", "x" * 22) for source in sources},
        committed_at_ms=10**12,
    )


@pytest.mark.parametrize("what", ["a claim", "a chunk"])
def test_ten_thousand_partitions_of_the_longest_names_fit_without_compression(what: str) -> None:
    """A claim carries all lanes' positions; a chunk half of them, and at worst a run of each."""
    names = [f"{number:04}".ljust(_LONGEST - 2, "n") for number in range(1000)]
    sources = [SourcePartition(name, 1, partition) for name in names for partition in range(10)]
    record = record_of(sources if what == "a claim" else sources[::2], with_runs=what == "a chunk")
    written = record.to_json()
    assert LedgerRecord.from_json(written) == record
    assert len(written) < int(LEDGER_CONFIGS["max.message.bytes"]) / 2


def chunk(
    records: LaneRecords, positions: dict[SourcePartition, int], seq: int, moved: Sequence[SourcePartition]
) -> LedgerRecord:
    """Commit a chunk that moved each of these partitions by 100 records."""
    sent = record_of(list(moved), with_runs=True)
    task = LaneSpec(claim=sent.claim, target="central", remotes=sent.remotes)
    reached = {source: positions[source] + 100 for source in moved}
    made = records.make(task, seq, positions=positions, reached=reached, runs=sent.runs, withheld=(), view="")
    records.add(made)
    positions.update(reached)
    return made


def test_what_moved_of_ten_thousand_partitions_takes_less_than_two_kilobytes() -> None:
    names = [f"shop.checkout.events-{number:03}" for number in range(500)]
    sources = [SourcePartition(name, 1, partition) for name in names for partition in range(20)]
    claim = record_of(sources, with_runs=False)
    mine = of_lane(dict.fromkeys(sources, 10**12), 0, lanes=2)
    records, ledger = LaneRecords(), [claim]
    records.open(claim)
    for turn in range(3000):
        moved = [list(mine)[(turn * 97 + number * 611) % len(mine)] for number in range(8)]
        ledger.append(chunk(records, mine, ledger[-1].seq + 1, moved))
    parts = [one for one in ledger if not one.is_whole]
    assert max(len(one.to_json()) for one in parts[:50]) < 2000
    assert len(ledger) - len(parts) == 1 + 3000 // (MAX_PARTIAL_RECORDS + 1)
    last = fold(ledger)
    assert last is not None
    assert (last.positions, last.is_whole) == (mine, True)
    assert max(one.seq - one.base_seq for one in ledger) <= MAX_PARTIAL_RECORDS
