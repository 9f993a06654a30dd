"""Read a few records of a topic by offset or time, or search by content; on a cluster or in the relay.

Law H: reading joins no group and commits nothing. Every read is bounded by a count, by bytes, and by the records searched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from heapq import merge
from itertools import chain, islice

from mirrorlake.errors import UsageError
from mirrorlake.model.ranges import Ranges
from mirrorlake.records.log import Log
from mirrorlake.records.page import Page, Stretch
from mirrorlake.records.record import BrowsedRecord
from mirrorlake.records.seek import MAX_READ, Seek
from mirrorlake.render import format_count, format_time

# A condition is evaluated on at most so many records and bytes at once.
_CHUNK, _CHUNK_BYTES = 500, 4 * 2**20
# The first window of a backward search, in offsets.
_WINDOW = 1000
# A time among transaction markers needs reading the records before it: 100 000 a second.
_MAX_BEFORE = 200_000


def read_page(log: Log, seek: Seek) -> Page:
    """Return a page of a topic (see `Mirror.browse`).

    Law E (accounted for): offsets of the page without a record are explained, except in a search by content.
    """
    partitions = _chosen(log, seek)
    most = max(seek.look // len(partitions), 1) if seek.match else MAX_READ
    if seek.is_backward:
        parts = [_newest(log, one, seek, most) for one in partitions]
    else:
        starts = _starts(log, seek, partitions)
        parts = [_onward(log, one, starts[one], seek, most) for one in partitions]
    records = _merged(parts, seek)
    page = Page(
        cluster=log.cluster,
        side=log.side,
        topic=log.topic,
        stretches=tuple(_stretch(log, part, seek) for part in parts),
        records=tuple(records),
        looked=sum(part.looked for part in parts),
        wanted=str(seek.match),
    )
    return replace(page, note=_note(log, page, seek, parts))


@dataclass(slots=True)
class _Part:
    """The read offsets `[start, next)` of one partition, and the selected records."""

    partition: int
    start: int
    next: int
    records: list[BrowsedRecord] = field(default_factory=list)
    looked: int = 0


def _chosen(log: Log, seek: Seek) -> list[int]:
    if seek.partition is not None:
        return [seek.partition]
    if seek.offset is not None and len(log.held) > 1:
        raise UsageError(
            f"{log.topic} has {len(log.held)} partitions, and an offset is of one",
            remedy="name the partition, or give a time",
        )
    return sorted(log.held)


def _starts(log: Log, seek: Seek, partitions: list[int]) -> Mapping[int, int]:
    if seek.after is not None:
        return {one: seek.after.get(one, log.held[one].end) for one in partitions}
    if seek.at is not None:
        return log.from_time(partitions, seek.at)
    return dict.fromkeys(partitions, seek.offset or 0)


def _onward(log: Log, partition: int, start: int, seek: Seek, most: int) -> _Part:
    """Read forwards from an offset to the first matching records."""
    held = log.held[partition]
    begin = min(max(start, held.first or 0), held.end)
    part = _Part(partition, min(start, begin) if seek.at is None else begin, begin)
    records = iter(log.read(partition, begin, held.end))
    if seek.at is not None:
        first = _first_at(records, round(seek.at.timestamp() * 1000), part)
        if first is None:
            # No record is so late: the page begins at the end of the read.
            part.next = part.next if part.looked >= _MAX_BEFORE else held.end
            part.start = part.next
            return part
        part.start = part.next = first.offset
        records = chain([first], records)
    size = 0
    while part.looked < most:
        chunk = _chunk(records, min(_CHUNK, most - part.looked) if seek.match else seek.count)
        part.looked += len(chunk)
        for one in seek.match.among(chunk) if seek.match else chunk:
            part.records.append(one)
            size += one.size
            if len(part.records) == seek.count or size >= seek.max_bytes:
                part.next = one.offset + 1
                return part
        if not chunk:
            break
        part.next = chunk[-1].offset + 1
    else:
        return part
    part.next = held.end
    return part


def _first_at(records: Iterator[BrowsedRecord], at_ms: int, part: _Part) -> BrowsedRecord | None:
    for one in islice(records, _MAX_BEFORE):
        if one.timestamp_ms >= at_ms:
            return one
        part.looked, part.next = part.looked + 1, one.offset + 1
    return None


def _newest(log: Log, partition: int, seek: Seek, most: int) -> _Part:
    """Read the last matching records, in windows from the end backwards."""
    held = log.held[partition]
    stop = held.end if seek.before is None else min(seek.before.get(partition, held.end), held.end)
    low = held.first or 0
    part = _Part(partition, max(stop, low), max(stop, low))
    step, size = _WINDOW if seek.match else seek.count, 0
    while part.start > low and part.looked < most and len(part.records) < seek.count and size < seek.max_bytes:
        begin = max(low, part.start - step)
        kept = _Newest(seek.count - len(part.records), seek.max_bytes - size, is_first=not part.records)
        width, before = part.start - begin, part.looked
        records = iter(log.read(partition, begin, part.start))
        while chunk := _chunk(records, _CHUNK):
            part.looked += len(chunk)
            kept.take(seek.match.among(chunk) if seek.match else chunk)
        part.start = begin if kept.fell is None else kept.fell + 1
        part.records = [*kept.records, *part.records]
        size += kept.size
        # Compacted topics and long transactions leave wide ranges without a record.
        step = min(step * 8, max(_WINDOW, (most - part.looked) * width // max(part.looked - before, 1)))
        if kept.fell is not None:
            break
    return part


class _Newest:
    """The last of some records, up to a count and a size; `fell` is the offset of the last dropped record."""

    def __init__(self, most: int, max_bytes: int, *, is_first: bool) -> None:
        self.records: deque[BrowsedRecord] = deque()
        self.size = 0
        self.fell: int | None = None
        self._most = most
        self._most_bytes = max_bytes
        self._least = 1 if is_first else 0

    def take(self, records: Iterable[BrowsedRecord]) -> None:
        for one in records:
            self.records.append(one)
            self.size += one.size
            while len(self.records) > self._most or (self.size > self._most_bytes and len(self.records) > self._least):
                gone = self.records.popleft()
                self.size -= gone.size
                self.fell = gone.offset


def _chunk(records: Iterator[BrowsedRecord], most: int) -> list[BrowsedRecord]:
    found: list[BrowsedRecord] = []
    size = 0
    for one in islice(records, most):
        found.append(one)
        size += one.size
        if size >= _CHUNK_BYTES:
            break
    return found


def _merged(parts: list[_Part], seek: Seek) -> list[BrowsedRecord]:
    """Merge partitions by time, each in its own order, and cut to the page; each `_Part` begins or ends at its cut."""
    if len(parts) == 1:
        return parts[0].records
    if seek.is_backward:
        ranked = merge(*(reversed(part.records) for part in parts), key=lambda one: (-one.timestamp_ms, -one.partition))
    else:
        ranked = merge(*(part.records for part in parts), key=lambda one: (one.timestamp_ms, one.partition))
    kept: list[BrowsedRecord] = []
    size = 0
    lost: dict[int, int] = {}
    for one in ranked:
        if len(kept) < seek.count and (size + one.size <= seek.max_bytes or not kept) and not lost:
            kept.append(one)
            size += one.size
        else:
            # The first record that a partition loses is next to its page.
            lost.setdefault(one.partition, one.offset)
    for part in parts:
        if part.partition in lost and seek.is_backward:
            part.start = lost[part.partition] + 1
        elif part.partition in lost:
            part.next = lost[part.partition]
    return kept[::-1] if seek.is_backward else kept


def _stretch(log: Log, part: _Part, seek: Seek) -> Stretch:
    held = log.held[part.partition]
    absent = Ranges()
    if not seek.match:
        absent = Ranges([(part.start, part.next)]) - Ranges.of(one.offset for one in part.records)
    return Stretch(
        partition=part.partition,
        generation=held.generation,
        first=held.first,
        end=held.end,
        # For a position below `first`, `missing` explains the removed offsets, and the page begins after them.
        start=min(max(part.start, held.first or 0), held.end),
        next=part.next,
        missing=log.explain(part.partition, absent),
    )


def _note(log: Log, page: Page, seek: Seek, parts: list[_Part]) -> str:
    if seek.at is not None and not page.records and not seek.match:
        return _none_so_late(log, page, seek, parts)
    ends = page.is_first if seek.is_backward else page.is_last
    if not seek.match or ends or len(page.records) >= seek.count:
        return ""
    where = ""
    if len(parts) == 1:
        where = f", {'back' if seek.is_backward else 'up'} to offset {page.start if seek.is_backward else page.next}"
    return f"looked through {format_count(page.looked)} records{where}; there are more to look through"


def _none_so_late(log: Log, page: Page, seek: Seek, parts: list[_Part]) -> str:
    said = f"no record is of {_utc(seek.at)} or later"
    if not page.is_last:
        return f"{said} among the {format_count(page.looked)} that were looked through; go on from there"
    ends = Seek(partition=seek.partition, count=1)
    last = [one for part in parts for one in _newest(log, part.partition, ends, 1).records]
    newest = max((one.time for one in last if one.time is not None), default=None)
    return f"{said}; there is none at all" if newest is None else f"{said}; the newest is of {_utc(newest)}"


def _utc(at: datetime | None) -> str:
    return format_time(at, zone=timezone.utc)
