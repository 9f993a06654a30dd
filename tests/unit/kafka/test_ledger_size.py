"""A full ledger record carries all positions of its lane: how large may a flow become?"""

from __future__ import annotations

import pytest

from mirrorlake.kafka.lane.ledger_reader import LEDGER_CONFIGS
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.remotes import Remote

# The longest name that Kafka takes, with a prefix on the target.
_LONGEST = 249


def run_of(source: SourcePartition) -> MappedRange:
    return MappedRange(
        source=source,
        target=TopicPartition(f"e.{source.topic}", source.partition),
        first_upstream=10**12,
        last_upstream=10**12 + 99,
        first_downstream=10**12,
        count=100,
    )


@pytest.mark.parametrize("what", ["a claim", "a chunk"])
def test_ten_thousand_partitions_of_the_longest_names_fit_without_compression(what: str) -> None:
    """A claim carries all lanes' positions; a chunk half of them, and at worst a run of each."""
    names = [f"{number:04}".ljust(_LONGEST - 2, "n") for number in range(1000)]
    sources = [SourcePartition(name, 1, partition) for name in names for partition in range(10)]
    carried = sources if what == "a claim" else sources[::2]
    record = LedgerRecord(
        claim=Claim(flow="east->central", lanes=2, epoch=10**12, owner="x" * 36),
        seq=10**9,
        positions=dict.fromkeys(carried, 10**12),
        runs=() if what == "a claim" else tuple(map(run_of, carried)),
        remotes={source.topic: Remote(f"e.{source.topic}", "x" * 22) for source in carried},
        committed_at_ms=10**12,
    )
    written = record.to_json()
    assert LedgerRecord.from_json(written) == record
    assert len(written) < int(LEDGER_CONFIGS["max.message.bytes"]) / 2
