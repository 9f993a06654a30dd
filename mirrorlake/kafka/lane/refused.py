"""Find the records that a target refuses because of their size, or of their topic's settings.

A broker refuses batches by their compressed size, so no record's length proves it guilty. The records of a refused batch, and
those too long to share one, are tried one by one, each in a transaction that is aborted (law E: exactly what cannot be sent
is withheld, and everything else is sent). Without transactions the whole chunk is sent again, each record in a batch of its
own and in order (law D).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from mirrorlake.errors import ClusterError, RecordTooLarge, UnsendableRecord
from mirrorlake.kafka.lane.batch import Batch
from mirrorlake.kafka.lane.faults import is_too_large
from mirrorlake.model.flow import SourcePartition

# The length of a record in a batch: its header, and lengths before key, value and headers.
_OVERHEAD = 128

Refused = Mapping[SourcePartition, Mapping[int, str]]
"""The broker's words by offset, `TOO_LARGE` for a size."""
TOO_LARGE = ""


class RecordsRefused(Exception):
    """The target, or the client before it, refused batches with these records."""

    def __init__(self, records: Refused) -> None:
        self.records = records
        super().__init__(f"{sum(map(len, records.values()))} records in batches that are refused")


def refusal(problem: KafkaError) -> str:
    return TOO_LARGE if is_too_large(problem) else problem.str()


def group_by_source(records: Iterable[tuple[SourcePartition, int, str]]) -> Refused:
    found: dict[SourcePartition, dict[int, str]] = {}
    for source, offset, why in records:
        found.setdefault(source, {})[offset] = why
    return found


def merge_refused(one: Refused, other: Refused) -> Refused:
    return {source: {**one.get(source, {}), **other.get(source, {})} for source in {**one, **other}}


def list_suspects(batches: Iterable[Batch], refused: Refused, *, batch_bytes: int = 2**63 - 1) -> Iterator[Batch]:
    """Yield each record, in upstream order, that was refused, or that is longer than a batch may be."""
    for batch in batches:
        named = np.isin(batch.offsets, list(refused.get(batch.source, ())))
        long = sizes(batch.records) + _OVERHEAD > batch_bytes
        for row in np.flatnonzero(named | long).tolist():
            yield Batch(batch.source, batch.target, batch.records.slice(row, 1))


def sizes(records: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bytes of each record's key, value and headers."""
    total = np.zeros(len(records), dtype=np.int64)
    for name in ("key", "value"):
        lengths = pc.fill_null(pc.binary_length(records.column(name)), 0)
        total += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    headers = records.column("headers")
    if headers.null_count < len(headers):
        for row, pairs in enumerate(headers.to_pylist()):
            total[row] += sum(len(h["key"] or "") + len(h["value"] or b"") for h in pairs or ())
    return total


def refused_error(batch: Batch, why: str, *, flow: str, target: str) -> RecordTooLarge | UnsendableRecord:
    [offset], [size] = batch.offsets.tolist(), sizes(batch.records).tolist()
    if why != TOO_LARGE:
        return UnsendableRecord(
            f"{target} refuses record {batch.source}@{offset} for {batch.target.topic}: {why}",
            consequence=f"{batch.source.topic} stopped before the chunk that holds it; the relay holds the record",
            remedy=f"change what refuses it on {batch.target.topic} (message.timestamp.after.max.ms, cleanup.policy), or set "
            "unsendable: quarantine on the flow to quarantine such records and continue",
            topic=batch.source.topic,
            partition=batch.source.partition,
            offset=offset,
        )
    return RecordTooLarge(
        f"{target} refuses record {batch.source}@{offset} of {size} bytes for {batch.target.topic}: "
        "larger than the topic's max.message.bytes, or than the producer's message.max.bytes",
        consequence=f"{batch.source.topic} stopped before the chunk that holds it; the relay holds the record",
        remedy=f"raise max.message.bytes of {batch.target.topic} on {target} "
        f"(kafka-configs --alter --add-config max.message.bytes={2 * size}), then run the same command again; "
        "or set unsendable: quarantine on the flow to quarantine such records and continue",
        alias=target,
        flow=flow,
        source_topic=batch.source.topic,
        topic=batch.target.topic,
        partition=batch.target.partition,
        offset=offset,
    )


def batches_refused_error(*, flow: str, target: str) -> ClusterError:
    return ClusterError(
        f"{target} refuses records of {flow}, but accepts each of them alone",
        consequence=f"{flow} stopped before the chunk that holds them; the relay holds the records",
        remedy=f"check whether somebody is changing settings of the topics on {target}, then run the same command again",
        alias=target,
    )


def refusal_reason(topic: str, target: str, why: str) -> str:
    if why != TOO_LARGE:
        return f"refused by {topic} on {target}: {why}"
    return f"larger than {topic} on {target} takes (max.message.bytes)"
