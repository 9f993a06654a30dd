"""Browse the topics of one cluster: size, rate, and where each is mirrored or why not; changes nothing.

The number of calls does not grow with the number of topics: names and brokers, then settings and offsets in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Protocol

from mirrorlake.config.edit import find_unmirrored, preview
from mirrorlake.config.schema import ClusterConfig, FlowConfig, NameMatcher
from mirrorlake.errors import ClusterError, MirrorlakeError, UsageError
from mirrorlake.kafka import ClusterAdmin, Committed, Groups, PartitionState, TopicSetting, librdkafka_options
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.patterns import INTERNAL_TOPICS
from mirrorlake.topics.topic_list import Mirroring, PartitionLine, TopicLine, TopicList, TopicPage, TopicReader


class Looks(Protocol):
    def layout(self) -> dict[str, tuple[PartitionState, ...]]: ...

    def settings(self, names: Collection[str]) -> dict[str, dict[str, TopicSetting]]: ...

    def offset_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]: ...


class HasGroups(Protocol):
    def states(self) -> dict[str, str]: ...

    def committed(
        self, groups: Iterable[str], partitions: Iterable[TopicPartition], *, unsure: dict[str, MirrorlakeError]
    ) -> dict[str, dict[TopicPartition, Committed]]: ...


NamesOf = Callable[[str], Collection[str]]
"""Read the names of all topics of a cluster."""


class TopicBrowser:
    """Show the topics of one cluster of a mirror; `names_of` reads the topic names of a source, and may fail."""

    def __init__(
        self, alias: str, looks: Looks, *, flows: Iterable[FlowConfig], names_of: NamesOf, now: Callable[[], datetime]
    ) -> None:
        self._alias = alias
        self._looks = looks
        self._out = [flow for flow in flows if flow.source == alias]
        self._into = [flow for flow in flows if flow.target == alias]
        self._names_of = names_of
        self._now = now

    def topics(self, *, internal: bool = False) -> TopicList:
        """List topics by name.

        Raises:
            ClusterError: the cluster does not answer.
        """
        layout = self._looks.layout()
        shown = layout if internal else {name: states for name, states in layout.items() if not is_internal(name)}
        at = self._now()
        lines, _, _ = self._lines(shown)
        notes, hidden = [note for flow in self._out for note in find_unmirrored(flow, layout)], len(layout) - len(shown)
        return TopicList(cluster=self._alias, topics=tuple(lines), hidden=hidden, observed_at=at, notes=tuple(notes))

    def page(self, topic: str, groups: Callable[[], HasGroups | None]) -> TopicPage:
        """Show one topic; `groups` returns the reader of consumer groups, or None if the cluster has none."""
        layout = self._looks.layout()
        if topic not in layout:
            raise UsageError(
                f"{self._alias} has no topic '{topic}'", remedy=f"mirrorlake topics --cluster {self._alias} lists them"
            )
        at = self._now()
        [line], spans, settings = self._lines({topic: layout[topic]})
        readers, note = None, ""
        try:
            readers = _readers(groups(), topic, spans)
        except ClusterError as error:
            note = f"its readers are not known: {error.cause}"
        return TopicPage(
            cluster=self._alias,
            line=line,
            partitions=tuple(_partition(one, spans.get(TopicPartition(topic, one.partition))) for one in layout[topic]),
            settings={name: one.value for name, one in sorted(settings.get(topic, {}).items()) if one.is_own},
            readers=readers,
            note=note,
            observed_at=at,
        )

    def _lines(
        self, layout: Mapping[str, Sequence[PartitionState]]
    ) -> tuple[list[TopicLine], dict[TopicPartition, tuple[int, int]], dict[str, dict[str, TopicSetting]]]:
        # The offset request would wait for a leaderless partition.
        led = [
            TopicPartition(name, p.partition) for name, states in layout.items() for p in states if p.leader is not None
        ]
        with ThreadPoolExecutor(3, thread_name_prefix="topics") as pool:
            asked = pool.submit(self._looks.offset_ranges, led), pool.submit(self._looks.settings, list(layout))
            mirrorings = self._mirrorings(list(layout))
            spans, settings = asked[0].result(), asked[1].result()
        lines = []
        for name, states in layout.items():
            held = {p.partition: spans[tp] for p in states if (tp := TopicPartition(name, p.partition)) in spans}
            own = settings.get(name, {})
            lines.append(
                TopicLine(
                    topic=name,
                    partitions=len(states),
                    replicas=min((len(p.replicas) for p in states), default=0),
                    under_replicated=sum(len(p.isr) < len(p.replicas) for p in states),
                    records=sum(end - first for first, end in held.values()) if len(held) == len(states) else None,
                    cleanup=_value(own, "cleanup.policy"),
                    retention_ms=_number(own, "retention.ms"),
                    retention_bytes=_number(own, "retention.bytes"),
                    internal=is_internal(name),
                    mirrorings=mirrorings[name],
                    ends={partition: end for partition, (_, end) in held.items()},
                )
            )
        return lines, spans, settings

    def _mirrorings(self, names: Sequence[str]) -> dict[str, tuple[Mirroring, ...]]:
        found: dict[str, list[Mirroring]] = {name: [] for name in names}
        for flow in self._into:
            for remote, upstream in self._remotes(flow, names).items():
                if remote in found:
                    found[remote].append(Mirroring(flow=flow.name, how="remote", cluster=flow.source, other=upstream))
        for flow in self._out:
            judged = {one.topic: one for one in preview(flow, names).topics}
            for name in names:
                one = judged.get(name)
                if one is None:
                    made = Mirroring(flow=flow.name, how="not_selected", why="no pattern of the flow matches")
                elif one.remote is None:
                    made = Mirroring(flow=flow.name, how=one.verdict, why=one.why)
                else:
                    made = Mirroring(flow=flow.name, how="mirrored", cluster=flow.target, other=one.remote)
                found[name].append(made)
        nowhere = (Mirroring(flow="", how="no_flow", why="no flow reads this cluster"),)
        return {name: tuple(several) or nowhere for name, several in found.items()}

    def _remotes(self, flow: FlowConfig, names: Sequence[str]) -> dict[str, str]:
        """Map a flow's remote topics in this cluster to their source topics; from names alone if the source is unreachable."""
        try:
            upstream: Iterable[str] = self._names_of(flow.source)
        except ClusterError:
            policy = flow.replication_policy
            told = ((policy.topic_source(name), policy.upstream_topic(name)) for name in names)
            upstream = [topic for source, topic in told if source == flow.source and topic is not None]
        return {flow.remote_topic(topic): topic for topic in upstream if flow.carries(topic)}


