"""What of a piece goes out, where to, and what is withheld: the flow's view, and what librdkafka cannot send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from mirrorlake.errors import UnsendableRecord
from mirrorlake.kafka.lane.batch import Piece
from mirrorlake.kafka.lane.columns import Unsendable, unsendable_rows
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.withheld import QUARANTINED, Withheld, ranges_of
from mirrorlake.rules.view import View, Viewed

UNSENDABLE = "unsendable"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The parts of a piece that go out, one a target partition, and the records that do not.

    `is_placed` where the view chose the partitions: other lanes then write to them, too.
    """

    pieces: tuple[Piece, ...]
    withheld: tuple[Withheld, ...]
    is_placed: bool


def outgoing(
    piece: Piece, view: View | None, *, quarantines: bool, refused: Mapping[int, str] = MappingProxyType({})
) -> Outgoing:
    """Build the records to send of a piece, and list those to withhold.

    Args:
        piece: records of one source partition; `target` names the remote topic.
        view: the flow's view, None where records go out as they are.
        quarantines: withhold what cannot be sent unchanged; otherwise the sender raises when it meets it.
        refused: upstream offsets of records that the target has refused, and why; they are withheld, too.
    """
    viewed = Viewed(records=piece.records) if view is None else view(piece.source, piece.records)
    if quarantines:
        viewed = _sendable(piece, viewed, refused)
    return Outgoing(tuple(_by_partition(piece, viewed)), viewed.withheld, viewed.partitions is not None)


def _sendable(piece: Piece, viewed: Viewed, refused: Mapping[int, str]) -> Viewed:
    rows = unsendable_rows(viewed.records)
    offsets = viewed.records.column("offset").to_numpy(zero_copy_only=False)
    rows |= {int(row): refused[int(offsets[row])] for row in np.flatnonzero(np.isin(offsets, list(refused)))}
    if not rows:
        return viewed
    by_reason: dict[str, list[int]] = {}
    for row, why in sorted(rows.items()):
        by_reason.setdefault(why, []).append(int(offsets[row]))
    keep = np.ones(len(offsets), dtype=bool)
    keep[list(rows)] = False
    return Viewed(
        records=viewed.records.filter(pa.array(keep)),
        withheld=(
            *viewed.withheld,
            *(
                Withheld(
                    source=piece.source,
                    kind=QUARANTINED,
                    rule=UNSENDABLE,
                    version="",
                    ranges=ranges_of(found),
                    reason=why,
                )
                for why, found in by_reason.items()
            ),
        ),
        partitions=None if viewed.partitions is None else viewed.partitions[keep],
    )


def _by_partition(piece: Piece, viewed: Viewed) -> Iterator[Piece]:
    if not len(viewed.records):
        return
    if viewed.partitions is None:
        yield Piece(piece.source, piece.target, viewed.records)
        return
    # A key has one partition, so its records stay in order although partitions are sent one after another (law D).
    for partition in np.unique(viewed.partitions).tolist():
        rows = np.flatnonzero(viewed.partitions == partition)
        records = viewed.records if len(rows) == len(viewed.records) else viewed.records.take(pa.array(rows))
        yield Piece(piece.source, TopicPartition(piece.target.topic, partition), records)


def refusal(piece: Piece, problem: Unsendable, *, flow: str) -> UnsendableRecord:
    """Return the error for a record that cannot be sent unchanged."""
    offset = int(piece.offsets()[problem.row])
    return UnsendableRecord(
        f"record {piece.source}@{offset} cannot be sent to {piece.target} unchanged: {problem.why}",
        consequence=f"{flow} stopped before it; the relay holds the record",
        remedy="look at it in the relay, then set unsendable: quarantine on the flow to keep such records back and go on, "
        f"or leave the topic out with exclude_topics: [{piece.source.topic}]",
        topic=piece.source.topic,
        partition=piece.source.partition,
        offset=offset,
    )
