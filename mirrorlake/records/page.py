"""Pages: records of a topic on one side, and the offset ranges that were read for them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from mirrorlake.records.record import BrowsedRecord, Missing
from mirrorlake.render import (
    Displayable,
    LinkedText,
    Sheet,
    by_fields,
    format_size,
    headers,
    link,
    payload,
    plural,
    table,
)

Side = Literal["cluster", "relay"]
# A page of many partitions shows only the first reasons for absent records; `missing` has all.
_MAX_REASONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The offset range `[start, next)` of one partition that was read for a page.

    The partition has offsets from `first` (None in the relay, which begins at the first landed offset) up to `end`, the next
    offset. `missing` explains offsets of the range without a record; it is empty for a search by content. `generation` is the
    topic's generation in the relay, None on a cluster.
    """

    partition: int
    generation: int | None = None
    first: int | None = None
    end: int
    start: int
    next: int
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page(Displayable):
    """Records of a topic on one side, oldest first, and the offset ranges that were read for them.

    `side` is `cluster`, or `relay` for the records landed from it; `topic` is its name there. Records of one partition are in
    offset order, partitions are merged by time. `looked` counts the records read for the page, `wanted` is the filter in words,
    and `note` says how far the read went if it stopped early.
    """

    cluster: str
    side: Side
    topic: str
    stretches: tuple[Stretch, ...]
    records: tuple[BrowsedRecord, ...] = ()
    looked: int = 0
    wanted: str = ""
    note: str = ""

    @property
    def partition(self) -> int | None:
        """The partition; None for several."""
        return self.stretches[0].partition if len(self.stretches) == 1 else None

    @property
    def generation(self) -> int | None:
        """The topic's generation in the relay; None on a cluster, or if partitions differ."""
        lives = {one.generation for one in self.stretches}
        return lives.pop() if len(lives) == 1 else None

    @property
    def starts(self) -> dict[int, int]:
        """The first offset of the page by partition: the end of the preceding page."""
        return {one.partition: one.start for one in self.stretches}

    @property
    def nexts(self) -> dict[int, int]:
        """The first offset of the following page by partition."""
        return {one.partition: one.next for one in self.stretches}

    @property
    def is_first(self) -> bool:
        """Whether no record precedes this page."""
        return all(one.start <= (one.first or 0) for one in self.stretches)

    @property
    def is_last(self) -> bool:
        """Whether no record follows this page yet."""
        return all(one.next >= one.end for one in self.stretches)

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The offsets of all ranges without a record, and the reasons."""
        return tuple(missing for one in self.stretches for missing in one.missing)

    @property
    def first(self) -> int | None:
        """The first offset of the only partition; None in the relay."""
        return self._only.first

    @property
    def end(self) -> int:
        """The next offset of the only partition."""
        return self._only.end

    @property
    def start(self) -> int:
        """The first offset of the page of one partition."""
        return self._only.start

    @property
    def next(self) -> int:
        """The first offset of the following page of one partition."""
        return self._only.next

    @property
    def _only(self) -> Stretch:
        if len(self.stretches) != 1:
            raise ValueError("a page of several partitions has these by partition: see `stretches`")
        return self.stretches[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the page as `--json` prints it; a page of one partition has the fields of its range."""
        one = by_fields(self.stretches[0]) if len(self.stretches) == 1 else dict.fromkeys(_OF_ONE)
        return {**by_fields(self), **one}

    def sheet(self) -> Sheet:
        """Return the page as a table, with the reasons of absent records."""
        which = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        where = f"{which} {'in the relay of' if self.side == 'relay' else 'on'} {self.cluster}"
        several = self.partition is None
        rows = [
            (
                *([str(r.partition)] if several else []),
                LinkedText(str(r.offset), link("passport", self.cluster, self.topic, r.partition, r.offset)),
                r.time,
                _bytes(r.key),
                _bytes(r.value),
                headers(r.headers),
                format_size(r.size),
            )
            for r in self.records
        ]
        columns = [*(["partition"] if several else []), "offset", "timestamp", "key", "value", "headers", "size"]
        reasons = [
            f"{self.topic}-{one.partition} {m}" if several else str(m) for one in self.stretches for m in one.missing
        ]
        more = len(reasons) - _MAX_REASONS if several else 0
        if more > 0:
            reasons = [*reasons[:_MAX_REASONS], f"… and {more} more"]
        notes = [self.note] if self.note else []
        return Sheet(title=where, facts=self._facts(), parts=(table("", columns, rows), *reasons, *notes))

    def _facts(self) -> tuple[str, ...]:
        wanted = [self.wanted, f"looked through {plural(self.looked, 'record')}"] if self.wanted else []
        if self.partition is None:
            return (plural(len(self.stretches), "partition"), *wanted)
        held = [] if self.first is None else [f"first held offset {self.first}"]
        return (f"from offset {self.start}", *held, f"next to come {self.end}", *wanted)


_OF_ONE = [field.name for field in fields(Stretch)]


def _bytes(data: bytes | None) -> Any:
    # A cell that is None is a dash; a null payload is a word of its own.
    return payload(None) if data is None else data
