"""Which positions a group committed itself, and which mirrorlake set for it.

A position that mirrorlake wrote repeats another cluster's. Taken for the group's own progress, it would come back and
move the group on the cluster that it reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """The recorded history of one group on one partition.

    `set_at` is the time at which mirrorlake last set each position. `newest` is the time at which the newest position
    that mirrorlake had not set was first seen, and the position.
    """

    set_at: Mapping[int, datetime] = field(default_factory=dict)
    newest: tuple[datetime, int] | None = None

    def own_since(self, offset: int, *, now: datetime) -> datetime | None:
        """Return when the group's own commit of its present position was first seen.

        None if mirrorlake set the position and the group has committed nothing else since.
        """
        set_at, (seen_at, seen) = self.set_at.get(offset), self.newest or (None, None)
        if set_at is not None and (seen_at is None or seen_at < set_at):
            return None
        return seen_at if seen == offset else now


@dataclass(frozen=True, slots=True)
class MovePermission:
    """Whether a group may be moved on a cluster, and why not; `is_certain` is false where that is unknown."""

    is_free: bool
    reason: str = ""
    is_certain: bool = True


def find_last_committed(own_since: Mapping[K, Any]) -> set[K]:
    """Return the clusters on which the group itself committed last; several if their order is unknown."""
    own = {cluster: since for cluster, since in own_since.items() if since is not None}
    return {cluster for cluster, since in own.items() if since == max(own.values())}


def may_move(cluster: K, own_since: Mapping[K, Any]) -> MovePermission:
    """Return whether a group may be moved on a cluster, by the times of its own commits (see `CommitHistory.own_since`).

    Law: never where it last committed itself, never by a position that mirrorlake set.
    """
    last = find_last_committed(own_since)
    if not last:
        return MovePermission(False, "mirrorlake set its positions; the group itself has committed nothing")
    if last == {cluster}:
        reason = "the group itself committed last on this cluster; it is never moved where it reads"
        return MovePermission(False, reason)
    if cluster in last:
        return MovePermission(False, "it committed on several clusters, and it is not known on which last", False)
    return MovePermission(True)