class ClusterTopics:
    """The topics of a Kafka cluster that is in no settings file yet."""

    def __init__(self, alias: str, cluster: ClusterConfig, *, now: Callable[[], datetime]) -> None:
        self._groups = partial(Groups, alias, librdkafka_options(cluster, role="consumer"), probes=True)
        self._admin = ClusterAdmin(alias, librdkafka_options(cluster, role="admin"), probes=True)
        self._browser = TopicBrowser(alias, self._admin.topic_metadata, flows=(), names_of=lambda _: (), now=now)

    def topics(self, *, internal: bool) -> TopicList:
        return self._browser.topics(internal=internal)

    def topic(self, topic: str) -> TopicPage:
        return self._browser.page(topic, lambda: self._groups() if self._admin.was_consumed() else None)


def is_internal(topic: str) -> bool:
    return NameMatcher(INTERNAL_TOPICS).matches(topic)


def _readers(
    groups: HasGroups | None, topic: str, spans: Mapping[TopicPartition, tuple[int, int]]
) -> tuple[TopicReader, ...]:
    if groups is None:
        return ()
    states, partitions = groups.states(), [tp for tp in spans if tp.topic == topic]
    # A group that cannot be read hides no other.
    found = groups.committed(states, partitions, unsure={})
    readers = [
        TopicReader(
            group=group,
            state=states[group],
            partitions=len(positions),
            offset_lag=sum(max(0, spans[tp][1] - max(at.offset, spans[tp][0])) for tp, at in positions.items()),
        )
        for group, positions in found.items()
        if positions
    ]
    return tuple(sorted(readers, key=lambda one: (-one.offset_lag, one.group)))


def _partition(state: PartitionState, span: tuple[int, int] | None) -> PartitionLine:
    first, end = span or (None, None)
    return PartitionLine(**asdict(state), earliest=first, end=end)


def _value(settings: Mapping[str, TopicSetting], name: str) -> str | None:
    return settings[name].value if name in settings else None


def _number(settings: Mapping[str, TopicSetting], name: str) -> int | None:
    value = _value(settings, name)
    return None if value is None else int(value)
