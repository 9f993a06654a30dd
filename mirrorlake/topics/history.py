"""Show the clusters' state at a time, the changes between two times, and the plan back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from mirrorlake.errors import UsageError
from mirrorlake.lake import Audit, Lake, micros, read_observations
from mirrorlake.model import history
from mirrorlake.model.acls import Acl
from mirrorlake.model.history import GroupPlace, HistoryChanges, HistoryState
from mirrorlake.model.plan import Plan
from mirrorlake.topics.acl_plan import read_ownership


class History:
    """The past of a mirror's clusters, from the tables `metadata` and `positions`.

    Times need a time zone. A change between two observations (`sync.interval` apart) has the time of the later one.

    Args:
        lake: the lake.
        targets: the aliases of the targets.
        look: records the present state of all clusters.
        audit: holds the owners of a target's ACLs.
        now: the clock, in UTC.

    Example:
        >>> mirror.history.at(yesterday).as_dict()["topics"]  # doctest: +SKIP
        >>> mirror.history.between(yesterday, today)  # doctest: +SKIP
        >>> mirror.apply(plan=mirror.history.plan_back(yesterday))  # doctest: +SKIP
    """

    def __init__(
        self,
        lake: Lake,
        *,
        targets: Iterable[str],
        look: Callable[[], None],
        audit: Audit,
        now: Callable[[], datetime],
    ) -> None:
        self._lake = lake
        self._targets = tuple(targets)
        self._look = look
        self._audit = audit
        self._now = now

    def at(self, time: datetime) -> HistoryState:
        """Return settings, partition counts, ACLs and group positions as recorded at a time."""
        aware(time)
        return history.state_of(read_observations(self._lake, until=time), groups=self._groups(time))

    def between(self, start: datetime, end: datetime) -> HistoryChanges:
        """List the changes after `start` and up to `end`: every change of topics and ACLs, one move for each group."""
        aware(start, end)
        if start > end:
            raise UsageError(
                f"{start.isoformat(timespec='seconds')} is after {end.isoformat(timespec='seconds')}",
                remedy="give the earlier time first",
            )
        seen = read_observations(self._lake, until=end)
        moves = history.group_moves(self._groups(start), self._groups(end), at=end)
        return HistoryChanges([*history.changes_between(seen, start, end), *moves])

    def plan_back(self, time: datetime) -> Plan:
        """Plan the return of the targets' settings and ACLs to an earlier time; applies nothing (law G).

        The clusters are read first, so that the plan starts from their present state. A running flow with continuous sync
        undoes the plan after at most `sync.interval`: set `sync.continuous: false` or stop it.

        Raises:
            UsageError: nothing was recorded up to that time.
            ClusterError: a cluster does not answer.
        """
        aware(time)
        self._look()
        then = self._of_targets(time)
        if not then.topics and not then.acls:
            raise UsageError(
                f"nothing of {', '.join(self._targets)} was recorded up to {time.isoformat(timespec='seconds')}",
                remedy="mirrorlake history --from 1970-01-01T00:00:00Z shows what was recorded",
            )
        owned = {alias: read_ownership(alias, self._audit) for alias in self._targets}

        def owner(cluster: str, acl: Acl) -> str | None:
            return min(owned[cluster].holders.get(acl, ()), default=None)

        return history.plan_back(then, self._of_targets(self._now()), owner=owner)

    def _of_targets(self, time: datetime) -> HistoryState:
        seen = read_observations(self._lake, clusters=self._targets, until=time)
        groups = {place: offset for place, offset in self._groups(time).items() if place.cluster in self._targets}
        return history.state_of((one for one in seen if one.role != "source"), groups=groups)

    def _groups(self, time: datetime) -> Mapping[GroupPlace, int]:
        rows = self._lake.query_rows(
            "SELECT source, group_id, topic, partition, max_by(position, observed_at) AS position FROM {positions} "
            "WHERE kind = 'group' AND unix_micros(observed_at) <= :until AND position IS NOT NULL "
            "GROUP BY source, group_id, topic, partition",
            missing_ok=True,
            until=micros(time),
        )
        return {GroupPlace(row.source, row.group_id, row.topic, row.partition): row.position for row in rows}


def aware(*times: datetime) -> None:
    """Check that every time has a time zone.

    Raises:
        UsageError: a time has none.
    """
    for time in times:
        if time.tzinfo is None:
            raise UsageError(f"{time.isoformat()} has no time zone", remedy=f"write {time.isoformat()}Z for UTC")
