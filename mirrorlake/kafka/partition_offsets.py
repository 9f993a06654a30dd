"""Read the offsets of a cluster's partitions, and delete records below an offset."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from mirrorlake.kafka.errors import LEADER_STARTING, ClientErrors, retry_transient
from mirrorlake.kafka.topic_metadata import request_offsets
from mirrorlake.model import flow
from mirrorlake.timing import timing

# A new or moving partition gets its leader in a moment.
_LEADER_UNKNOWN = {*LEADER_STARTING, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}


class PartitionOffsets:
    """Read offsets of one cluster; a partition that does not answer raises (compare `TopicMetadataReader`)."""

    def __init__(self, client: AdminClient, errors: ClientErrors) -> None:
        self._client = client
        self._errors = errors

    def log_start_offsets(self, partitions: Iterable[flow.TopicPartition]) -> dict[flow.TopicPartition, int]:
        return self._offsets(partitions, OffsetSpec.earliest())

    def last_stable_offsets(self, partitions: Iterable[flow.TopicPartition]) -> dict[flow.TopicPartition, int]:
        """Return the last stable offset of each partition: the end that a `read_committed` reader sees."""
        return self._offsets(partitions, OffsetSpec.latest())

    def offsets_for_time(
        self, partitions: Iterable[flow.TopicPartition], timestamp_ms: int
    ) -> dict[flow.TopicPartition, int]:
        """Return the first offset at or after a time in each partition, or its last stable offset if there is none."""
        offsets = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        missing = [partition for partition, offset in offsets.items() if offset < 0]
        return offsets | self.last_stable_offsets(missing)

    def high_watermarks(self, partitions: Iterable[flow.TopicPartition]) -> dict[flow.TopicPartition, int]:
        """Return the high watermark of each partition: its end, open transactions included."""
        return self._offsets(partitions, OffsetSpec.latest(), is_committed=False)

    def high_watermarks_and_epochs(
        self, partitions: Iterable[flow.TopicPartition]
    ) -> dict[flow.TopicPartition, tuple[int, int]]:
        """Return the high watermark and the leader epoch of each partition; the epoch is -1 if it is unknown.

        The epoch grows with every election (KIP-320). While it stays, a log only grows.
        """
        answers = self._list_with_retry(partitions, OffsetSpec.latest(), _LEADER_UNKNOWN, is_committed=False)
        return {
            tp: (int(answer.offset), -1 if answer.leader_epoch is None else int(answer.leader_epoch))
            for tp, answer in answers.items()
        }

    def delete_records_before(self, offsets: Mapping[flow.TopicPartition, int]) -> None:
        """Delete the records below the given offsets (KIP-107)."""
        request = [TopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        if not request:
            return
        with self._errors.translating("delete old ledger records"):
            for future in self._client.delete_records(request, request_timeout=timing().admin_timeout_s).values():
                future.result()

    def _offsets(
        self, partitions: Iterable[flow.TopicPartition], spec: OffsetSpec, *, is_committed: bool = True
    ) -> dict[flow.TopicPartition, int]:
        answers = self._list_with_retry(partitions, spec, LEADER_STARTING, is_committed=is_committed)
        return {tp: int(answer.offset) for tp, answer in answers.items()}

    def _list_with_retry(
        self, partitions: Iterable[flow.TopicPartition], spec: OffsetSpec, transient: Set[int], *, is_committed: bool
    ) -> dict[flow.TopicPartition, Any]:
        wanted = list(partitions)
        isolation = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        with self._errors.translating("read offsets"):
            return retry_transient(transient)(self._list_offsets, wanted, spec, isolation)

    def _list_offsets(
        self, partitions: Collection[flow.TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[flow.TopicPartition, Any]:
        futures = request_offsets(self._client, partitions, spec, isolation)
        return {tp: future.result() for tp, future in futures.items()}
