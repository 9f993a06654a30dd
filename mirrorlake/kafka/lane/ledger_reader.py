"""Read a flow's ledger: a lane's newest record, or every record from an offset on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mirrorlake.errors import ClusterError
from mirrorlake.kafka.record_reader import RecordReader
from mirrorlake.model.ledger import LedgerRecord, fold, supersedes
from mirrorlake.model.plan import TopicSpec

# A record is bounded by its chunk; 16 MiB hold a chunk of 100 000 records with a hole between any two.
LEDGER_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "16777216",
}


def ledger_spec(topic: str, lanes: int, replication_factor: int | None = None) -> TopicSpec:
    """Return the spec of a ledger topic: one partition per lane, unlimited retention, replicated like the remote topics."""
    return TopicSpec(name=topic, partitions=lanes, configs=LEDGER_CONFIGS, replication_factor=replication_factor or -1)


class LedgerReader:
    """Read the committed records of one ledger topic; close it, or use it in a `with` block."""

    def __init__(self, alias: str, topic: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self.topic = topic
        self._records = RecordReader(alias, options)

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._records.close()

    def last(self, lane: int, *, epoch: int = 0, allow_partial: bool = False) -> LedgerRecord | None:
        """Return the lane's newest committed record with all positions of the lane (`fold`), or None if there is none.

        Reads backwards from the end to the last full record, in growing steps: a record and its commit marker are two offsets, but
        aborted chunks may lie between, and without transactions records of fenced owners. Records older than `epoch`, which is known
        to have claimed the lane, do not count.

        Raises:
            ClusterError: the last full record is gone (law F: a reader never takes a part for the whole), unless `allow_partial`.
        """
        low, high = self.ends(lane)
        step = 4
        while True:
            start = max(low, high - step)
            last = fold(record for _, record in self._read(lane, start))
            if start == low or (last is not None and last.is_whole and last.claim.epoch >= epoch):
                break
            step = max(8 * step, 0 if last is None else 2 * (last.seq - last.base_seq) + 8)
        if last is not None and not last.is_whole and not allow_partial:
            raise self._full_record_gone(last)
        return last

    def _full_record_gone(self, last: LedgerRecord) -> ClusterError:
        return ClusterError(
            f"lane {last.claim.lane} of the ledger {self.topic} on {self.alias} lacks its last full record {last.base_seq}: "
            f"record {last.seq} holds only the positions that changed since",
            consequence="the flow's position cannot be read; nothing was republished",
            remedy=f"mirrorlake republish --flow '{last.claim.flow}' --restore-ledger (continues from the furthest position in "
            "the ledger or the lake)",
            alias=self.alias,
        )

    @property
    def unread(self) -> int:
        """How many offsets lie between the last read and the high watermark: those of an open transaction."""
        return self._records.unread

    def since(self, lane: int, offset: int) -> list[tuple[int, LedgerRecord]]:
        """Return the committed records of a lane at or after a ledger offset, with their offsets.

        Records of owners that were fenced before are omitted (`supersedes`).
        """
        low, high = self.ends(lane)
        found: list[tuple[int, LedgerRecord]] = []
        for at, record in self._read(lane, max(low, offset)) if high > max(low, offset) else ():
            if supersedes(record, found[-1][1] if found else None):
                found.append((at, record))
        return found

    def ends(self, lane: int) -> tuple[int, int]:
        """Return the lane's log start offset, and the offset after its last committed record."""
        return self._records.ends(self.topic, lane)

    def _read(self, lane: int, start: int) -> Iterator[tuple[int, LedgerRecord]]:
        for record in self._records.read(self.topic, lane, start):
            yield record.offset, self._parse(record.value, lane, record.offset)

    def _parse(self, value: bytes | None, lane: int, offset: int) -> LedgerRecord:
        try:
            return LedgerRecord.from_json(value or b"")
        except ValueError as error:
            raise ClusterError(
                f"record {offset} of {self.topic}-{lane} on {self.alias} is not a ledger record of this release: {error}",
                consequence="the flow's position cannot be read; nothing was republished",
                remedy=f"find out who else writes to {self.topic}; for a ledger of another release see docs/upgrades.md",
                alias=self.alias,
            ) from error
