"""Read a flow's ledger: the last record of a lane, or every record from a position on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from mirrorlake.errors import ClusterError, ClusterUnreachable
from mirrorlake.kafka.border import Border, Need, client_log
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.plan import TopicSpec

# A record is bounded by the chunk that it describes; 16 MiB hold a chunk of 100 000 records with a hole between any two.
LEDGER_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "16777216",
}
_POLL_S = 30.0


def ledger_spec(topic: str, lanes: int) -> TopicSpec:
    """Return the ledger topic as it must be: a partition a lane, nothing ever expired."""
    return TopicSpec(name=topic, partitions=lanes, configs=LEDGER_CONFIGS)


class LedgerReader:
    """Read the committed records of one ledger topic; close it, or use it in a `with` block."""

    def __init__(self, alias: str, topic: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self.topic = topic
        self._border = Border.of(alias, options)
        self._need = Need(operation="READ", resource="TOPIC", name=topic)
        self._consumer = Consumer(
            {
                **options,
                # The group is never joined nor committed to; librdkafka only wants the word.
                "group.id": f"mirrorlake.ledger.{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": "10",
            },
            logger=client_log,
        )

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def last(self, lane: int) -> LedgerRecord | None:
        """Return the lane's last committed record, None when there never was one.

        Walks backwards from the end in growing steps: the last offsets of a lane are a record and its commit marker, but
        aborted chunks may lie behind them.
        """
        low, high = self._ends(lane)
        step = 4
        while high > low:
            start = max(low, high - step)
            found = None
            for _, record in self._read(lane, start):
                found = record
            if found is not None or start == low:
                return found
            step *= 8
        return None

    def since(self, lane: int, offset: int) -> list[tuple[int, LedgerRecord]]:
        """Return the committed records of a lane at or after a ledger offset, with their offsets."""
        low, high = self._ends(lane)
        return list(self._read(lane, max(low, offset))) if high > max(low, offset) else []

    def _ends(self, lane: int) -> tuple[int, int]:
        with self._border.errors(f"read the ends of {self.topic}", self._need):
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self.topic, lane), timeout=_POLL_S)
        return int(low), int(high)

    def _read(self, lane: int, start: int) -> Iterator[tuple[int, LedgerRecord]]:
        with self._border.errors(f"read {self.topic}", self._need):
            self._consumer.assign([TopicPartition(self.topic, lane, start)])
            while True:
                message = self._consumer.poll(_POLL_S)
                if message is None:
                    raise ClusterUnreachable(
                        f"cluster {self.alias} did not deliver the ledger {self.topic} within {_POLL_S:.0f} s",
                        consequence="nothing was republished",
                        remedy="run the same command again when the cluster answers",
                        alias=self.alias,
                    )
                problem = message.error()
                if problem is None:
                    yield message.offset(), self._parse(message.value(), lane, message.offset())
                elif problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    return
                elif not problem.retriable():
                    raise self._border.error(problem, f"read {self.topic}", self._need)

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
