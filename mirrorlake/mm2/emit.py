"""MirrorMaker 2's topics as periodic tasks of a flow: heartbeats, and offset syncs from the ledger's exact mapped ranges."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, Mm2Writer, RawRecord, RecordReader
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import LedgerRecord, fold, merged_positions
from mirrorlake.model.mm2 import HEARTBEATS, OffsetSync, is_outdated, syncs_of
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.policy import DefaultPolicy, is_cycle
from mirrorlake.model.remotes import Remote, is_different_topic
from mirrorlake.runtime import PeriodicTask
from mirrorlake.topics import TopicSource

# MirrorMaker searches new topics every 600 s (`refresh.topics.interval.seconds`).
_REFRESH_S = 60.0
# A heartbeats topic repeats itself, so its last minute is enough to begin with.
_TAIL = 60
_UNKNOWN = Remote("")


def mm2_duties(
    flow: FlowConfig,
    writer: Mm2Writer,
    *,
    source: TopicSource,
    target: ClusterAdmin,
    source_options: Mapping[str, Any],
    target_options: Mapping[str, Any],
    landed: Callable[[], int | None],
    beside: Iterable[FlowConfig] = (),
) -> list[PeriodicTask]:
    """Build the periodic tasks that the flow's `mm2` section enables.

    Heartbeats have one writer: of several flows between the same ends (`beside`, in the order of the file) the first
    that enables them, or the flow's own mirroring if it carries `heartbeats` of the source. A heartbeat has the time
    of the last landing (`landed`, in milliseconds since 1970), which exposes a stopped lander. The source is read
    only (law H).
    """
    duties = []
    asking = [each.name for each in beside if each.mm2.heartbeats] or [flow.name]
    if flow.mm2.heartbeats and asking[0] == flow.name:
        relay = HeartbeatRelay(flow, source, source_options)
        carriers = [each for each in (*beside, flow) if _mirrors_heartbeats(each)]

        def beat() -> int:
            at = landed()
            if at is None:
                return 0
            is_mirrored = bool(carriers) and bool(source.describe([HEARTBEATS]))
            return writer.write_heartbeats(at, relayed=relay.new(), is_mirrored=is_mirrored)

        duties.append(
            PeriodicTask(name="mm2.heartbeats", interval_s=flow.mm2.heartbeat_interval.total_seconds(), run=beat)
        )
    if flow.mm2.offset_syncs:
        feed = SyncFeed(flow, target, target_options)
        every = flow.mm2.offset_sync_interval.total_seconds()
        duties.append(PeriodicTask(name="mm2.offset_syncs", interval_s=every, run=lambda: feed.emit(writer)))
    return duties


def _mirrors_heartbeats(flow: FlowConfig) -> bool:
    """Return whether the flow mirrors `heartbeats` of its source to the topic of its own heartbeats."""
    return flow.carries(HEARTBEATS) and flow.remote_topic(HEARTBEATS) == flow.mm2_names.remote_heartbeats(flow.source)


class HeartbeatRelay:
    """Follow the heartbeats topics of a source, to write them one hop further.

    Topics that the flow carries, and topics that came from the target, are left out.
    """

    def __init__(self, flow: FlowConfig, source: TopicSource, options: Mapping[str, Any]) -> None:
        self._flow = flow
        self._source = source
        self._options = options
        self._reader: RecordReader | None = None
        self._next: dict[str, int] = {}
        self._looked_at: float | None = None

    def new(self) -> Iterator[tuple[str, RawRecord]]:
        """Yield the heartbeats since the last call, with their topic on the source."""
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at > _REFRESH_S:
            self._next = {name: self._next.get(name, -1) for name in self._topics()}
            self._looked_at = now
        if not self._next:
            return
        self._reader = self._reader or RecordReader(self._flow.source, self._options)
        for topic, position in self._next.items():
            low, high = self._reader.ends(topic, 0)
            start = max(low, high - _TAIL) if position < 0 or position > high else max(low, position)
            if high > start:
                for record in self._reader.read(topic, 0, start):
                    # A tombstone ends Java's readers in a NullPointerException.
                    if record.key is not None and record.value is not None:
                        yield topic, record
                    self._next[topic] = record.offset + 1

    def _topics(self) -> list[str]:
        names, flow = self._flow.mm2_names, self._flow
        policy = DefaultPolicy(names.separator)
        return [
            name
            for name in self._source.topic_names()
            if names.is_heartbeats(name)
            and not is_cycle(policy, name, flow.target)
            and not flow.carries(name)
            and not flow.denies(name)
        ]


class SyncFeed:
    """Derive offset syncs from the ledger records since the last call.

    The ledger is the truth of the map. It has at least the commits of the flow's present owner; mapped ranges of
    earlier owners may be gone from it. A missing sync makes a translation less exact, never wrong.
    """

    def __init__(self, flow: FlowConfig, target: ClusterAdmin, options: Mapping[str, Any]) -> None:
        self._flow = flow
        self._target = target
        self._options = options
        self._next: dict[int, int] = {}
        self._last: dict[int, LedgerRecord] = {}

    def emit(self, writer: Mm2Writer) -> int:
        state = self._target.describe([self._flow.ledger_topic]).get(self._flow.ledger_topic)
        if state is None:
            return 0
        records = self._new_records(state.partitions)
        # A lane's record has the other lanes' positions at the claim, too: the furthest of all counts.
        for lane, several in records.items():
            last = fold((record for _, record in several), self._last.get(lane))
            if last is None or not last.is_whole:
                last = self._ledger.last(lane)
            if last is not None:
                self._last[lane] = last
        sent = merged_positions(self._last, self._flow.remote_topic)
        runs: dict[SourcePartition, list[MappedRange]] = {}
        for record in (record for several in records.values() for _, record in several):
            for run in record.runs:
                topic = run.source.topic
                now, then = (found.get(topic, _UNKNOWN).topic_id for found in (sent.remotes, record.remotes))
                # Ranges of a topic that was denied later stay in the ledger, and are no longer reported.
                is_present = not self._flow.denies(topic) and run.target.topic == self._flow.remote_topic(topic)
                if is_present and not is_different_topic(now, then):
                    runs.setdefault(run.source, []).append(run)
        newest = {s.tp: s for s in sorted({*sent.positions, *runs})}

        def outdated(sync: OffsetSync) -> bool:
            source = newest.get(TopicPartition(sync.topic, sync.partition))
            if source is None or self._flow.placement.kind != "keep":
                return False
            return is_outdated(sync, runs.get(source, ()), position=sent.positions.get(source))

        every = self._flow.mm2.offset_lag_max
        syncs = [sync for source in sorted(runs) for run in runs[source] for sync in syncs_of(run, every=every)]
        count = writer.write_offset_syncs(syncs, is_outdated=outdated)
        self._next |= {lane: several[-1][0] + 1 for lane, several in records.items()}
        return count

    @cached_property
    def _ledger(self) -> LedgerReader:
        return LedgerReader(self._flow.target, self._flow.ledger_topic, self._options)

    def _new_records(self, lanes: int) -> dict[int, list[tuple[int, LedgerRecord]]]:
        """Return the records of each ledger lane since the last call, with offsets; lanes without any are left out."""
        found = {}
        for lane in range(lanes):
            _, high = self._ledger.ends(lane)
            start = self._next.get(lane, 0)
            if start > high:
                # A ledger that ends before the offsets already read is a new one.
                self._last.pop(lane, None)
                start = 0
            if several := self._ledger.since(lane, start):
                found[lane] = several
        return found
