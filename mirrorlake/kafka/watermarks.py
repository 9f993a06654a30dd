"""Read the high watermarks of the same partitions repeatedly, at a low CPU cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from mirrorlake.kafka.errors import ClientErrors, client_log
from mirrorlake.kafka.reach import probe
from mirrorlake.model import flow

Offsets = npt.NDArray[np.int64]
# librdkafka searches its answer for each requested partition: 1 000 in one call cost 6 ms, in ten calls 2 ms.
_BATCH_SIZE = 100
# A client's errors about absent brokers vary and come late; probing their addresses tells at once.
_FIRST_TIMEOUT_S, _TIMEOUT_S = 0.25, 2.0
_NO_ANSWER = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}  # noqa: SLF001  librdkafka's own


class SourceSilent(Exception):
    """No broker of the source answers."""


class WatermarkReader:
    """Read high watermarks and leader epochs; close it, or use it in a `with` block.

    It has its own connections: on a consumer's, the broker's answer would wait behind a pending fetch.
    """

    def __init__(self, alias: str, options: Mapping[str, Any], partitions: Sequence[flow.TopicPartition]) -> None:
        self._alias = alias
        self._errors = ClientErrors.from_options(alias, options)
        self._asked = [TopicPartition(tp.topic, tp.partition, OFFSET_END) for tp in partitions]
        self._consumer = Consumer(
            {
                **self._errors.with_error_callback(),
                "isolation.level": "read_uncommitted",
                "enable.auto.commit": "false",
            },
            logger=client_log,
        )

    def __enter__(self) -> WatermarkReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> tuple[Offsets, Offsets]:
        """Return high watermark and leader epoch of each partition, -1 if its leader does not answer.

        Raises:
            SourceSilent: no broker answers.
        """
        found = []
        # The client's log lines wait for a poll.
        self._consumer.poll(0)
        try:
            for at in range(0, len(self._asked), _BATCH_SIZE):
                found += self._read_batch(self._asked[at : at + _BATCH_SIZE])
        except KafkaException:
            return self._read_each()
        return _column(found, "offset"), _column(found, "leader_epoch")

    def _read_batch(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        """Request the watermarks of some partitions; the call fails as a whole if one leader does not answer."""
        timeout, deadline = _FIRST_TIMEOUT_S, time.monotonic() + _TIMEOUT_S
        while True:
            try:
                found: list[TopicPartition] = self._consumer.offsets_for_times(asked, timeout=timeout)
            except KafkaException as error:
                timeout *= 2
                if all(probe({self._alias: self._errors.servers})[self._alias].values()):
                    raise SourceSilent from error
                if error.args[0].code() not in _NO_ANSWER or time.monotonic() + timeout > deadline:
                    raise
            else:
                return found

    def _read_each(self) -> tuple[Offsets, Offsets]:
        """Request each partition by itself: eight times the CPU, but one absent leader hides no other."""
        futures = self._admin.list_offsets(
            {one: OffsetSpec.latest() for one in self._asked},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        ends, epochs = np.full((2, len(futures)), -1, np.int64)
        refusals = set[int]()
        for number, future in enumerate(futures.values()):
            try:
                answer = future.result()
            except KafkaException as error:
                refusals.add(error.args[0].code())
                continue
            ends[number] = answer.offset
            epochs[number] = -1 if answer.leader_epoch is None else answer.leader_epoch
        if (ends < 0).all() and refusals <= _NO_ANSWER:
            raise SourceSilent
        return ends, epochs

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(dict(self._errors.options), logger=client_log)


def _column(found: Sequence[TopicPartition], name: str) -> Offsets:
    values = map(attrgetter(name), found)
    return np.fromiter((-1 if value is None else value for value in values), np.int64, len(found))
