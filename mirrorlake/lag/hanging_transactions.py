"""Find partitions that an open transaction blocks: no `read_committed` reader gets past its first record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lag.time_lag import Readers, age_ms
from mirrorlake.lake import from_micros
from mirrorlake.model.flow import TopicPartition
from mirrorlake.render import format_count, format_duration

# The default `transaction.timeout.ms` of Java's producers; an older transaction hangs, or its time-out was set higher.
_HANGS_MS = 60_000
# Each partition costs a fetch.
_MAX_READ = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that blocks a partition for long.

    `offset` is the last stable offset, that of the transaction's first record; `since_ms` is this record's timestamp.
    `offsets` counts from there to the high watermark.
    """

    offset: int
    since_ms: int
    offsets: int

    def describe(self, now: datetime) -> str:
        since = f"{from_micros(self.since_ms * 1000):%H:%M:%S} UTC, {format_duration(age_ms(self.since_ms, now))}"
        offsets = f"{format_count(self.offsets)} offsets from {self.offset} on cannot be read yet"
        return f"a transaction of the source is open since {since}: {offsets}"


def find_hanging_transactions(
    admin: ClusterAdmin, readers: Readers, stable: Mapping[TopicPartition, int], *, now: datetime
) -> dict[TopicPartition, HangingTransaction]:
    """Return the hanging transaction of each partition that has one.

    `stable` are the partitions to check, with their last stable offsets of a moment ago; `readers` see open transactions.
    """
    past = {tp: end for tp, end in admin.high_watermarks(stable).items() if end > stable[tp]}
    # A log that has only grown meanwhile has another last stable offset by now.
    still = admin.last_stable_offsets(past) if past else {}
    found: dict[TopicPartition, HangingTransaction] = {}
    if places := sorted(tp for tp, offset in still.items() if offset == stable[tp])[:_MAX_READ]:
        with readers(admin.alias) as reader:
            for tp in places:
                first = next(reader.read(tp.topic, tp.partition, stable[tp]), None)
                if first is not None and age_ms(first.timestamp_ms, now) >= _HANGS_MS:
                    offsets = past[tp] - stable[tp]
                    found[tp] = HangingTransaction(offset=stable[tp], since_ms=first.timestamp_ms, offsets=offsets)
    return found
