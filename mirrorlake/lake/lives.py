"""Which runs of the offset map still stand: those of remote topics that were not deleted since.

A run says where records stood in one life of a remote topic, and carries that topic's id. The table `metadata` says which
life is the present one; a run from before ids were kept belongs to the life in which it was committed.

Law A (never ahead): a position is never taken from a topic that is gone.
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
from mirrorlake.model.remotes import HeldTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The present life of a remote topic that had an earlier one: its id, None where it is gone, and since when it is known."""

    topic_id: str | None
    since: datetime | None


def recorded_lives(lake: Lake, flows: Iterable[FlowConfig]) -> dict[tuple[str, str], Life]:
    """Read the remote topics that were deleted or created again, by the target's alias and name; most lakes know none."""
    targets = sorted({flow.target for flow in flows})
    # A row for each change of a remote topic: few enough to be looked at here, without a shuffle.
    rows = lake.ask(
        "SELECT cluster, topic, topic_id, present, observed_at FROM {metadata} "
        "WHERE array_contains(:targets, cluster) AND role = 'target' AND kind = 'topic' ORDER BY observed_at",
        missing_ok=True,
        keep=True,
        targets=targets,
    )
    seen: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        seen.setdefault((row.cluster, row.topic), []).append(row)
    return {place: life for place, several in seen.items() if (life := _present_life(several)) is not None}


def _present_life(rows: Sequence[Any]) -> Life | None:
    """Tell the present life of a topic from its rows, oldest first; None where there was no other one."""
    since: dict[str, datetime] = {}
    for row in rows:
        if row.present:
            since.setdefault(row.topic_id, row.observed_at)
    newest = rows[-1]
    if len(since) <= 1 and newest.present:
        return None
    return Life(
        topic_id=newest.topic_id if newest.present else None,
        since=since.get(newest.topic_id) if len(since) > 1 else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Tell rows of flows apart by whether their remote topic exists.

    `recorded` are remote topics that were lost at some time, `held` those that were found to be lost just now.
    """

    flows: tuple[FlowConfig, ...]
    recorded: Mapping[tuple[str, str], Life]
    held: tuple[HeldTopic, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.recorded or self.held)

    def standing(self, runs: DataFrame) -> DataFrame:
        """Keep the rows of `offset_map` whose records stand in a remote topic that exists."""
        return runs.where(self.standing_sql())

    def fallen(self, runs: DataFrame) -> DataFrame | None:
        """Keep the rows of `offset_map` whose records stood in a topic that is gone; None where there can be none."""
        gone = self.fallen_sql()
        return None if gone is None else runs.where(gone)

    def standing_sql(self) -> str:
        """Say in SQL which rows of `offset_map` speak of a remote topic that exists."""
        gone = self.fallen_sql()
        return "true" if gone is None else f"NOT ({gone})"

    def in_force_sql(self, topics: Callable[[FlowConfig], Iterable[str]]) -> str:
        """Say in SQL which rows of `withheld` were written for a remote topic that exists: others were judged again since.

        `topics` lists the source topics of a flow; it is asked only where one was lost.
        """
        gone: list[str] = []
        for flow in self.flows if self else ():
            for topic in topics(flow):
                life = self._life(flow, flow.remote_topic(topic))
                if life is not None:
                    other = _is_other(life, "withheld_at")
                    gone.append(f"(flow = {quote(flow.name)} AND topic = {quote(topic)} AND {other})")
        return f"NOT ({' OR '.join(gone)})" if gone else "true"

    def fallen_sql(self) -> str | None:
        """Say in SQL which rows of `offset_map` speak of a remote topic that is gone; None where there can be none."""
        gone = [
            f"(flow IN ({quote(flow.name)}, {quote(flow.redrive_name)}) AND target_topic = {quote(remote)} "
            f"AND {_is_other(life, 'committed_at')})"
            for flow in self.flows
            for remote in sorted(self._remotes(flow))
            if (life := self._life(flow, remote)) is not None
        ]
        return " OR ".join(gone) if gone else None

    def _remotes(self, flow: FlowConfig) -> set[str]:
        held = {one.remote for one in self.held if one.flow == flow.name}
        return held | {remote for target, remote in self.recorded if target == flow.target}

    def _life(self, flow: FlowConfig, remote: str) -> Life | None:
        if any((one.flow, one.remote) == (flow.name, remote) for one in self.held):
            return Life(topic_id=None, since=None)
        return self.recorded.get((flow.target, remote))


def _is_other(life: Life, at: str) -> str:
    if life.topic_id is None:
        return "true"
    before = "false" if life.since is None else f"unix_micros({at}) < {micros(life.since)}"
    return f"CASE WHEN target_topic_id IS NULL THEN {before} ELSE target_topic_id != {quote(life.topic_id)} END"


def lives_of(lake: Lake, flows: Iterable[FlowConfig]) -> Lives:
    """Read what the lake knows of the remote topics of flows."""
    flows = tuple(flows)
    return Lives(flows=flows, recorded=recorded_lives(lake, flows))
