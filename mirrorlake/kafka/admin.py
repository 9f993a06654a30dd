"""Administer the topics of one cluster: list, describe, create, grow and configure them."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from mirrorlake.errors import ClusterError, ClusterUnreachable, MirrorlakeError
from mirrorlake.kafka.acls import ClusterAcls
from mirrorlake.kafka.errors import (
    COORDINATOR_MOVING,
    ClientErrors,
    Need,
    client_log,
    need_of_selection,
    retry_transient,
    wait_until,
)
from mirrorlake.kafka.partition_offsets import PartitionOffsets
from mirrorlake.kafka.reach import advertised_error
from mirrorlake.kafka.topic_metadata import SET_BY_TOPIC, TopicMetadataReader, TopicState
from mirrorlake.model.acls import Acl
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.model.plan import Change, TopicSpec, made_by
from mirrorlake.model.policy import is_legal_topic
from mirrorlake.timing import timing

log = logging.getLogger(__name__)

# librdkafka ends each request within its time-out.
_LOST_AFTER_S = 5.0
GROUPS_TOPIC = "__consumer_offsets"
_SHOWN_TIMEOUT_S = 10.0
# A topic that is gone by now costs 10 s of retries.
_MAX_ASKED = 3
_POLL_INTERVAL_S = 0.05


class ClusterAdmin(PartitionOffsets):
    """Administer one cluster. Keep the object while its calls run: a future dies with its AdminClient.

    `probes` tries the addresses before the first call (see `ClientErrors`).
    """

    def __init__(self, alias: str, options: Mapping[str, Any], *, probes: bool = False) -> None:
        errors = ClientErrors.from_options(alias, options, probes=probes)
        with errors.creating_client():
            client = AdminClient(errors.with_error_callback(), logger=client_log)
        errors.poll = partial(client.poll, 0)
        super().__init__(client, errors)
        self.alias, self.servers = alias, errors.servers
        self.acls = ClusterAcls(client, errors, self._metadata)
        self.topic_metadata = TopicMetadataReader(client, errors)
        self._throttled_until = 0.0
        self.is_lost = False

    def require_topics(self, selection: TopicPattern) -> None:
        """Raise `NotAuthorized` if topics of a selection may not be described: Kafka would leave them out silently."""
        for expression in selection.expressions:
            need, name = need_of_selection("TOPIC", expression)
            try:
                [future] = self._client.describe_topics(
                    TopicCollection([name]), request_timeout=timing().admin_timeout_s
                ).values()
                future.result()
            except KafkaException as error:
                if not _is_unknown(error):
                    raise self._errors.to_cluster_error(
                        error.args[0], f"see the topics of '{expression}'", need
                    ) from error

    def require(self, topics: Iterable[str], operation: str) -> None:
        """Raise `NotAuthorized` for the first of these topics on which this principal may not do an operation."""
        wanted = sorted(set(topics))
        if not wanted:
            return
        with self._errors.translating("describe topics"):
            futures = self._client.describe_topics(
                TopicCollection(wanted), include_authorized_operations=True, request_timeout=timing().admin_timeout_s
            )
        for name, future in futures.items():
            try:
                with self._errors.translating(f"describe topic {name}", Need("DESCRIBE", "TOPIC", name)):
                    allowed = future.result().authorized_operations
            except ClusterError as error:
                if isinstance(error.__cause__, KafkaException) and _is_unknown(error.__cause__):
                    continue
                raise
            if AclOperation[operation] not in (allowed or ()):
                raise self._errors.forbidden_error(f"{operation.lower()} topic {name}", Need(operation, "TOPIC", name))

    def broker_count(self) -> int:
        """Return how many brokers answer; raise `ClusterUnreachable` if none does."""
        return len(self._metadata().brokers)

    def advertised_error(self) -> ClusterUnreachable | None:
        """Return the error of brokers that call themselves by addresses which cannot be reached from here."""
        return advertised_error(self.alias, self.servers, self._metadata().brokers.values())

    def require_answer(self, timeout_s: float) -> None:
        """Raise `ClusterUnreachable` if no broker answers in time; unlike `broker_count` it reads no topics."""
        # Of the only broker that is shut down, librdkafka 2.16 survives neither what `describe_cluster` (see `_metadata`) nor what
        # `describe_topics` answers: the first ends the process, after the second the client answers nothing any more.
        resource = ConfigResource(ResourceType.TOPIC, GROUPS_TOPIC)
        with self._errors.translating("ask whether it answers"):
            [future] = self._client.describe_configs([resource], request_timeout=timeout_s).values()
            try:
                future.result()
            except KafkaException as error:
                # Codes below 0 are librdkafka's own; with any other a broker has answered.
                if error.args[0].code() < 0:
                    raise

    def broker_configs(self) -> dict[str, str | None]:
        """Return the settings of one broker by name, or {} if they may not be read."""
        resource = ConfigResource(ResourceType.BROKER, str(min(self._metadata().brokers)))
        with self._errors.translating("read the brokers' settings"):
            [future] = self._client.describe_configs([resource], request_timeout=timing().admin_timeout_s).values()
            try:
                return {name: entry.value for name, entry in future.result().items()}
            except KafkaException as error:
                if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    return {}
                raise

    def default_cleanup(self, topics: Iterable[str]) -> str:
        """Return the `cleanup.policy` of topics that set none themselves, or "" if none of these topics shows it.

        A broker's own settings would have to be read from that broker, which may be unreachable.
        """
        for topic in islice(topics, _MAX_ASKED):
            try:
                with self._errors.translating(f"read the configuration of {topic}"):
                    entry = self._entries(ConfigResource(ResourceType.TOPIC, topic)).get("cleanup.policy")
            except ClusterUnreachable:
                raise
            except ClusterError:
                # The topic is gone, or may not be read.
                continue
            if entry is not None and entry.source != SET_BY_TOPIC:
                return entry.value or ""
        return ""

    def effective_configs(self, topic: str) -> dict[str, str | None]:
        """Return every effective setting of a topic, defaults included."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        with self._errors.translating(f"read the configuration of {topic}", Need("DESCRIBE_CONFIGS", "TOPIC", topic)):
            return {name: entry.value for name, entry in self._entries(resource).items()}

    def effective_configs_each(
        self, names: Iterable[str], *, refused: dict[str, MirrorlakeError]
    ) -> dict[str, dict[str, str | None]]:
        """Return the effective settings of several topics, in one request; topics that do not exist are omitted.

        Errors go to `refused` by topic; an unreachable cluster raises.
        """
        found = {}
        for resource, future in self._describe_configs(names).items():
            try:
                found[resource.name] = {name: entry.value for name, entry in future.result().items()}
            except KafkaException as error:
                if not _is_unknown(error):
                    need = Need("DESCRIBE_CONFIGS", "TOPIC", resource.name)
                    refused[resource.name] = self._refusal_error(
                        error, f"read the configuration of {resource.name}", need
                    )
        return found

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self._metadata("read the cluster's id").cluster_id)

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted, Kafka's internal ones included."""
        return sorted(self._metadata("list topics").topics)

    def was_consumed(self) -> bool:
        """Return whether the cluster has its topic of consumer groups.

        Otherwise any librdkafka consumer, even one that joins no group, makes the broker create it (law H).
        """
        return GROUPS_TOPIC in self.topic_names()

    def _metadata(self, doing: str = "read the cluster's metadata") -> ClusterMetadata:
        with self._errors.translating(doing):
            found: ClusterMetadata = self._errors.call_with_early_failure(
                lambda left: self._client.list_topics(timeout=left), timing().admin_timeout_s
            )
            self._errors.require_advertised(found)
            if not found.brokers:
                # Brokers that begin or end answer so. Over such an answer to `describe_cluster`, librdkafka 2.16 aborts the process.
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker is in service"))  # noqa: SLF001
        return found

    def describe(
        self, names: Iterable[str], *, refused: dict[str, MirrorlakeError] | None = None
    ) -> dict[str, TopicState]:
        """Return id and partition count of the named topics; topics that do not exist are omitted.

        Errors go to `refused` by topic, if it is given; otherwise they raise. An unreachable cluster always raises.
        """
        # A broker would refuse the other names, and no topic has one.
        wanted = sorted(name for name in set(names) if is_legal_topic(name))
        if not wanted:
            return {}
        with self._errors.translating("describe topics"):
            futures = self._client.describe_topics(TopicCollection(wanted), request_timeout=timing().admin_timeout_s)
        found = {}
        for name, future in futures.items():
            try:
                topic = future.result(timing().admin_timeout_s + _LOST_AFTER_S)
            except TimeoutError as error:
                # After the answer of a broker that is being shut down the client answers nothing any more (see `require_answer`).
                self.is_lost = True
                problem = KafkaError(KafkaError._TIMED_OUT, "the client of librdkafka answers nothing any more")  # noqa: SLF001
                raise self._errors.to_cluster_error(problem, "describe topics") from error
            except KafkaException as error:
                if _is_unknown(error):
                    continue
                own = self._refusal_error(error, f"describe topic {name}", Need("DESCRIBE", "TOPIC", name))
                if refused is None:
                    raise own from error
                refused[name] = own
                continue
            found[name] = TopicState(
                name=name,
                topic_id=str(topic.topic_id),
                partitions=len(topic.partitions),
                replicas=min((len(partition.replicas) for partition in topic.partitions), default=0),
                leaderless=frozenset(one.id for one in topic.partitions if one.leader is None or one.leader.id < 0),
            )
        return found

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that each topic sets itself, without the cluster's defaults."""
        found = {}
        for resource, future in self._describe_configs(names).items():
            doing, need = f"read the configuration of {resource.name}", Need("DESCRIBE_CONFIGS", "TOPIC", resource.name)
            with self._errors.translating(doing, need):
                try:
                    entries = future.result()
                except KafkaException as error:
                    if not _is_unknown(error):
                        raise
                    entries = self._entries(resource)
                found[resource.name] = {
                    key: entry.value
                    for key, entry in entries.items()
                    if entry.source == SET_BY_TOPIC and not entry.is_sensitive and entry.value is not None
                }
        return found

    def _describe_configs(self, names: Iterable[str]) -> dict[ConfigResource, Any]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not resources:
            return {}
        with self._errors.translating("read topic configurations"):
            answers: dict[ConfigResource, Any] = self._client.describe_configs(
                resources, request_timeout=timing().admin_timeout_s
            )
        return answers

    def config_value(self, topic: str, key: str) -> str | None:
        """Return the effective value of one setting of a topic."""
        return self.effective_configs(topic).get(key)

    def _entries(self, resource: ConfigResource) -> dict[str, ConfigEntry]:
        # The controller knows a new topic a moment before all brokers do.
        for attempt in Retrying(
            retry=retry_if_exception(_is_unknown), stop=stop_after_delay(10), wait=wait_fixed(0.1), reraise=True
        ):
            with attempt:
                [future] = self._client.describe_configs([resource], request_timeout=timing().admin_timeout_s).values()
                entries: dict[str, ConfigEntry] = future.result()
        return entries

    def apply(self, change: Change) -> None:
        """Carry out one planned change; what already has the planned state stays as it is (law G)."""
        if (change.kind, change.action) == ("acl", "create"):
            self.acls.create([Acl(**change.after)])
        elif (change.kind, change.action) == ("acl", "delete"):
            self.acls.delete([Acl(**change.before)])
        elif change.action == "create":
            self.create(made_by(change))
        elif change.action == "add_partitions":
            self.grow(change.name, change.after)
        elif change.action in ("set_configs", "reset_configs"):
            self.set_configs(change.name, change.after)

    def wait_for(self, changes: Iterable[Change]) -> None:
        """Wait until the cluster shows the changed topics and ACLs, at most 10 s.

        The controller confirms a change a moment before all brokers know it.
        """
        made = list(changes)
        self._wait_shown(lambda: self._is_shown(made))

    def _wait_shown(self, is_shown: Callable[[], bool]) -> None:
        # A principal that may change topics need not be allowed to describe them.
        with suppress(ClusterError):
            wait_until(is_shown, timeout_s=_SHOWN_TIMEOUT_S, interval_s=_POLL_INTERVAL_S)

    def _is_shown(self, changes: Sequence[Change]) -> bool:
        counts = {one.name: one.after["partitions"] for one in changes if (one.kind, one.action) == ("topic", "create")}
        counts |= {one.name: one.after for one in changes if one.action == "add_partitions"}
        changed = [one for one in changes if one.action in ("set_configs", "reset_configs")]
        topics, configs = self.describe(counts), self.configs(one.name for one in changed)
        has_grown = all(name in topics and topics[name].partitions >= count for name, count in counts.items())
        is_set = all(configs[one.name].get(key) == value for one in changed for key, value in one.after.items())
        return has_grown and is_set and self.acls.are_shown(changes)

    @cached_property
    def _changes(self) -> AdminClient:
        # A broker carries out the request that exceeds the quota `controller_mutation_rate`, and reads nothing more of its
        # connection for the time that it tells: on that of the other calls, the cluster would seem not to answer.
        with self._errors.creating_client():
            return AdminClient({**self._errors.with_error_callback(), "throttle_cb": self._throttle}, logger=client_log)

    def _throttle(self, event: Any) -> None:
        self._throttled_until = time.monotonic() + event.throttle_time

    def _quota_wait_s(self) -> float:
        self._changes.poll(0)
        return max(0.0, self._throttled_until - time.monotonic())

    def _await_quota(self) -> None:
        if wait_s := self._quota_wait_s():
            log.warning("quota.waits cluster=%s quota=controller_mutation_rate seconds=%.0f", self.alias, wait_s)
            time.sleep(wait_s)

    def create(self, spec: TopicSpec) -> None:
        """Create a topic; one that exists by now stays as it is."""
        for error in self.create_all([spec]).values():
            raise error

    def create_all(self, specs: Iterable[TopicSpec], *, waits: bool = True) -> dict[str, ClusterError]:
        """Create topics in one request and return the refusals by topic; topics that exist by now stay as they are.

        A quota that puts them off is waited for; without `waits`, it refuses them all.

        Raises:
            ClusterUnreachable: the cluster does not answer, so it is unknown which topics it created.
        """
        topics = [NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.configs)) for s in specs]
        if waits:
            self._await_quota()
        elif wait_s := self._quota_wait_s():
            return {one.topic: self._errors.throttled_error(f"create topic {one.topic}", wait_s) for one in topics}
        refused = {}
        with self._errors.translating("create topics"):
            for name, future in self._changes.create_topics(topics, request_timeout=timing().admin_timeout_s).items():
                try:
                    future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        refused[name] = self._refusal_error(
                            error, f"create topic {name}", Need("CREATE", "TOPIC", name)
                        )
        return refused

    def _refusal_error(self, error: KafkaException, doing: str, need: Need) -> ClusterError:
        """Return the error for one refused topic; raise it if the cluster is unreachable."""
        own = self._errors.to_cluster_error(error.args[0], doing, need)
        own.__cause__ = error
        if isinstance(own, ClusterUnreachable):
            raise own
        return own

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until the cluster no longer shows it; one that is gone already is no error."""
        self._await_quota()
        with self._errors.translating(f"delete topic {name}", Need("DELETE", "TOPIC", name)):
            [future] = self._changes.delete_topics([name], request_timeout=timing().admin_timeout_s).values()
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        self._wait_shown(lambda: not self.describe([name]))

    def grow(self, name: str, partitions: int) -> None:
        """Raise the partition count of a topic; one that has as many already stays as it is."""
        self._await_quota()
        with self._errors.translating(f"add partitions to topic {name}", Need("ALTER", "TOPIC", name)):
            new = [NewPartitions(name, partitions)]
            [future] = self._changes.create_partitions(new, request_timeout=timing().admin_timeout_s).values()
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                    raise
                state = self.describe([name]).get(name)
                if state is None or state.partitions < partitions:
                    raise

    def set_configs(self, name: str, values: Mapping[str, str | None]) -> None:
        """Set some settings of a topic, None for the default; the others stay (KIP-339)."""
        operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
        entries = [ConfigEntry(k, v, incremental_operation=operations[v is None]) for k, v in values.items()]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        with self._errors.translating(f"configure topic {name}", Need("ALTER_CONFIGS", "TOPIC", name)):
            [future] = self._client.incremental_alter_configs(
                [resource], request_timeout=timing().admin_timeout_s
            ).values()
            future.result()

    def members(self, group: str) -> int:
        """Return how many members a group has, of any protocol; Connect's workers form one, too."""
        need = Need("DESCRIBE", "GROUP", group)
        with self._errors.translating(f"describe group {group}", need), warnings.catch_warnings():
            # Deprecated for consumer groups, but its replacement refuses every other kind (librdkafka 2.16).
            warnings.simplefilter("ignore", DeprecationWarning)
            found = retry_transient(COORDINATOR_MOVING)(
                self._client.list_groups, group, timeout=timing().admin_timeout_s
            )
        return sum(len(one.members) for one in found)

    def reconnect(self) -> ClusterAdmin:
        """Return a new client of the same cluster, with connections of its own and no cached leaders."""
        return ClusterAdmin(self.alias, self._errors.options)


def _is_unknown(error: BaseException) -> bool:
    codes = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)
    return isinstance(error, KafkaException) and error.args[0].code() in codes
