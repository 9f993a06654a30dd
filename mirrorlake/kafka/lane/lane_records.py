"""Build the ledger records of a sending lane: partial ones of what moved, and regularly a full one."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import EarlierPositions, LedgerRecord
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.remotes import Remote
from mirrorlake.model.withheld import Withheld

# The most partial records that a reader of a lane must read, and their size as a multiple of the full record's
# (docs/design.md).
MAX_PARTIAL_RECORDS = 250
MAX_PARTIAL_SHARE = 8
# The size of a record without partitions, and of each partition in it; measured with names of 30 characters.
_RECORD_BYTES, _MOVED_BYTES = 400, 130


class LaneRecords:
    """Build the ledger records of one holder of a lane.

    Law F (repeatable): a partial record names the last full record, so a reader notices if that is gone.
    """

    def __init__(self) -> None:
        self._remotes: dict[str, Remote] = {}
        self._earlier: EarlierPositions = {}
        self._full_seq: int | None = None
        self._full_bytes = 0
        self._partial_bytes = 0

    def open(self, last: LedgerRecord | None) -> None:
        """Continue after the lane's newest record, as `fold` returns it; None without one."""
        self._remotes = dict(last.remotes) if last is not None else {}
        self._earlier = last.earlier if last is not None else {}
        self._full_seq = None
        if last is not None:
            self._full_seq, self._full_bytes = last.base_seq, len(last.to_json())
            self._partial_bytes = (last.seq - last.base_seq) * (_RECORD_BYTES + _MOVED_BYTES)

    def make(
        self,
        spec: LaneSpec,
        seq: int,
        *,
        positions: Mapping[SourcePartition, int],
        reached: Mapping[SourcePartition, int],
        runs: tuple[MappedRange, ...],
        withheld: Collection[Withheld],
        view: str,
    ) -> LedgerRecord:
        """Return the record of a chunk that `reached` positions, from the lane's `positions` before it."""
        is_full = (
            self._full_seq is None
            or seq - self._full_seq > MAX_PARTIAL_RECORDS
            or self._partial_bytes >= MAX_PARTIAL_SHARE * self._full_bytes
            # If every partition moved, a full record costs nothing.
            or reached.keys() >= positions.keys()
        )
        written = {**positions, **reached} if is_full else reached
        remotes = {
            topic: remote for topic in {source.topic for source in written} if (remote := self._remote(spec, topic))
        }
        return LedgerRecord(
            claim=spec.claim,
            seq=seq,
            positions=written,
            remotes=remotes,
            earlier=self._earlier if is_full else {},
            runs=runs,
            withheld=tuple(withheld),
            view=view,
            committed_at_ms=int(time.time() * 1000),
            full_seq=None if is_full else self._full_seq,
            is_whole=is_full,
        )

    def add(self, record: LedgerRecord) -> None:
        self._remotes |= record.remotes
        if record.is_whole:
            self._full_seq, self._full_bytes, self._partial_bytes = record.seq, len(record.to_json()), 0
        else:
            self._partial_bytes += _RECORD_BYTES + _MOVED_BYTES * max(len(record.positions), len(record.runs))

    def _remote(self, spec: LaneSpec, topic: str) -> Remote | None:
        return spec.remotes.get(topic) or self._remotes.get(topic)
