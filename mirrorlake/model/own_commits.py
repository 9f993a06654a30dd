"""Which positions a group committed itself, and which mirrorlake set for it.

A position that mirrorlake wrote repeats another cluster's. Taken for the group's own progress, it would come back and
move the group on the cluster that it reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """A group's position on one cluster; `own_since` is when the group's own commit was first seen.

    `own_since` is None if mirrorlake set the position and the group has committed nothing else since.
    """

    offset: int
    own_since: Any | None = None


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """The recorded history of one group on one partition.

    `set_at` is the time at which mirrorlake last set each position. `seen_at` is the newest position that mirrorlake
    had not set, and the time when it was first seen.
    """

    set_at: Mapping[int, datetime]
    seen_at: tuple[datetime, int] | None = None

    def committed_position(self, offset: int, *, now: datetime) -> CommittedPosition:
        """Return the position with its owner: mirrorlake, if it set the offset and the group committed nothing else since."""
        set_at = self.set_at.get(offset)
        if set_at is not None and (self.seen_at is None or self.seen_at[0] < set_at):
            return CommittedPosition(offset)
        if self.seen_at is not None and self.seen_at[1] == offset:
            return CommittedPosition(offset, own_since=self.seen_at[0])
        return CommittedPosition(offset, own_since=now)


@dataclass(frozen=True, slots=True)
class MovePermission:
    """Whether a group may be moved on a cluster, and why not; `is_certain` is false where that is unknown."""

    is_free: bool
    reason: str = ""
    is_certain: bool = True


def find_last_committed(held: Mapping[K, CommittedPosition]) -> set[K]:
    """Return the clusters on which the group itself committed last; several if their order is unknown."""
    own = {place: one.own_since for place, one in held.items() if one.own_since is not None}
    newest = max(own.values(), default=None)
    return {place for place, since in own.items() if since == newest}


def may_move(place: K, held: Mapping[K, CommittedPosition]) -> MovePermission:
    """Return whether a group may be moved on a cluster.

    Law: never where it last committed itself, never by a position that mirrorlake set.
    """
    last = find_last_committed(held)
    if not last:
        return MovePermission(False, "mirrorlake set its positions; the group itself has committed nothing")
    if last == {place}:
        return MovePermission(
            False, "the group itself committed last on this cluster; it is never moved where it reads"
        )
    if place in last:
        return MovePermission(False, "it committed on several clusters, and it is not known on which last", False)
    return MovePermission(True)
