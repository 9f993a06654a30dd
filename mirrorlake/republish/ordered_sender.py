"""Send source partitions of a flow in an order that the caller decides, exactly once by the ledger.

Lanes send in parallel, so their records arrive in a target partition in any order. An ordered sender commits one lane after the
other, so the order is the caller's. The flow continues as usual afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from mirrorlake.kafka.lane import Batch, LaneSender
from mirrorlake.lake import RelayFile, read_in_order
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.republish.owned_flow import OwnedFlow
from mirrorlake.topics import target_of

# The offset map is written every 200 transactions; after a crash the missing ones are copied from the ledger.
_TRANSACTIONS_PER_COPY = 200


class OrderedSender:
    """Own a flow's lanes in this process; `Republisher.open_ordered_sender` makes it.

    `files` are those with records that the flow's ledger lacks. This process must be able to read them.
    """

    def __init__(self, owned: OwnedFlow, files: Iterable[RelayFile]) -> None:
        self._owned = owned
        by_source: dict[SourcePartition, list[RelayFile]] = {}
        for file in files:
            by_source.setdefault(file.source, []).append(file)
        positions = owned.claims.positions
        self._readers = {source: _Reader(several, positions.get(source, 0)) for source, several in by_source.items()}
        self._senders: dict[int, LaneSender] = {}
        self._committed: list[LedgerRecord] = []

    def send_up_to(self, source: SourcePartition, last_upstream: int) -> int:
        """Send the unsent records of a source partition up to an upstream offset. Return their number."""
        owned, reader, sent = self._owned, self._readers.get(source), 0
        if reader is None:
            return 0
        lane, target = owned.lane_of(source), target_of(owned.flow, source)
        if lane not in self._senders:
            self._senders[lane] = LaneSender(owned.assign_lane(lane, self._readers.keys()).spec)
        batches = (Batch(source, target, records) for records in reader.read_up_to(last_upstream))
        for record in self._senders[lane].send(batches, owned.settings.view):
            self._committed.append(record)
            sent += sum(run.count for run in record.runs)
        if len(self._committed) >= _TRANSACTIONS_PER_COPY:
            self._record_committed()
        return sent

    def close(self) -> None:
        """Write the sent records to the offset map, and release the lanes."""
        for sender in self._senders.values():
            sender.close()
        self._record_committed()

    def _record_committed(self) -> None:
        committed, self._committed = self._committed, []
        self._owned.record_committed(committed)


class _Reader:
    """Read the files of one source partition once, in parts."""

    def __init__(self, files: Iterable[RelayFile], position: int) -> None:
        self._batches: Iterator[pa.RecordBatch] = read_in_order(files, position=position)
        self._rest: pa.RecordBatch | None = None

    def read_up_to(self, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the records after the previous part, up to an upstream offset."""
        while True:
            batch, self._rest = self._rest or next(self._batches, None), None
            if batch is None:
                return
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            cut = int(np.searchsorted(offsets, last, side="right"))
            if cut < len(batch):
                self._rest = batch.slice(cut)
            if cut:
                yield batch.slice(0, cut)
            if self._rest is not None:
                return
