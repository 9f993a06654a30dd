"""Survey of another mirror's work on a target: whether it still runs, and its positions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import RawRecord, RecordReader
from mirrorlake.mm2.locate import LocatedPosition, SourceRecord, UnknownPosition, digest, locate
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.mm2 import HEARTBEATS, SOURCE_CONNECTOR, Heartbeat, connect_group, decode_all
from mirrorlake.render import plural

# Records before the stored position that are compared, too: they distinguish repeated records.
_BEFORE = 1_000
# The maximum of records read after it, in steps; MirrorMaker stores its offsets once a minute by default.
_STEPS = (1_000, 30_000, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMirror:
    """The location of MirrorMaker 2's state; the defaults are those of its dedicated mode.

    `offsets_topic` (None for `mm2-offsets.<source>.internal`) and `group` of Connect's workers (None for `<source>-mm2`) are on the
    target. `group` is empty if Connect stays on for other connectors: then only growing partitions are watched. In `watch_s` none of
    its partitions may grow; it is longer than the heartbeat interval of 1 s.
    """

    connector: str = SOURCE_CONNECTOR
    offsets_topic: str | None = None
    group: str | None = None
    watch_s: float = 5.0


class Comparison:
    """Compare the end of remote partitions with their source, as MirrorMaker may have read it.

    MirrorMaker reads aborted records by default (`read_uncommitted`) and does not under exactly-once: both are tried.
    """

    def __init__(self, context: Context, flow: FlowConfig) -> None:
        self._target = context.admin(flow.target)
        self._sources = [context.reader(flow.source, committed=committed) for committed in (False, True)]
        self._remote = context.reader(flow.target)
        self._own_times: dict[str, bool] = {}

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in (*self._sources, self._remote):
            reader.close()

    def locate(
        self, stored: int, place: TopicPartition, remote: TopicPartition, span: tuple[int, int, int, int]
    ) -> LocatedPosition | UnknownPosition:
        """Return the position of a source partition, or why it is unknown.

        `stored` is the position after MirrorMaker's stored offset, 0 without one. `span`: first offset and end on the
        source, then on the target.
        """
        found: LocatedPosition | UnknownPosition = UnknownPosition("nothing was read", more=True)
        for step in _STEPS:
            found = self._look(stored, place, remote, span, step)
            if isinstance(found, LocatedPosition) or not found.more:
                break
        return found

    def _look(
        self, position: int, place: TopicPartition, remote: TopicPartition, span: tuple[int, int, int, int], step: int
    ) -> LocatedPosition | UnknownPosition:
        first, end, remote_first, remote_end = span
        last = min(end, max(first, position) + step)
        start = max(remote_first, remote_end - (last - max(first, position - _BEFORE)) - _BEFORE)
        stamped = not self._has_own_times(remote.topic)
        tail = [_content(record, stamped=stamped) for record in self._read(self._remote, remote, start, remote_end)]
        answers: list[LocatedPosition | UnknownPosition] = []
        for reader in self._sources:
            around = [
                SourceRecord(record.offset, _content(record, stamped=stamped))
                for record in self._read(reader, place, max(first, position - _BEFORE), last)
            ]
            answers.append(locate(position, around, tail, at_end=last >= end))
        decided = [answer for answer in answers if isinstance(answer, LocatedPosition)]
        best = max(decided, key=lambda answer: answer.compared, default=None)
        if best is None:
            return answers[0]
        if any(answer.compared == best.compared and answer.position != best.position for answer in decided):
            return UnknownPosition("with and without the source's aborted records, different places fit")
        return best

    def _read(self, reader: RecordReader, place: TopicPartition, start: int, end: int) -> Iterable[RawRecord]:
        if start >= end:
            return
        for record in reader.read(place.topic, place.partition, start):
            if record.offset >= end:
                return
            yield record

    def _has_own_times(self, topic: str) -> bool:
        if topic not in self._own_times:
            kind = self._target.config_value(topic, "message.timestamp.type")
            self._own_times[topic] = kind == "LogAppendTime"
        return self._own_times[topic]


def _content(record: RawRecord, *, stamped: bool) -> bytes:
    return digest(record.key, record.value, record.headers, record.timestamp_ms if stamped else None)


class MirrorMakerWatch:
    """Detect whether MirrorMaker still runs: by its workers' group, and by partitions that grow meanwhile.

    An idle MirrorMaker writes only heartbeats, and only if they are on, so the group counts first. A killed worker
    stays a member until its session ends (10 s by default).
    """

    def __init__(
        self, context: Context, flow: FlowConfig, other: OtherMirror, *, offsets: Sequence[TopicPartition]
    ) -> None:
        self._context = context
        self._flow = flow
        self._target = context.admin(flow.target)
        self._group = connect_group(flow.source) if other.group is None else other.group
        self._until = time.monotonic() + other.watch_s
        self._heartbeats = TopicPartition(HEARTBEATS, 0)
        watched = [*offsets, *([self._heartbeats] if HEARTBEATS in self._target.describe([HEARTBEATS]) else [])]
        self._before = self._target.high_watermarks(watched)

    def add(self, ends: Mapping[TopicPartition, int]) -> None:
        self._before |= ends

    def moved(self) -> list[str]:
        reasons = []
        if self._group and (members := self._target.members(self._group)):
            reasons.append(
                f"MirrorMaker still runs: group {self._group} on {self._flow.target} has {plural(members, 'member')}; stop it, "
                "and give a killed one a minute to leave its group"
            )
        threading.Event().wait(max(0.0, self._until - time.monotonic()))
        now = self._target.high_watermarks(self._before)
        for place, end in now.items():
            if end > self._before[place] and (place != self._heartbeats or self._beats(self._before[place])):
                reasons.append(f"MirrorMaker still runs: {place} on {self._flow.target} grew while it was watched")
        return reasons

    def _beats(self, since: int) -> bool:
        """Return whether a heartbeat is the flow's own: other flows share the topic."""
        with self._context.reader(self._flow.target) as reader:
            records = reader.read(HEARTBEATS, 0, since)
            beats = decode_all(HEARTBEATS, records, Heartbeat.from_record).values
        return any((beat.source, beat.target) == (self._flow.source, self._flow.target) for beat in beats)
