"""Remote topics on a target: what they should be, and making them so before the first record arrives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import RemoteTopicLost, TopicConflict, TopicDenied
from mirrorlake.kafka import ClusterAdmin, TopicState, describe_surely, lost, require_same
from mirrorlake.lake import Audit, KnownTopic, Lake, newest_topics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.loops.collisions import collide
from mirrorlake.model.plan import TopicSpec, topic_changes
from mirrorlake.model.remotes import HeldTopic, Remote, is_other, known_id
from mirrorlake.model.topic_configs import merged

# Kafka's own default; a batch must leave room for its header below the topic's max.message.bytes.
_DEFAULT_LIMIT = 1_048_588
_BATCH_HEADER = 512


def wanted_remote_topic(flow: FlowConfig, topics: Iterable[KnownTopic]) -> TopicSpec:
    """Describe the remote topic that the given source topics of a flow share.

    Partitions are what the flow's placement needs: the largest source's where records keep their partition number. Settings
    are those that `ConfigSync` takes, the first source's where several differ.
    """
    sources = sorted(topics, key=lambda topic: topic.name)
    placement = flow.placement
    sync = flow.sync.config_sync
    return TopicSpec(
        name=flow.remote_topic(sources[0].name),
        partitions=max(placement.remote_partitions(topic.name, topic.partitions) for topic in sources),
        is_keyed=placement.kind == "key",
        configs=merged(sync.wanted(topic.name, topic.configs) for topic in sources),
        replication_factor=flow.replication_factor or -1,
    )


def rival(
    flow: FlowConfig, topic: str, others: Iterable[tuple[FlowConfig, Iterable[str]]]
) -> tuple[FlowConfig, str] | None:
    """Find another flow that writes the same remote topic without intent, and its source topic.

    What the settings alone show is refused when they are read (`model/loops/collisions.py`); this is what real topics show.
    `others` are the other flows, each with the topics that are known of its source.
    """
    remote = flow.remote_topic(topic)
    for other, names in others:
        if other.name == flow.name or other.target != flow.target or flow.may_share(other):
            continue
        for name in names:
            if other.carries(name) and other.remote_topic(name) == remote:
                return other, name
    return None


def target_of(flow: FlowConfig, source: SourcePartition) -> TopicPartition:
    """Name where the records of a source partition go; the last check on topics that may never leave.

    Everything before it leaves such topics out: one that comes here is a mistake in mirrorlake and stops the flow.

    Raises:
        TopicDenied: the topic may never leave the source.
    """
    if flow.denies(source.topic):
        raise TopicDenied(
            f"{source.topic} was about to leave {flow.source} for {flow.target}, which clusters.{flow.source}.never_leave "
            "forbids",
            consequence="nothing of the batch was sent; this should never happen",
            remedy=f"report it with the flow's settings; until then add {source.topic} to exclude_topics of {flow.name}",
            flow=flow.name,
            topic=source.topic,
        )
    return TopicPartition(flow.remote_topic(source.topic), source.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    partitions: int
    max_message_bytes: int
    topic_id: str


class RemoteTopics:
    """Make the remote topics of one flow ready; remembers what it has seen, so a batch of known topics costs nothing.

    What is created or grown is written to `audit`. `all_flows` are all flows of the settings: others could write the same
    remote topics.

    Law F: a topic that records were sent to is never made again silently; its id is looked at before every batch.
    """

    def __init__(
        self, admin: ClusterAdmin, flow: FlowConfig, audit: Audit, lake: Lake, *, all_flows: Iterable[FlowConfig] = ()
    ) -> None:
        self._admin = admin
        self._rivals = [
            each
            for each in all_flows
            if each.name != flow.name and each.target == flow.target and not flow.may_share(each)
        ]
        self._lake = lake
        self._audit = audit
        self._flow = flow
        self._ready: dict[str, _Ready] = {}
        self._sent_to: dict[str, str] = {}

    def expect(self, remotes: Iterable[Remote]) -> None:
        """Know the remote topics that hold records of the flow by its ledger."""
        self._sent_to |= {one.name: one.topic_id for one in remotes}

    def of(self, topics: Iterable[str]) -> dict[str, Remote]:
        """Return the remote topic of each source topic, with its id; they are ready."""
        names = {topic: self._flow.remote_topic(topic) for topic in topics}
        return {topic: Remote(name, self._ready[name].topic_id) for topic, name in names.items()}

    def whole(self, topics: Collection[KnownTopic]) -> list[KnownTopic]:
        """Choose the source topics whose remote topic is there with all partitions that it needs: nothing is to be done for them.

        Raises:
            ClusterError: the target does not answer.
        """
        flow = self._flow
        states = self._admin.describe({flow.remote_topic(topic.name) for topic in topics})

        def is_whole(topic: KnownTopic) -> bool:
            state, wanted = states.get(flow.remote_topic(topic.name)), wanted_remote_topic(flow, [topic])
            return state is not None and state.partitions >= wanted.partitions

        return [topic for topic in topics if is_whole(topic)]

    def batch_bytes(self) -> int:
        """Return how large a producer batch may be so that every topic of the flow accepts it."""
        smallest = min((ready.max_message_bytes for ready in self._ready.values()), default=_DEFAULT_LIMIT)
        return max(1, min(1_000_000, smallest - _BATCH_HEADER))

    def ensure(
        self,
        partitions: Collection[SourcePartition],
        known: Mapping[str, KnownTopic],
        *,
        mirrored_before: Collection[str],
    ) -> None:
        """Create or grow what the given source partitions need.

        `known` are the source's topics as recorded while landing, `mirrored_before` those that this flow has republished
        records of.

        Raises:
            RemoteTopicLost: a topic that holds records of the flow was deleted, or created again.
            TopicConflict: a topic that the flow never wrote to exists with fewer partitions than its source, or growing
                is switched off with `sync.partitions: false`; a topic has another number of partitions than placement by
                key counts; `placement` maps no place for a source partition.
        """
        needed: dict[str, dict[str, KnownTopic]] = {}
        for source in partitions:
            topics = needed.setdefault(self._flow.remote_topic(source.topic), {})
            topic = topics.get(source.topic) or known.get(source.topic) or KnownTopic(name=source.topic)
            if source.partition >= topic.partitions:
                topic = replace(topic, partitions=source.partition + 1)
            topics[source.topic] = topic
        ids = {remote: self._sent_to[remote] for remote in needed if remote in self._sent_to}
        require_same(self._admin, ids, flow=self._flow.name)
        for remote, topics in needed.items():
            for topic in topics.values():
                self._refuse_unmapped(topic, remote)
            wanted = wanted_remote_topic(self._flow, topics.values())
            ready = self._ready.get(remote)
            if ready is None and self._rivals:
                self._refuse_rivals(topics)
            if ready is None or ready.partitions < wanted.partitions:
                self._make(wanted, fresh=not any(topic in mirrored_before for topic in topics))

    def _make(self, wanted: TopicSpec, *, fresh: bool) -> None:
        name, flow = wanted.name, self._flow
        actual = self._admin.describe([name]).get(name)
        self._refuse_other(name, actual)
        held = None
        if actual is None:
            self._refuse_alike(name)
        else:
            self._refuse_other_count(wanted, actual.partitions, fresh=fresh)
            # The settings of an existing topic are the business of `plan` and of continuous sync.
            held = TopicSpec(name=name, partitions=actual.partitions, configs=wanted.configs)
        changes = topic_changes(where=flow.target, wanted=wanted, actual=held, flow=flow.name)
        for change in changes:
            self._admin.apply(change)
        self._audit.record(changes, command="republish")
        limit = self._admin.config_value(name, "max.message.bytes")
        state = actual or describe_surely(self._admin, [name]).get(name)
        if state is None:
            raise self._lost(name, None)
        topic_id = known_id(state.topic_id)
        self._ready[name] = _Ready(
            partitions=wanted.partitions,
            max_message_bytes=int(limit) if limit else _DEFAULT_LIMIT,
            topic_id=topic_id,
        )
        self._sent_to[name] = topic_id

    def _refuse_other(self, remote: str, actual: TopicState | None) -> None:
        """Raise where a topic with records of the flow was lost since it was looked at: it would be made here."""
        found = known_id(actual.topic_id) if actual is not None else None
        known = self._sent_to.get(remote)
        if known is not None and (found is None or is_other(known, found)):
            raise self._lost(remote, found)

    def _lost(self, remote: str, found: str | None) -> RemoteTopicLost:
        flow, known = self._flow, self._sent_to.get(remote, "")
        return lost(HeldTopic(flow=flow.name, target=flow.target, remote=remote, topics=(), known=known, found=found))

    def _may_grow(self, remote: str, *, fresh: bool) -> bool:
        if not fresh or not self._flow.sync.partitions:
            return self._flow.sync.partitions
        # One that mirrorlake made while the source was empty holds nobody's keys and follows the source.
        entries = self._audit.entries(self._flow.target, "topic")
        return any(entry.object == remote and entry.action == "create" for entry in entries)

    def _refuse_rivals(self, topics: Iterable[str]) -> None:
        flow = self._flow
        names = {
            alias: tuple(newest_topics(self._lake, alias, "source")) for alias in {each.source for each in self._rivals}
        }
        for topic in topics:
            found = rival(flow, topic, [(each, names[each.source]) for each in self._rivals])
            if found is not None:
                remote = flow.remote_topic(topic)
                raise self._conflict(
                    f"{flow.name} ({topic}) and {found[0].name} ({found[1]}) both write {remote} on {flow.target} without saying "
                    "that they merge",
                    remedy="exclude the topic from one of them, use policy: default, or the same template on both",
                    topic=remote,
                )

    def _refuse_alike(self, remote: str) -> None:
        alike = next((name for name in self._admin.topic_names() if collide(name, remote)), None)
        if alike is not None:
            raise self._conflict(
                f"{remote} cannot be made on {self._flow.target}: it differs from {alike} in . and _ only, and Kafka takes them for "
                "one in its metrics",
                remedy=f"exclude its source from {self._flow.name}, or give it another name by a template",
                topic=remote,
            )

    def _refuse_other_count(self, wanted: TopicSpec, partitions: int, *, fresh: bool) -> None:
        flow, name = self._flow, wanted.name
        if wanted.is_keyed and partitions != wanted.partitions:
            raise self._conflict(
                f"{name} has {partitions} partitions on {flow.target}, placement by key counts {wanted.partitions}",
                consequence="keys would stand in other partitions than where they were and where Kafka's own clients look; "
                "nothing was republished to it",
                remedy=f"set placement: {{by: key, count: {partitions}}}, or choose another name for the remote topic with "
                "`policy` (and another name for the flow, so that it gets everything from the relay)",
                topic=name,
            )
        if partitions < wanted.partitions and not self._may_grow(name, fresh=fresh):
            needs = "its source on" if flow.placement.kind == "keep" else "`placement` of the flow from"
            raise self._conflict(
                f"{name} exists on {flow.target} with {partitions} partitions, {needs} {flow.source} has {wanted.partitions}",
                consequence="records would lose their partition; nothing was republished to it",
                remedy=f"`mirrorlake plan --flow '{flow.name}'` shows the growth, `mirrorlake apply --flow '{flow.name}'` does it "
                "(keys of other producers may change partition); or choose another policy",
                topic=name,
            )

    def _refuse_unmapped(self, topic: KnownTopic, remote: str) -> None:
        flow = self._flow
        missing = flow.placement.unmapped(topic.name, topic.partitions)
        if missing:
            raise self._conflict(
                f"`placement` of {flow.name} maps no place for partition {', '.join(map(str, missing))} of {topic.name}, which has "
                f"{topic.partitions} partitions on {flow.source}",
                consequence="their records would have no place on the target; nothing of this batch was republished",
                remedy=f"add to the settings: placement: {{map: {{{missing[0]}: <partition of {remote}>}}}}",
                topic=topic.name,
                partition=missing[0],
            )

    def _conflict(
        self, cause: str, *, remedy: str, topic: str, consequence: str = "nothing was republished to it", **facts: Any
    ) -> TopicConflict:
        return TopicConflict(cause, consequence=consequence, remedy=remedy, flow=self._flow.name, topic=topic, **facts)
