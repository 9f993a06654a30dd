"""Consumer groups of one cluster: which there are, what they committed, and committing for one that is not running.

Positions are read with `Consumer.committed`: `AdminClient.list_consumer_group_offsets` of librdkafka 2.16.1 ended the
process when it was repeated while a coordinator was still loading (DESIGN 9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from mirrorlake.errors import GroupActive
from mirrorlake.kafka.admin import TIMEOUT_S
from mirrorlake.kafka.errors import ClientErrors, Need, client_log, patiently
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.group_standing import GroupMember

_IDLE = {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}
# What a coordinator says while it moves or loads; it is right again within seconds.
_PASSING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
}
_ACTIVE = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,
}


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed position: the next offset it reads, and the text it left with it."""

    offset: int
    metadata: str = ""


class Groups:
    """Reach the consumer groups of one cluster with the librdkafka options of a consumer (`probes`: see `ClientErrors`)."""

    def __init__(self, alias: str, options: Mapping[str, Any], *, probes: bool = False) -> None:
        self.alias = alias
        self._options = dict(options)
        self._errors = ClientErrors.of(alias, options, probes=probes)
        self._client = AdminClient(self._options, logger=client_log)

    def states(self) -> dict[str, str]:
        """Return every group that commits offsets to Kafka, of any protocol, with its state in Kafka's words."""
        with self._errors.during("list consumer groups", Need("DESCRIBE", "GROUP", "*")):
            # Asking every broker for its groups waits without an end for a first broker to ask (librdkafka 2.16.1).
            self._client.list_topics(timeout=TIMEOUT_S)
            found = self._client.list_consumer_groups(request_timeout=TIMEOUT_S).result()
            if found.errors:
                raise found.errors[0]
        return {group.group_id: group.state.name.lower() for group in found.valid}

    def describe(self, groups: Iterable[str]) -> dict[str, tuple[str, tuple[GroupMember, ...]]]:
        """Return state and members of those of the groups that the cluster has, whatever their protocol.

        Of one that is not a consumer group, such as Connect's workers, members are not told.
        """
        known = self.states()
        names = sorted(known.keys() & set(groups))
        if not names:
            return {}
        with self._errors.during("describe consumer groups", Need("DESCRIBE", "GROUP", "*")):
            futures = self._client.describe_consumer_groups(names, request_timeout=TIMEOUT_S)
        found: dict[str, tuple[str, tuple[GroupMember, ...]]] = {}
        for name, future in futures.items():
            try:
                described = future.result()
            except KafkaException:
                found[name] = known[name], ()
                continue
            members = tuple(
                GroupMember(
                    client_id=one.client_id or "",
                    host=one.host or "",
                    partitions=len(one.assignment.topic_partitions) if one.assignment else 0,
                )
                for one in described.members
            )
            found[name] = described.state.name.lower(), members
        return found

    def active(self) -> set[str]:
        """Return the groups that have members, or may have: an unknown state counts as active."""
        idle = {state.name.lower() for state in _IDLE}
        return {group for group, state in self.states().items() if state not in idle}

    def committed(
        self, groups: Iterable[str], partitions: Iterable[TopicPartition]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """Read what each group committed on the partitions; where it committed nothing there is no entry."""
        wanted = set(partitions)
        return self.committed_each(dict.fromkeys(groups, wanted))

    def committed_each(
        self, asked: Mapping[str, Iterable[TopicPartition]]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """Read what each group committed on its own partitions; one request a group, eight at a time."""
        names = sorted(asked)
        with ThreadPoolExecutor(max_workers=8, thread_name_prefix="groups") as pool:
            found = pool.map(self._committed, names, [asked[name] for name in names])
            return dict(zip(names, found, strict=True))

    def _committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        wanted = [ClientPartition(tp.topic, tp.partition) for tp in sorted(set(partitions))]
        if not wanted:
            return {}
        # Never subscribed, so it never joins; closing it leaves nothing behind.
        consumer = Consumer({**self._options, "group.id": group, "enable.auto.commit": "false"}, logger=client_log)
        try:
            with self._errors.during(f"read the positions of group {group}", Need("DESCRIBE", "GROUP", group)):
                for attempt in patiently(_PASSING):
                    with attempt:
                        found = consumer.committed(wanted, timeout=TIMEOUT_S)
        finally:
            consumer.close()
        return {
            TopicPartition(tp.topic, tp.partition): Committed(tp.offset, tp.metadata or "")
            for tp in found
            if tp.error is None and tp.offset >= 0
        }

    def commit(self, group: str, positions: Mapping[TopicPartition, Committed]) -> None:
        """Set positions of a group without members (KIP-396); others of the group stay.

        Raises:
            GroupActive: the group has members; the coordinator refused and nothing was changed.
        """
        entries = [
            ClientPartition(tp.topic, tp.partition, position.offset, metadata=position.metadata)
            for tp, position in sorted(positions.items())
        ]
        if not entries:
            return
        with self._errors.during(f"set the positions of group {group}", Need("READ", "GROUP", group)):
            for attempt in patiently(_PASSING):
                with attempt:
                    self._alter(group, entries)

    def _alter(self, group: str, entries: Sequence[ClientPartition]) -> None:
        doing = f"set the positions of group {group}"
        request = [ConsumerGroupTopicPartitions(group, list(entries))]
        try:
            [future] = self._client.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S).values()
            problems = [tp.error for tp in future.result().topic_partitions if tp.error is not None]
        except KafkaException as error:
            problems = [error.args[0]]
        for problem in problems:
            if problem.code() in _PASSING:
                raise KafkaException(problem)
            if problem.code() in _ACTIVE:
                raise GroupActive(
                    f"group {group} has members on {self.alias}",
                    consequence="its positions were left as they are",
                    remedy=f"stop its consumers on {self.alias}, then run the same command again",
                    alias=self.alias,
                    group=group,
                )
            topics = sorted({tp.topic for tp in entries})
            needs = [Need("READ", "TOPIC", topic) for topic in topics]
            raise self._errors.own(problem, doing, Need("READ", "GROUP", group), *needs)
