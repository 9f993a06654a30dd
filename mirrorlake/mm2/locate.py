"""The position of another mirror: its stored position, advanced over the records that the remote topic already has.

MirrorMaker 2 stores its offsets every `offset.flush.interval.ms` (60 s); a killed one has produced more than it
stored. So the end of the remote partition is compared with the source's records around the stored position:

    source    … m n | o p q r s …      | stored position
    remote    … m n   o p q            the longest matching end says: resume at r

Records are compared by content (key, value, headers, timestamp), never by count: MirrorMaker delivers at least once,
and a restarted worker has left duplicates further back, which do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

Headers = Sequence[tuple[str, bytes | None]]


def digest(key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int | None) -> bytes:
    """Return a 16-byte digest of a record's content; null and empty differ (law C).

    `timestamp_ms` is None if the target gives records timestamps of its own.

    >>> digest(b"", None, (), 1) == digest(None, None, (), 1)
    False
    """
    found = blake2b(digest_size=16)
    parts = [key, value, *(part for name, data in headers for part in (name.encode(), data))]
    for part in parts:
        found.update(b"-" if part is None else b"%d:" % len(part) + part)
    found.update(b"@%d" % timestamp_ms if timestamp_ms is not None else b"@")
    return found.digest()


@dataclass(frozen=True, slots=True)
class SourceRecord:
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class LocatedPosition:
    """A decided position: `already_there` records after the stored position are on the target.

    `compared` records at the end of the remote partition are equal.
    """

    position: int
    already_there: int
    compared: int


@dataclass(frozen=True, slots=True)
class UnknownPosition:
    """The records do not decide the position, and why; `more` if reading further might."""

    why: str
    more: bool = False


def locate(
    stored: int, around: Sequence[SourceRecord], tail: Sequence[bytes], *, at_end: bool
) -> LocatedPosition | UnknownPosition:
    """Return the position at which to resume, or why it is unknown.

    `stored` is the position after the last record that the other mirror stored as replicated. `around` are the
    source's records around it, in upstream order and without a record left out, `at_end` if they reach the source's
    end. `tail` are the contents of the last records of the remote partition, oldest first.

    Example:
        >>> around = [SourceRecord(offset, bytes([offset])) for offset in range(10)]
        >>> locate(4, around, [bytes([offset]) for offset in range(6)], at_end=True)
        LocatedPosition(position=6, already_there=2, compared=6)
    """
    before = sum(place.offset < stored for place in around)
    if not tail:
        if before == len(around) and at_end:
            return LocatedPosition(stored, 0, 0)
        return UnknownPosition("the remote partition holds no record to compare with")
    lengths = _common_ends([place.content for place in around], tail)
    # Every record after the stored position must be on the target, as far as the target still has records.
    fits = {
        end: lengths[end]
        for end in range(before, len(around) + 1)
        if lengths[end] >= max(1, min(end - before, len(tail)))
    }
    if len(fits) > 1:
        whole = [end for end, length in fits.items() if length == min(len(tail), end)]
        longest = max(fits.values())
        if len(whole) != 1 or [end for end, length in fits.items() if length == longest] != whole:
            return UnknownPosition(f"{len(fits)} places of the source look like the end of the remote partition")
        fits = {whole[0]: fits[whole[0]]}
    if not fits:
        if at_end and before == len(around):
            return LocatedPosition(stored, 0, 0)
        return UnknownPosition(
            "the end of the remote partition holds records that the source does not have there", not at_end
        )
    [(end, length)] = fits.items()
    position = around[end - 1].offset + 1 if end > before else stored
    return LocatedPosition(position, end - before, length)


def _common_ends(source: Sequence[bytes], tail: Sequence[bytes]) -> list[int]:
    """Return for each prefix of `source` the length of the end it shares with `tail` (the Z-function, read backwards).

    >>> _common_ends([b"a", b"b", b"c"], [b"b", b"c"])
    [0, 0, 0, 2]
    """
    line: list[bytes | None] = [*reversed(tail), None, *reversed(source)]
    shared = [0] * len(line)
    left = right = 0
    for index in range(1, len(line)):
        length = min(right - index, shared[index - left]) if index < right else 0
        while index + length < len(line) and line[length] == line[index + length]:
            length += 1
        shared[index] = length
        if index + length > right:
            left, right = index, index + length
    return [0, *reversed(shared[len(tail) + 1 :])]
