"""Decide what of a batch is sent, where to, and what is withheld: by the flow's view, or because librdkafka cannot send it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from mirrorlake.errors import UnsendableRecord
from mirrorlake.kafka.lane.batch import Batch
from mirrorlake.kafka.lane.columns import Unsendable, unsendable_rows
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.withheld import QUARANTINED, Withheld
from mirrorlake.rules import View, Viewed

UNSENDABLE = "unsendable"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The parts of a batch to send, one per target partition, and its withheld records.

    `is_placed` if the view chose the partitions: other lanes may write to them, too.
    """

    batches: tuple[Batch, ...]
    withheld: tuple[Withheld, ...]
    is_placed: bool


def build_outgoing(
    batch: Batch, view: View | None, *, quarantines: bool, refused: Mapping[int, str] = MappingProxyType({})
) -> Outgoing:
    """Split a batch into the records to send and those to withhold.

    With `quarantines`, records that cannot be sent unchanged are withheld, and so are those that the target has `refused`
    (upstream offset: reason); otherwise the sender raises when it meets them.
    """
    if view is None and not quarantines:
        return Outgoing((batch,) if len(batch.records) else (), (), is_placed=False)
    viewed = Viewed(records=batch.records) if view is None else view(batch.source, batch.records)
    if quarantines:
        viewed = _sendable(batch, viewed, refused)
    return Outgoing(tuple(_by_partition(batch, viewed)), viewed.withheld, viewed.partitions is not None)


def _sendable(batch: Batch, viewed: Viewed, refused: Mapping[int, str]) -> Viewed:
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
                    source=batch.source,
                    kind=QUARANTINED,
                    rule=UNSENDABLE,
                    version="",
                    ranges=Ranges.of(found),
                    reason=why,
                )
                for why, found in by_reason.items()
            ),
        ),
        partitions=None if viewed.partitions is None else viewed.partitions[keep],
    )


def _by_partition(batch: Batch, viewed: Viewed) -> Iterator[Batch]:
    if not len(viewed.records):
        return
    if viewed.partitions is None:
        yield batch if viewed.records is batch.records else Batch(batch.source, batch.target, viewed.records)
        return
    # A key has one partition, so sending one partition after another keeps its records in order (law D).
    for partition in np.unique(viewed.partitions).tolist():
        rows = np.flatnonzero(viewed.partitions == partition)
        records = viewed.records if len(rows) == len(viewed.records) else viewed.records.take(pa.array(rows))
        yield Batch(batch.source, TopicPartition(batch.target.topic, partition), records)


def unsendable_error(batch: Batch, problem: Unsendable, *, flow: str) -> UnsendableRecord:
    offset = int(batch.offsets[problem.row])
    return UnsendableRecord(
        f"record {batch.source}@{offset} cannot be sent to {batch.target} unchanged: {problem.why}",
        consequence=f"{flow} stopped before it; the relay holds the record",
        remedy="set unsendable: quarantine on the flow to quarantine such records and continue, "
        f"or leave the topic out with exclude_topics: [{batch.source.topic}]",
        topic=batch.source.topic,
        partition=batch.source.partition,
        offset=offset,
    )
