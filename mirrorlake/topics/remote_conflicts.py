"""Refuse remote topics that another flow writes or filled, or whose name or partitions do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError, TopicConflict
from mirrorlake.kafka import ClusterAdmin, TopicState
from mirrorlake.lake import Audit, Lake, newest_topics
from mirrorlake.model.loops.collisions import unified
from mirrorlake.model.plan import TopicSpec
from mirrorlake.topics.filled_topics import FilledTopics


def rivals(flow: FlowConfig, others: Iterable[tuple[FlowConfig, Iterable[str]]]) -> dict[str, tuple[FlowConfig, str]]:
    """Map the topics that other flows write and may not share with this flow to such a flow and its source topic.

    Reading the settings refuses conflicts of patterns (`model/loops/collisions.py`); this finds conflicts of existing topics.
    `others` are the other flows, each with the known topics of its source.
    """
    found: dict[str, tuple[FlowConfig, str]] = {}
    for other, names in others:
        if not _is_rival(flow, other):
            continue
        for name in names:
            if other.carries(name):
                found.setdefault(other.remote_topic(name), (other, name))
    return found


def _is_rival(flow: FlowConfig, other: FlowConfig) -> bool:
    return other.name != flow.name and other.target == flow.target and not flow.may_share(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A remote topic to create or grow, with its source topics; `fresh` if the flow has republished nothing to it."""

    spec: TopicSpec
    topics: tuple[str, ...]
    fresh: bool

    @property
    def name(self) -> str:
        return self.spec.name


class ConflictCheck:
    """Refuse the remote topics of one flow that conflict with others; `require_*` raise `TopicConflict`.

    A check serves one batch: it reads target and lake once.
    """

    def __init__(
        self, admin: ClusterAdmin, flow: FlowConfig, audit: Audit, lake: Lake, all_flows: Iterable[FlowConfig]
    ) -> None:
        self._admin = admin
        self._flow = flow
        self._audit = audit
        self._lake = lake
        self._rivals = [each for each in all_flows if _is_rival(flow, each)]

    def find_filled(
        self, wanted: Sequence[WantedTopic], states: Mapping[str, TopicState], filled: FilledTopics
    ) -> dict[str, MirrorlakeError]:
        fresh = {one.name: states[one.name] for one in wanted if one.fresh and one.name in states}
        found = filled.refuse_unsent(fresh)
        return {
            one.name: self._conflict(found[one.name].cause, remedy=found[one.name].remedy, topic=one.topics[0])
            for one in wanted
            if one.name in found
        }

    def require_sole_writer(self, remote: str, topic: str) -> None:
        flow = self._flow
        if self._rivals and remote in self._written_by_rivals:
            other, name = self._written_by_rivals[remote]
            raise self._conflict(
                f"{flow.name} ({topic}) and {other.name} ({name}) both write {remote} on {flow.target} without "
                "a template that merges them",
                remedy="exclude the topic from one of them, use policy: default, or the same template on both",
                topic=remote,
            )

    def require_distinct_name(self, remote: str) -> None:
        """Refuse a new topic whose name is that of another topic in Kafka's metrics."""
        alike = self._unified_names.setdefault(unified(remote), remote)
        if alike != remote:
            raise self._conflict(
                f"{remote} cannot be created on {self._flow.target}: it differs from {alike} in . and _ only, so Kafka's metrics "
                "would mix the two",
                remedy=f"exclude its source from {self._flow.name}, or give it another name by a template",
                topic=remote,
            )

    def require_partitions(self, topic: WantedTopic, partitions: int) -> None:
        """Refuse a topic whose `partitions` on the target do not fit and may not grow."""
        flow, wanted, name = self._flow, topic.spec, topic.name
        if wanted.is_keyed and partitions != wanted.partitions:
            raise self._conflict(
                f"{name} has {partitions} partitions on {flow.target}, but placement by key expects {wanted.partitions}",
                consequence="keys would go to other partitions than before, and than Kafka's own clients expect; "
                "nothing was republished to it",
                remedy=f"set placement: {{by: key, count: {partitions}}}, or choose another name for the remote topic with "
                "`policy`, which gets everything from the relay",
                topic=name,
            )
        # A topic that mirrorlake made while the source was empty holds no keys of others and follows the source.
        if partitions < wanted.partitions and not (
            flow.sync.partitions and (not topic.fresh or name in self._made_here)
        ):
            raise self._conflict(
                f"{name} exists on {flow.target} with {partitions} partitions, but its source on {flow.source} has {wanted.partitions}",
                consequence="records would lose their partition; nothing was republished to it",
                remedy=f"`mirrorlake plan --flow '{flow.name}'` shows the growth, `mirrorlake apply --flow '{flow.name}'` does it "
                "(keys of other producers may change partition); or choose another policy",
                topic=name,
            )

    @cached_property
    def _made_here(self) -> frozenset[str]:
        entries = self._audit.entries(self._flow.target, "topic")
        return frozenset(entry.object for entry in entries if entry.action == "create")

    @cached_property
    def _written_by_rivals(self) -> dict[str, tuple[FlowConfig, str]]:
        names = {
            alias: tuple(newest_topics(self._lake, alias, "source")) for alias in {each.source for each in self._rivals}
        }
        return rivals(self._flow, [(each, names[each.source]) for each in self._rivals])

    @cached_property
    def _unified_names(self) -> dict[str, str]:
        return {unified(name): name for name in self._admin.topic_names()}

    def _conflict(
        self, cause: str, *, remedy: str, topic: str, consequence: str = "nothing was republished to it"
    ) -> TopicConflict:
        return TopicConflict(cause, consequence=consequence, remedy=remedy, flow=self._flow.name, topic=topic)
