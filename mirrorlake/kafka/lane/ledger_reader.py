"""Read a flow's ledger: the last record of a lane, or every record from a position on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mirrorlake.errors import ClusterError
from mirrorlake.kafka.record_reader import RecordReader
from mirrorlake.model.ledger import LedgerRecord, supersedes
from mirrorlake.model.plan import TopicSpec

# A record is bounded by the chunk that it describes; 16 MiB hold a chunk of 100 000 records with a hole between any two.
LEDGER_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "16777216",
}


def ledger_spec(topic: str, lanes: int, replication_factor: int | None = None) -> TopicSpec:
    """Return the ledger topic as it must be: a partition a lane, nothing ever expired, replicated like the remote topics."""
    return TopicSpec(name=topic, partitions=lanes, configs=LEDGER_CONFIGS, replication_factor=replication_factor or -1)


class LedgerReader:
    """Read the committed records of one ledger topic; close it, or use it in a `with` block.

    Several ledgers of a cluster may be read through one `records`: opening a consumer costs more than a look.
    """

    def __init__(
        self, alias: str, topic: str, options: Mapping[str, Any], *, records: RecordReader | None = None
    ) -> None:
        self.alias = alias
        self.topic = topic
        self._records = RecordReader(alias, options) if records is None else records

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._records.close()

    def last(self, lane: int, *, epoch: int = 0) -> LedgerRecord | None:
        """Return the lane's newest committed record, None when there never was one; that of `epoch` or a later one.

        Walks backwards from the end in growing steps: the last offsets of a lane are a record and its commit marker, but
        aborted chunks may stand after them, and without transactions records of owners that were replaced (`supersedes`).
        """
        low, high = self.ends(lane)
        step = 4
        while True:
            start = max(low, high - step)
            found: LedgerRecord | None = None
            for _, record in self._read(lane, start):
                found = record if supersedes(record, found) else found
            if start == low or (found is not None and found.claim.epoch >= epoch):
                return found
            step *= 8

    @property
    def unread(self) -> int:
        """How many offsets lie between what was read last and the high watermark: those of an open transaction."""
        return self._records.unread

    def since(self, lane: int, offset: int) -> list[tuple[int, LedgerRecord]]:
        """Return the committed records of a lane at or after a ledger offset, with their offsets.

        Records of owners that were replaced before are left out (`supersedes`).
        """
        low, high = self.ends(lane)
        found: list[tuple[int, LedgerRecord]] = []
        for at, record in self._read(lane, max(low, offset)) if high > max(low, offset) else ():
            if supersedes(record, found[-1][1] if found else None):
                found.append((at, record))
        return found

    def ends(self, lane: int) -> tuple[int, int]:
        """Return the first offset that the lane still holds and the one after its last committed record."""
        return self._records.ends(self.topic, lane)

    def _read(self, lane: int, start: int) -> Iterator[tuple[int, LedgerRecord]]:
        for record in self._records.read(self.topic, lane, start):
            yield record.offset, self._parse(record.value, lane, record.offset)

    def _parse(self, value: bytes | None, lane: int, offset: int) -> LedgerRecord:
        try:
            return LedgerRecord.from_json(value or b"")
        except ValueError as error:
            raise ClusterError(
                f"record {offset} of {self.topic}-{lane} on {self.alias} is not a ledger record",
                consequence="the flow's position cannot be read; nothing was republished",
                remedy=f"find out who else writes to {self.topic}; only the flow's own principal may",
                alias=self.alias,
            ) from error
