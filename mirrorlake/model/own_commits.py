"""What a group committed itself, and what mirrorlake set for it (DESIGN 10, Two-way identity and groups).

A position that mirrorlake wrote says nothing that another cluster did not say before. Taken for the group's own progress it
would come home and move the group where it reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """A group's position on one cluster; `own_since` is when the group was first seen to have committed it itself.

    None where mirrorlake set it and the group has committed nothing else since.
    """

    offset: int
    own_since: Any | None = None


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """What is recorded of one group on one partition.

    `set_at` holds when mirrorlake last set each position, `seen_at` when the newest position that mirrorlake had not set was
    first seen, and which one it was.
    """

    set_at: Mapping[int, datetime]
    seen_at: tuple[datetime, int] | None = None

    def committed_position(self, offset: int, *, now: datetime) -> CommittedPosition:
        """Tell whose an offset is: mirrorlake's where it set it and the group has committed nothing else since."""
        set_at = self.set_at.get(offset)
        if set_at is not None and (self.seen_at is None or self.seen_at[0] < set_at):
            return CommittedPosition(offset)
        if self.seen_at is not None and self.seen_at[1] == offset:
            return CommittedPosition(offset, own_since=self.seen_at[0])
        return CommittedPosition(offset, own_since=now)


@dataclass(frozen=True, slots=True)
class MovePermission:
    """Whether a group may be moved at a place, and why not; `is_certain` is false where it is not known whether it may."""

    is_free: bool
    reason: str = ""
    is_certain: bool = True


def find_last_committed(held: Mapping[K, CommittedPosition]) -> set[K]:
    """Find where a group itself committed last; several where it is not known which of them was later."""
    own = {place: one.own_since for place, one in held.items() if one.own_since is not None}
    newest = max(own.values(), default=None)
    return {place for place, since in own.items() if since == newest}


def may_move(place: K, held: Mapping[K, CommittedPosition]) -> MovePermission:
    """Tell whether a group may be moved at a place.

    Law: never where it last committed itself, never by a position that mirrorlake set.

    Example:
        >>> may_move("west", {"east": CommittedPosition(5, own_since=1), "west": CommittedPosition(3)}).is_free
        True
        >>> may_move("east", {"east": CommittedPosition(5, own_since=1), "west": CommittedPosition(3)}).reason
        'the group itself committed last here; it is never moved where it reads'
    """
    last = find_last_committed(held)
    if not last:
        return MovePermission(False, "mirrorlake set its positions; the group itself has committed nothing")
    if last == {place}:
        return MovePermission(False, "the group itself committed last here; it is never moved where it reads")
    if place in last:
        return MovePermission(False, "it committed on several clusters, and where it did so last is not known", False)
    return MovePermission(True)
