"""Find partitions that an open transaction blocks: no `read_committed` reader gets past its first record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lag.time_lag import Readers, age_ms
from mirrorlake.lake import from_micros
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.late_times import relay_us
from mirrorlake.render import format_count, format_duration

# The default `transaction.timeout.ms` of Java's producers; an older transaction hangs, or its time-out was set higher.
HANGS_MS = 60_000
_FIX = (
    "let its producer end it, or where it hangs: kafka-transactions.sh --bootstrap-server {} abort --topic {} --partition {} "
    "--start-offset {} (find-hanging in place of abort tells whether it does)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that blocks a partition: nobody may read on from its first record, whoever wrote the next.

    `offset` is the last stable offset, that of this record, and `since_ms` its timestamp; `offsets` counts up to the high watermark.
    """

    cluster: str
    topic: str
    partition: int
    offset: int
    offsets: int
    since_ms: int
    fix: str

    def describe(self, now: datetime) -> str:
        since = f"{from_micros(self.since_ms * 1000):%H:%M:%S} UTC, {format_duration(age_ms(self.since_ms, now))}"
        offsets = f"{format_count(self.offsets)} offsets from {self.offset} on cannot be read yet"
        return f"a transaction of the source is open since {since}: {offsets}"

    def __str__(self) -> str:
        since = f"{from_micros(self.since_ms * 1000):%Y-%m-%d %H:%M:%S} UTC"
        said = f"{self.topic}-{self.partition} on {self.cluster}: {format_count(self.offsets)} offsets from {self.offset} on"
        return f"{said} are not mirrored, a transaction is open since {since}; next: {self.fix}"


def find_open_transactions(
    admin: ClusterAdmin, readers: Readers, stable: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OpenTransaction]:
    """Return the open transaction of each partition that has one.

    `stable` are the partitions to check, with their last stable offsets of a moment ago; `readers` see open transactions.
    """
    past = {tp: end for tp, end in admin.high_watermarks(stable).items() if end > stable[tp]}
    # A log that has only grown meanwhile has another last stable offset by now.
    still = admin.last_stable_offsets(past) if past else {}
    places = {tp: offset for tp, offset in sorted(still.items()) if offset == stable[tp]}
    if not places:
        return {}
    with readers(admin.alias) as reader:
        firsts = reader.read_each(places)
    return {
        tp: OpenTransaction(
            cluster=admin.alias,
            topic=tp.topic,
            partition=tp.partition,
            offset=places[tp],
            offsets=past[tp] - places[tp],
            since_ms=relay_us(first.timestamp_ms) // 1000,
            fix=_FIX.format(admin.servers, tp.topic, tp.partition, places[tp]),
        )
        for tp, first in sorted(firsts.items())
    }
