"""Read what Kafka Connect stores on a target about MirrorMaker 2: its source offsets and its workers' group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mirrorlake.kafka.record_reader import RecordReader
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.mm2 import Skipped, SourceOffset, decode_all


@dataclass(frozen=True, slots=True)
class StoredOffsets:
    """The last replicated upstream offset by source partition, None after a tombstone.

    `others` are connector and cluster alias of other connectors' offsets, `skipped` records that cannot be read.
    """

    offsets: dict[TopicPartition, int | None] = field(default_factory=dict)
    others: tuple[tuple[str, str], ...] = ()
    skipped: tuple[Skipped, ...] = ()


def stored_offsets(
    reader: RecordReader, topic: str, partitions: Iterable[int], *, connector: str, cluster: str
) -> StoredOffsets:
    """Read Connect's offsets topic to its end.

    Connect partitions the topic by the key's bytes and merges by the decoded key: if one source partition has keys of several
    spellings, the newest record counts. The reader must be `read_committed`: under exactly-once, offsets are part of
    transactions. `cluster` is the source's alias in MirrorMaker's settings.
    """
    newest: dict[TopicPartition, tuple[int, int | None]] = {}
    others: set[tuple[str, str]] = set()
    skipped: list[Skipped] = []
    for partition in partitions:
        for record in reader.read(topic, partition):
            found = decode_all(topic, [record], SourceOffset.from_record)
            skipped += found.skipped
            for offset in found.values:
                if offset is None:
                    continue
                if (offset.connector, offset.cluster) != (connector, cluster):
                    others.add((offset.connector, offset.cluster))
                    continue
                source = TopicPartition(offset.topic, offset.partition)
                if source not in newest or newest[source][0] <= record.timestamp_ms:
                    newest[source] = (record.timestamp_ms, offset.offset)
    return StoredOffsets(
        {source: offset for source, (_, offset) in newest.items()}, tuple(sorted(others)), tuple(skipped)
    )
