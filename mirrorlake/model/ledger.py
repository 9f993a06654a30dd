"""The ledger record: what one lane has republished, in the same transaction as the records themselves.

A record carries the whole position of the lane (the next upstream offset per source partition) and the runs of its own
chunk, so that the last record of a lane is all that a new holder must read. The ledger is the truth, the `offset_map`
table its copy (DESIGN 9).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import Run

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """The state of a lane after one committed chunk.

    `epoch` counts the owners of the flow: a holder that meets a higher epoch than its own has been replaced and stops.
    `seq` counts the records of the lane without a break, so that a missing copy in the table is noticed.
    `checkpoint` numbers the checkpoint location that the owner uses, `batch` is the newest batch sent from it, -1 for none.
    """

    flow: str
    lane: int
    lanes: int
    epoch: int
    owner: str
    seq: int
    checkpoint: int
    batch: int = -1
    positions: Mapping[SourcePartition, int] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    committed_at_ms: int = 0

    def to_json(self) -> bytes:
        """Return the record as compact JSON."""
        return json.dumps(
            {
                "v": VERSION,
                "flow": self.flow,
                "lane": self.lane,
                "lanes": self.lanes,
                "epoch": self.epoch,
                "owner": self.owner,
                "seq": self.seq,
                "checkpoint": self.checkpoint,
                "batch": self.batch,
                "positions": [
                    [tp.topic, tp.generation, tp.partition, offset] for tp, offset in sorted(self.positions.items())
                ],
                "runs": [_run_to_list(run) for run in self.runs],
                "at": self.committed_at_ms,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_json(cls, value: bytes) -> LedgerRecord:
        """Read a record back.

        Raises:
            ValueError: the bytes are no ledger record, or one of a later version.
        """
        try:
            document = json.loads(value)
            if document["v"] != VERSION:
                raise ValueError(f"ledger record of version {document['v']}; this release reads {VERSION}")
            return cls(
                flow=document["flow"],
                lane=document["lane"],
                lanes=document["lanes"],
                epoch=document["epoch"],
                owner=document["owner"],
                seq=document["seq"],
                checkpoint=document["checkpoint"],
                batch=document["batch"],
                positions={SourcePartition(t, g, p): offset for t, g, p, offset in document["positions"]},
                runs=tuple(_run_from_list(item) for item in document["runs"]),
                committed_at_ms=document["at"],
            )
        except (KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"not a ledger record: {value[:80]!r}") from error


def _run_to_list(run: Run) -> list[Any]:
    # Holes as distances: a source with a marker every few records then costs about four bytes a hole.
    flat, last = [], run.first_upstream
    for first, length in run.holes:
        flat += [first - last, length]
        last = first + length
    return [
        *(run.source.topic, run.source.generation, run.source.partition),
        *(run.target.topic, run.target.partition),
        *(run.first_upstream, run.last_upstream, run.first_downstream, run.count, flat),
    ]


def _run_from_list(item: list[Any]) -> Run:
    topic, generation, partition, target, target_partition, first, last, downstream, count, flat = item
    holes, at = [], first
    for distance, length in zip(flat[::2], flat[1::2], strict=True):
        holes.append((at + distance, length))
        at += distance + length
    return Run(
        source=SourcePartition(topic, generation, partition),
        target=TopicPartition(target, target_partition),
        first_upstream=first,
        last_upstream=last,
        first_downstream=downstream,
        count=count,
        holes=tuple(holes),
    )
