"""List the topics of a cluster: where each is mirrored, or why not; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from mirrorlake.config import find_unmirrored, preview
from mirrorlake.config.schema import FlowConfig, NameMatcher
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.patterns import INTERNAL_TOPICS
from mirrorlake.model.plan import Note
from mirrorlake.render import JsonDisplayable, LinkedText, Sheet, format_count, link, plural, table
from mirrorlake.topics.sources import TopicSource

How = Literal[
    "mirrored", "remote", "excluded", "never_leaves", "internal", "comes_back", "no_name", "not_selected", "no_flow"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirroring:
    """The effect of one flow on a topic: `mirrored` to the topic `other` of `cluster`, `remote` from it, or why not."""

    flow: str
    how: How
    cluster: str = ""
    other: str | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.how == "mirrored":
            return f"{self.cluster}: {self.other}"
        if self.how == "remote":
            return f"remote topic of {self.flow}, from {self.cluster}" + (f": {self.other}" if self.other else "")
        return f"{self.flow}: {self.why}" if self.flow else self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    """One topic of a cluster."""

    topic: str
    partitions: int
    internal: bool = False
    mirrorings: tuple[Mirroring, ...] = ()

    @property
    def is_mirrored(self) -> bool:
        return any(one.how == "mirrored" for one in self.mirrorings)

    @property
    def mirrored(self) -> str:
        told = [one for one in self.mirrorings if one.how in ("mirrored", "remote")] or self.mirrorings
        return "; ".join(dict.fromkeys(map(str, told)))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TopicList(JsonDisplayable, Sequence[TopicLine]):
    """The topics of a cluster; `hidden` counts the omitted internal topics, `notes` tell what mirrors nothing.

    Example:
        >>> print(TopicList(cluster="east", topics=(TopicLine(topic="orders", partitions=3),)))
        topics of east: 1 topic · 3 partitions · 0 mirrored
          topic   partitions  mirrored
          orders           3  –
    """

    cluster: str
    topics: tuple[TopicLine, ...]
    hidden: int = 0
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return len(self.topics)

    @overload
    def __getitem__(self, index: int) -> TopicLine: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TopicLine, ...]: ...
    def __getitem__(self, index: int | slice) -> TopicLine | tuple[TopicLine, ...]:
        return self.topics[index]

    def sheet(self) -> Sheet:
        """Show the topics by name."""
        rows = [
            (LinkedText(line.topic, link("topic", self.cluster, line.topic)), line.partitions, line.mirrored or None)
            for line in self.topics
        ]
        facts = (
            plural(len(self), "topic"),
            plural(sum(line.partitions for line in self.topics), "partition"),
            f"{format_count(sum(line.is_mirrored for line in self.topics))} mirrored",
            f"{plural(self.hidden, 'internal topic')} not shown" if self.hidden else None,
        )
        shown = table("", ["topic", "partitions", "mirrored"], rows) if rows else "no topic"
        return Sheet(title=f"topics of {self.cluster}", facts=facts, parts=(shown, *map(str, self.notes)))


def partition_counts(source: TopicSource) -> dict[str, int]:
    """Read the partition counts of all topics of a cluster, internal ones included."""
    if isinstance(source, ClusterAdmin):
        return {name: len(partitions) for name, partitions in source.topic_metadata.layout().items()}
    return {name: state.partitions for name, state in source.describe(source.topic_names()).items()}


def list_topics(
    alias: str,
    partitions: Mapping[str, int],
    *,
    flows: Iterable[FlowConfig],
    names_of: Callable[[str], Collection[str]],
    internal: bool = False,
) -> TopicList:
    """List a cluster's topics by name, from their partition counts; `names_of` reads the topic names of a source, and may fail."""
    flows, is_internal = list(flows), NameMatcher(INTERNAL_TOPICS).matches
    shown = [name for name in sorted(partitions) if internal or not is_internal(name)]
    mirrorings: dict[str, list[Mirroring]] = {name: [] for name in shown}
    for flow in (flow for flow in flows if flow.target == alias):
        for remote, upstream in _remote_topics(flow, shown, names_of).items():
            if remote in mirrorings:
                mirrorings[remote].append(Mirroring(flow=flow.name, how="remote", cluster=flow.source, other=upstream))
    leaving = [flow for flow in flows if flow.source == alias]
    for flow in leaving:
        judged = {one.topic: one for one in preview(flow, shown).topics}
        for name in shown:
            one = judged.get(name)
            if one is None:
                made = Mirroring(flow=flow.name, how="not_selected", why="no pattern of the flow matches")
            elif one.remote is None:
                made = Mirroring(flow=flow.name, how=one.verdict, why=one.why)
            else:
                made = Mirroring(flow=flow.name, how="mirrored", cluster=flow.target, other=one.remote)
            mirrorings[name].append(made)
    nowhere = (Mirroring(flow="", how="no_flow", why="no flow reads this cluster"),)
    lines = (
        TopicLine(
            topic=name,
            partitions=partitions[name],
            internal=is_internal(name),
            mirrorings=tuple(mirrorings[name]) or nowhere,
        )
        for name in shown
    )
    notes = (note for flow in leaving for note in find_unmirrored(flow, partitions))
    return TopicList(cluster=alias, topics=tuple(lines), hidden=len(partitions) - len(shown), notes=tuple(notes))


def _remote_topics(
    flow: FlowConfig, names: Iterable[str], names_of: Callable[[str], Collection[str]]
) -> dict[str, str]:
    """Map a flow's remote topics to their source topics; from their `names` alone if the source does not answer."""
    try:
        upstream: Iterable[str] = names_of(flow.source)
    except ClusterError:
        policy = flow.replication_policy
        told = ((policy.topic_source(name), policy.upstream_topic(name)) for name in names)
        upstream = [topic for source, topic in told if source == flow.source and topic is not None]
    return {flow.remote_topic(topic): topic for topic in upstream if flow.carries(topic)}
