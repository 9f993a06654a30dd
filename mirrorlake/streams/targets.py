"""Remote topics on a target: what they should be, and making them so before the first record arrives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import TopicConflict
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.changes import apply_change
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import TopicSpec, topic_changes
from mirrorlake.model.topic_configs import merged
from mirrorlake.relay.audit import Audit
from mirrorlake.streams.topics import KnownTopic

# Kafka's own default; a batch must leave room for its header below the topic's max.message.bytes.
_DEFAULT_LIMIT = 1_048_588
_BATCH_HEADER = 512


def wanted_remote_topic(flow: FlowConfig, topics: Iterable[KnownTopic]) -> TopicSpec:
    """Return the remote topic that the given source topics of a flow share.

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
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remote:
    partitions: int
    max_message_bytes: int


class RemoteTopics:
    """Make the remote topics of one flow ready; remembers what it has seen, so a batch of known topics costs nothing.

    What is created or grown is written to `audit`.
    """

    def __init__(self, admin: ClusterAdmin, flow: FlowConfig, audit: Audit) -> None:
        self._admin = admin
        self._audit = audit
        self._flow = flow
        self._ready: dict[str, _Remote] = {}

    def ensure(
        self,
        partitions: Collection[SourcePartition],
        known: Mapping[str, KnownTopic],
        *,
        mirrored_before: Collection[str],
    ) -> None:
        """Create or grow what the given source partitions need.

        Args:
            partitions: source partitions that are about to be republished.
            known: the source's topics as recorded while landing.
            mirrored_before: source topics that this flow has republished records of.

        Raises:
            TopicConflict: a topic that the flow never wrote to exists with fewer partitions than its source, or growing
                is switched off with `sync.partitions: false`; a topic has another number of partitions than placement by
                key counts; a source partition stands in no list of `placement`.
        """
        needed: dict[str, dict[str, KnownTopic]] = {}
        for source in partitions:
            topic = known.get(source.topic) or KnownTopic(
                name=source.topic, generation=source.generation, topic_id="", partitions=0, configs={}
            )
            if source.partition >= topic.partitions:
                topic = KnownTopic(
                    name=topic.name,
                    generation=topic.generation,
                    topic_id=topic.topic_id,
                    partitions=source.partition + 1,
                    configs=topic.configs,
                )
            by_name = needed.setdefault(self._flow.remote_topic(source.topic), {})
            if source.topic not in by_name or by_name[source.topic].partitions < topic.partitions:
                by_name[source.topic] = topic
        for remote, topics in needed.items():
            for topic in topics.values():
                self._refuse_unmapped(topic, remote)
            wanted = wanted_remote_topic(self._flow, topics.values())
            ready = self._ready.get(remote)
            if ready is None or ready.partitions < wanted.partitions:
                self._make(wanted, fresh=not any(topic in mirrored_before for topic in topics))

    def batch_bytes(self) -> int:
        """Return how large a producer batch may be so that every topic of the flow accepts it."""
        smallest = min((remote.max_message_bytes for remote in self._ready.values()), default=_DEFAULT_LIMIT)
        return max(1, min(1_000_000, smallest - _BATCH_HEADER))

    def _make(self, wanted: TopicSpec, *, fresh: bool) -> None:
        actual = self._admin.describe([wanted.name]).get(wanted.name)
        if actual is not None and wanted.is_keyed and actual.partitions != wanted.partitions:
            raise self._keyed_conflict(wanted, actual.partitions)
        if actual is not None and actual.partitions < wanted.partitions and (fresh or not self._flow.sync.partitions):
            raise self._conflict(wanted, actual.partitions)
        # The settings of a topic that is there are the business of `plan` and of the flow's duty.
        held = (
            None
            if actual is None
            else TopicSpec(name=wanted.name, partitions=actual.partitions, configs=wanted.configs)
        )
        changes = topic_changes(where=self._flow.target, wanted=wanted, actual=held, flow=self._flow.name)
        for change in changes:
            apply_change(change, self._admin)
        self._audit.record(changes, command="republish")
        limit = self._admin.config_value(wanted.name, "max.message.bytes")
        self._ready[wanted.name] = _Remote(
            partitions=wanted.partitions, max_message_bytes=int(limit) if limit else _DEFAULT_LIMIT
        )

    def _conflict(self, wanted: TopicSpec, partitions: int) -> TopicConflict:
        flow = self._flow
        needs = "its source on" if flow.placement.kind == "keep" else "`placement` of the flow from"
        return TopicConflict(
            f"{wanted.name} exists on {flow.target} with {partitions} partitions, {needs} {flow.source} has "
            f"{wanted.partitions}",
            consequence="records would lose their partition; nothing was republished to it",
            remedy=f"`mirrorlake plan --flow '{flow.name}'` shows the growth, `mirrorlake apply --flow '{flow.name}'` does it "
            "(keys of other producers may change partition); or choose another policy",
            flow=flow.name,
            topic=wanted.name,
        )

    def _keyed_conflict(self, wanted: TopicSpec, partitions: int) -> TopicConflict:
        flow = self._flow
        return TopicConflict(
            f"{wanted.name} has {partitions} partitions on {flow.target}, placement by key counts {wanted.partitions}",
            consequence="keys would stand in other partitions than where they were and where Kafka's own clients look; "
            "nothing was republished to it",
            remedy=f"set placement: {{by: key, count: {partitions}}}, or choose another name for the remote topic with `policy` "
            "(and another name for the flow, so that it gets everything from the relay)",
            flow=flow.name,
            topic=wanted.name,
        )

    def _refuse_unmapped(self, topic: KnownTopic, remote: str) -> None:
        flow = self._flow
        missing = flow.placement.unmapped(topic.name, topic.partitions)
        if not missing:
            return
        raise TopicConflict(
            f"`placement` of {flow.name} maps no place for partition {', '.join(map(str, missing))} of {topic.name}, which has "
            f"{topic.partitions} partitions on {flow.source}",
            consequence="their records would have no place on the target; nothing of this batch was republished",
            remedy=f"add to the settings: placement: {{map: {{{missing[0]}: <partition of {remote}>}}}}",
            flow=flow.name,
            topic=topic.name,
            partition=missing[0],
        )
