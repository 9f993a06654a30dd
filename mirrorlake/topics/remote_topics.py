"""Create and grow the remote topics of a flow before their first records arrive."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import (
    ClusterError,
    ClusterUnreachable,
    MirrorlakeError,
    NotAuthorized,
    RemoteTopicLost,
    SafetyError,
    TopicConflict,
    TopicDenied,
)
from mirrorlake.kafka import ClusterAdmin, TopicState, check_topic_ids, describe_with_retry, lost_topic_error
from mirrorlake.lake import Audit, KnownTopic, Lake
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.plan import Change, TopicSpec, topic_changes
from mirrorlake.model.policy import name_fault
from mirrorlake.model.remotes import LostTopic, Remote, is_different_topic, known_id
from mirrorlake.model.topic_configs import merged
from mirrorlake.topics.filled_topics import FilledTopics
from mirrorlake.topics.remote_conflicts import ConflictCheck, WantedTopic

# Kafka's default of max.message.bytes; a batch and its header must fit below the topic's limit.
_DEFAULT_LIMIT = 1_048_588
_LIMIT = "max.message.bytes"
_BATCH_HEADER = 512
# A broker lists the topics of a request only after it has made their logs: 200 took some 5 s on a busy machine (2026-11-23).
_TOPICS_A_REQUEST = 100
_PARTITIONS_A_REQUEST = 500


def wanted_remote_topic(flow: FlowConfig, topics: Iterable[KnownTopic]) -> TopicSpec:
    """Return the remote topic that the given source topics of a flow share.

    The flow's placement decides the partitions: the largest source's count if records keep their partition number. `ConfigSync`
    decides the settings; the first source's value wins.
    """
    sources = sorted(topics, key=lambda topic: topic.name)
    placement = flow.placement
    sync = flow.sync.config_sync
    return TopicSpec(
        name=flow.remote_topic(sources[0].name),
        partitions=max(placement.remote_partitions(topic.partitions) for topic in sources),
        is_keyed=placement.kind == "key",
        configs=merged(sync.wanted(topic.name, topic.configs) for topic in sources),
        replication_factor=flow.replication_factor or -1,
    )


def target_of(flow: FlowConfig, source: SourcePartition) -> TopicPartition:
    """Return the remote partition of a source partition, after the last `never_leave` check.

    Earlier checks omit such topics: a denied topic that arrives is a bug of mirrorlake and stops the flow.
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


