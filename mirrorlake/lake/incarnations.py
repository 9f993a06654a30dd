"""Filter rows by the incarnation of their remote topic: current, or deleted since.

A row of the offset map belongs to one incarnation of a remote topic and has that topic's id. The table `metadata` has the present
incarnation. A row from before ids were recorded belongs to the incarnation in which it was committed. A row of a topic that the
flow's present policy does not name is neither current nor stale for an upstream offset; for a downstream one every name counts.

Law A (never ahead): a position is never taken from a deleted topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    rows = lake.query(
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

    def current_rows(self, runs: DataFrame, topic: str = "source_topic") -> DataFrame:
        return runs.where(self.current_sql(topic))

    def current_sql(self, topic: str = "source_topic") -> str:
        """Return a SQL filter for rows of `offset_map` of current incarnations.

        `topic` is the column of the source topic, or "" if rows of every policy's remote topics count.
        """
        gone = self.stale_sql("")
        return self.named_sql(topic) + (f" AND NOT ({gone})" if gone else "")

    def named_sql(self, topic: str) -> str:
        """Return a SQL filter for rows whose remote topic has the name that the flow's policy gives the one in a column."""
        flows = self.flows if topic else ()
        return (
            " AND ".join(f"(flow NOT IN {_names(f)} OR target_topic = {_remote_sql(f, topic)})" for f in flows)
            or "true"
        )

    def stale_sql(self, topic: str = "source_topic") -> str | None:
        """Return a SQL filter for rows of deleted incarnations (see `current_sql`), or None if there can be none."""
        gone = [
            f"(flow IN {_names(flow)} AND target_topic = {quote(remote)} AND {_is_other(life)})"
            for flow in self.flows
            for remote in sorted(self._remotes(flow))
            if (life := self._incarnation(flow, remote)) is not None
        ]
        return f"{self.named_sql(topic)} AND ({' OR '.join(gone)})" if gone else None

    def _remotes(self, flow: FlowConfig) -> set[str]:
        lost = {one.remote for one in self.lost if one.flow == flow.name}
        return lost | {remote for target, remote in self.recorded if target == flow.target}

    def _incarnation(self, flow: FlowConfig, remote: str) -> TopicIncarnation | None:
        if any((one.flow, one.remote) == (flow.name, remote) for one in self.lost):
            return TopicIncarnation(topic_id=None, since=None)
        return self.recorded.get((flow.target, remote))


def remote_names(text: str, flow: FlowConfig) -> str:
    """Return a SQL text with each `<column>` of a source topic replaced by the name of its remote topic."""
    return re.sub(r"<([\w.]+)>", lambda column: _remote_sql(flow, column[1]), text)


def _remote_sql(flow: FlowConfig, topic: str) -> str:
    """Return the SQL of `flow.remote_topic` for the source topic in a column."""
    default = f"{{source}}{flow.policy.separator}{{topic}}"
    filled = (flow.policy.template or default).replace("{source}", flow.source).replace("{target}", flow.target)
    # Braces would name a table of the query.
    name = f"concat({f', {topic}, '.join(map(quote, filled.split('{topic}')))})"
    is_same = flow.policy.kind == "identity"
    return f"CASE WHEN {topic} LIKE '%heartbeats' THEN {name} ELSE {topic} END" if is_same else name


def _names(flow: FlowConfig) -> str:
    return f"({quote(flow.name)}, {quote(flow.redrive_name)})"


def _is_other(incarnation: TopicIncarnation) -> str:
    if incarnation.topic_id is None:
        return "true"
    before = "false" if incarnation.since is None else f"unix_micros(committed_at) < {micros(incarnation.since)}"
    return f"CASE WHEN target_topic_id IS NULL THEN {before} ELSE target_topic_id != {quote(incarnation.topic_id)} END"


def load_incarnation_filter(lake: Lake, flows: Iterable[FlowConfig]) -> IncarnationFilter:
    flows = tuple(flows)
    return IncarnationFilter(flows=flows, recorded=read_incarnations(lake, flows))
