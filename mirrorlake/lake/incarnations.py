"""Filter rows by the incarnation of their remote topic: current, or deleted since.

A row of the offset map belongs to one incarnation of a remote topic and has that topic's id. The table `metadata` has the present
incarnation. A row from before ids were recorded belongs to the incarnation in which it was committed.

Law A (never ahead): a position is never taken from a deleted topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.spark_tables import quote
from mirrorlake.lake.times import micros
from mirrorlake.model.remotes import LostTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIncarnation:
    """The present incarnation of a remote topic that had an earlier one: its id (None if deleted) and first observation."""

    topic_id: str | None
    since: datetime | None


def read_incarnations(lake: Lake, flows: Iterable[FlowConfig]) -> dict[tuple[str, str], TopicIncarnation]:
    """Read the remote topics that were deleted or recreated, by target alias and name; most lakes have none."""
    targets = sorted({flow.target for flow in flows})
    # There is a row for each change of a remote topic, few enough to process without a shuffle.
    rows = lake.query_rows(
        "SELECT cluster, topic, topic_id, present, observed_at FROM {metadata} "
        "WHERE array_contains(:targets, cluster) AND role = 'target' AND kind = 'topic' ORDER BY observed_at",
        missing_ok=True,
        cache=True,
        targets=targets,
    )
    seen: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        seen.setdefault((row.cluster, row.topic), []).append(row)
    return {place: life for place, several in seen.items() if (life := _present_incarnation(several)) is not None}


def _present_incarnation(rows: Sequence[Any]) -> TopicIncarnation | None:
    """Return the present incarnation of a topic from its rows, oldest first, or None if it is the only one."""
    since: dict[str, datetime] = {}
    for row in rows:
        if row.present:
            since.setdefault(row.topic_id, row.observed_at)
    newest = rows[-1]
    if len(since) <= 1 and newest.present:
        return None
    return TopicIncarnation(
        topic_id=newest.topic_id if newest.present else None,
        since=since.get(newest.topic_id) if len(since) > 1 else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationFilter:
    """Separate rows of flows by whether their remote topic exists."""

    flows: tuple[FlowConfig, ...]
    recorded: Mapping[tuple[str, str], TopicIncarnation]
    lost: tuple[LostTopic, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.recorded or self.lost)

    def current_rows(self, runs: DataFrame) -> DataFrame:
        return runs.where(self.current_sql())

    def stale_rows(self, runs: DataFrame) -> DataFrame | None:
        """Return the rows of `offset_map` whose remote topic was deleted, or None if there can be none."""
        gone = self.stale_sql()
        return None if gone is None else runs.where(gone)

    def current_sql(self) -> str:
        """Return a SQL filter for `offset_map` rows of current incarnations."""
        gone = self.stale_sql()
        return "true" if gone is None else f"NOT ({gone})"

    def current_withheld_sql(self, topics: Callable[[FlowConfig], Iterable[str]]) -> str:
        """Return a SQL filter for `withheld` rows of current incarnations; the rules have judged the others again since.

        `topics` lists the source topics of a flow; it is called only if a topic was lost.
        """
        gone: list[str] = []
        for flow in self.flows if self else ():
            for topic in topics(flow):
                life = self._incarnation(flow, flow.remote_topic(topic))
                if life is not None:
                    other = _is_other(life, "withheld_at")
                    gone.append(f"(flow = {quote(flow.name)} AND topic = {quote(topic)} AND {other})")
        return f"NOT ({' OR '.join(gone)})" if gone else "true"

    def stale_sql(self) -> str | None:
        """Return a SQL filter for `offset_map` rows of deleted incarnations, or None if there can be none."""
        gone = [
            f"(flow IN ({quote(flow.name)}, {quote(flow.redrive_name)}) AND target_topic = {quote(remote)} "
            f"AND {_is_other(life, 'committed_at')})"
            for flow in self.flows
            for remote in sorted(self._remotes(flow))
            if (life := self._incarnation(flow, remote)) is not None
        ]
        return " OR ".join(gone) if gone else None

    def _remotes(self, flow: FlowConfig) -> set[str]:
        lost = {one.remote for one in self.lost if one.flow == flow.name}
        return lost | {remote for target, remote in self.recorded if target == flow.target}

    def _incarnation(self, flow: FlowConfig, remote: str) -> TopicIncarnation | None:
        if any((one.flow, one.remote) == (flow.name, remote) for one in self.lost):
            return TopicIncarnation(topic_id=None, since=None)
        return self.recorded.get((flow.target, remote))


def _is_other(incarnation: TopicIncarnation, at: str) -> str:
    if incarnation.topic_id is None:
        return "true"
    before = "false" if incarnation.since is None else f"unix_micros({at}) < {micros(incarnation.since)}"
    return f"CASE WHEN target_topic_id IS NULL THEN {before} ELSE target_topic_id != {quote(incarnation.topic_id)} END"


def load_incarnation_filter(lake: Lake, flows: Iterable[FlowConfig]) -> IncarnationFilter:
    flows = tuple(flows)
    return IncarnationFilter(flows=flows, recorded=read_incarnations(lake, flows))