@dataclass(eq=False, repr=False)
class RemoteTopics:
    """Make the remote topics of one flow ready; caches them, so a batch of known topics costs one check of ids.

    `audit` gets the topics created or grown. `all_flows` are all flows of the settings, which could write the same remote
    topics. `filled` refuses topics that others filled.

    Law F: a topic that got records is never made again silently; its id is checked before every batch.
    """

    admin: ClusterAdmin
    flow: FlowConfig
    audit: Audit
    lake: Lake
    _: KW_ONLY
    all_flows: Sequence[FlowConfig] = ()
    filled: FilledTopics | None = None
    _ready: dict[str, _Ready] = field(default_factory=dict, init=False)
    _sent_to: dict[str, str] = field(default_factory=dict, init=False)
    _waits: bool = field(default=True, init=False)

    def expect(self, remotes: Iterable[Remote]) -> None:
        """Remember the remote topics that hold records of the flow by its ledger."""
        self._sent_to |= {one.name: one.topic_id for one in remotes}

    def of(self, topics: Iterable[str]) -> dict[str, Remote]:
        """Return the remote topic of each source topic, with its id; all must be ready."""
        names = {topic: self.flow.remote_topic(topic) for topic in topics}
        return {topic: Remote(name, self._ready[name].topic_id) for topic, name in names.items()}

    def whole(self, topics: Collection[KnownTopic]) -> list[KnownTopic]:
        """Return the source topics whose remote topic exists with all partitions that it needs."""
        flow = self.flow
        states = self.admin.describe({flow.remote_topic(topic.name) for topic in topics})

        def is_whole(topic: KnownTopic) -> bool:
            state, wanted = states.get(flow.remote_topic(topic.name)), wanted_remote_topic(flow, [topic])
            return state is not None and state.partitions >= wanted.partitions

        return [topic for topic in topics if is_whole(topic)]

    def batch_bytes(self) -> int:
        """Return the largest producer batch in bytes that every topic of the flow accepts."""
        smallest = min((ready.max_message_bytes for ready in self._ready.values()), default=_DEFAULT_LIMIT)
        return max(1, min(1_000_000, smallest - _BATCH_HEADER))

    def max_message_bytes(self, remote: str) -> str | None:
        """Return a remote topic's present `max.message.bytes`, or None if the principal may not read it."""
        try:
            return self.admin.config_value(remote, _LIMIT)
        except NotAuthorized:
            return None

    def may_write(self, remote: str) -> bool:
        try:
            self.admin.require([remote], "WRITE")
        except NotAuthorized:
            return False
        return True

    def ensure(
        self,
        partitions: Collection[SourcePartition],
        known: Mapping[str, KnownTopic],
        *,
        mirrored_before: Collection[str],
        conflicts: dict[str, MirrorlakeError] | None = None,
    ) -> None:
        """Create or grow the remote topics of the given source partitions.

        `known` are the source's topics as recorded while landing, `mirrored_before` the topics that this flow has republished
        records of.

        An error of one topic does not stop the others: the first error is raised afterwards. `conflicts`, if given, gets
        conflicts, refused permissions and what a quota puts off by remote topic instead; else the quota is waited for.

        Raises:
            RemoteTopicLost: a topic that holds records of the flow was deleted or created again; if that was so before the
                call, nothing is made.
            TopicConflict: a topic that the flow never wrote to exists with fewer partitions than its source, or
                `sync.partitions: false` forbids growing; the partitions are not the count of placement by key;
                a topic holds records of others.
            ClusterError: the target does not answer, or refuses a topic.
        """
        needed: dict[str, dict[str, KnownTopic]] = {}
        for source in partitions:
            topics = needed.setdefault(self.flow.remote_topic(source.topic), {})
            topic = topics.get(source.topic) or known.get(source.topic) or KnownTopic(name=source.topic)
            if source.partition >= topic.partitions:
                topic = replace(topic, partitions=source.partition + 1)
            topics[source.topic] = topic
        ids = {remote: self._sent_to[remote] for remote in needed if remote in self._sent_to}
        check_topic_ids(self.admin, ids, flow=self.flow.name)
        refused: dict[str, MirrorlakeError] = {}
        check = ConflictCheck(self.admin, self.flow, self.audit, self.lake, self.all_flows)
        missing: list[WantedTopic] = []
        for remote, topics in needed.items():
            with _noting(refused, remote):
                if (fault := name_fault(remote)) is not None:
                    raise fault
                spec = wanted_remote_topic(self.flow, topics.values())
                ready = self._ready.get(remote)
                if ready is None:
                    check.require_sole_writer(remote, next(iter(topics)))
                if ready is None or ready.partitions < spec.partitions:
                    fresh = not any(topic in mirrored_before for topic in topics)
                    missing.append(WantedTopic(spec=spec, topics=tuple(topics), fresh=fresh))
        if missing:
            self._waits = conflicts is None
            self._make(missing, check, refused)
        if conflicts is not None:
            may_wait = TopicConflict | NotAuthorized
            found = {at for at, why in refused.items() if isinstance(why, may_wait) or "allowed_at" in why.facts}
            conflicts |= {remote: refused.pop(remote) for remote in found}
        for error in (refused[remote] for remote in needed if remote in refused):
            raise error

    def _make(self, wanted: Sequence[WantedTopic], check: ConflictCheck, refused: dict[str, MirrorlakeError]) -> None:
        """Create and grow topics in a few calls for all of them; `refused` gets the errors."""
        states = self.admin.describe([one.name for one in wanted], refused=refused)
        if self.filled is not None:
            # Check each topic before its first record of this process.
            new = [one for one in wanted if one.name not in refused and one.name not in self._ready]
            refused |= check.find_filled(new, states, self.filled)
        changes = [
            change
            for one in self._allowed(wanted, states, check, refused)
            for change in self._changes(one, states.get(one.name))
        ]
        self._carry_out(changes, [one.spec for one in wanted], refused)
        there = [one for one in wanted if one.name not in refused]
        states |= describe_with_retry(self.admin, {one.name for one in there} - states.keys())
        settings = self.admin.topic_metadata.settings({one.name for one in there})
        for one in there:
            with _noting(refused, one.name):
                state, known = states.get(one.name), settings.get(one.name)
                if state is None:
                    raise ClusterError(
                        f"cluster {self.flow.target} created topic {one.name}, but does not describe it yet",
                        consequence="nothing was republished to it",
                        remedy="wait, a running mirror retries; if it lasts, run `mirrorlake doctor`",
                        alias=self.flow.target,
                    )
                # The broker asked may not know a new topic yet; a second call raises `NotAuthorized` if that is the reason.
                limit = known[_LIMIT].value if known else self.admin.config_value(one.name, _LIMIT)
                self._ready[one.name] = _Ready(
                    partitions=one.spec.partitions,
                    max_message_bytes=int(limit) if limit else _DEFAULT_LIMIT,
                    topic_id=known_id(state.topic_id),
                )
                self._sent_to[one.name] = known_id(state.topic_id)

    def _allowed(
        self,
        wanted: Iterable[WantedTopic],
        states: Mapping[str, TopicState],
        check: ConflictCheck,
        refused: dict[str, MirrorlakeError],
    ) -> Iterator[WantedTopic]:
        for one in wanted:
            actual = states.get(one.name)
            with _noting(refused, one.name):
                if one.name in refused:
                    continue
                self._refuse_other(one.name, actual)
                if actual is None:
                    check.require_distinct_name(one.name)
                else:
                    check.require_partitions(one, actual.partitions)
                yield one

    def _changes(self, one: WantedTopic, actual: TopicState | None) -> list[Change]:
        held = None
        if actual is not None:
            # `plan` and continuous sync change the settings of an existing topic.
            held = TopicSpec(name=one.name, partitions=actual.partitions, configs=one.spec.configs)
        return topic_changes(where=self.flow.target, wanted=one.spec, actual=held, flow=self.flow.name)

    def _carry_out(
        self, changes: Iterable[Change], specs: Iterable[TopicSpec], refused: dict[str, MirrorlakeError]
    ) -> None:
        """Create topics, many in a request, and grow others; record all of it in `audit` with one append."""
        new = {change.name: change for change in changes if change.action == "create"}
        done: list[Change] = []
        try:
            for request in in_requests(spec for spec in specs if spec.name in new):
                denied = self.admin.create_all(request, waits=self._waits)
                refused |= denied
                made = [new[spec.name] for spec in request if spec.name not in denied]
                done += made
                self.admin.wait_for(made)
            for change in changes:
                if change.action != "create":
                    with _noting(refused, change.name):
                        self.admin.apply(change)
                        done.append(change)
        finally:
            self.audit.record(done, command="republish")

    def _refuse_other(self, remote: str, actual: TopicState | None) -> None:
        """Raise if a topic with records of the flow was lost since its last check: it would be created again."""
        found = known_id(actual.topic_id) if actual is not None else None
        known = self._sent_to.get(remote)
        if known is not None and (found is None or is_different_topic(known, found)):
            raise self._lost(remote, found)

    def _lost(self, remote: str, found: str | None) -> RemoteTopicLost:
        flow, known = self.flow, self._sent_to.get(remote, "")
        return lost_topic_error(
            LostTopic(flow=flow.name, target=flow.target, remote=remote, topics=(), known=known, found=found)
        )


@contextmanager
def _noting(refused: dict[str, MirrorlakeError], name: str) -> Iterator[None]:
    """Note an error of one topic; raise if the cluster does not answer."""
    try:
        yield
    except ClusterUnreachable:
        raise
    except (SafetyError, ClusterError) as error:
        refused.setdefault(name, error)


def in_requests(specs: Iterable[TopicSpec]) -> Iterator[list[TopicSpec]]:
    """Yield topics in requests of at most 100 topics and 500 partitions; a larger topic gets its own."""
    held: list[TopicSpec] = []
    partitions = 0
    for spec in specs:
        if held and (len(held) == _TOPICS_A_REQUEST or partitions + spec.partitions > _PARTITIONS_A_REQUEST):
            yield held
            held, partitions = [], 0
        held.append(spec)
        partitions += spec.partitions
    if held:
        yield held
