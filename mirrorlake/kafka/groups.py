"""Read and set the committed positions of one cluster's consumer groups.

A `Consumer` that never joins reads and sets positions: librdkafka 2.16.1 ends the process in `list_consumer_group_offsets` and
`alter_consumer_group_offsets` (assertion `eonce->refcnt > 0`) if a coordinator is lost, or loading, meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from mirrorlake.errors import ClusterError, ClusterUnreachable, GroupActive, MirrorlakeError, SafetyError
from mirrorlake.kafka.admin import GROUPS_TOPIC
from mirrorlake.kafka.errors import (
    COORDINATOR_MOVING,
    ClientErrors,
    Need,
    client_log,
    need_of_selection,
    retry_transient,
)
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.group_overview import GroupMember
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.timing import timing

_IDLE = {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}
_TRANSIENT = {
    *COORDINATOR_MOVING,
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
}
# A broker answers a `read_committed` reader only without an open transaction that commits for the group; librdkafka retries
# that until its time-out. Transactions of a stream processor end within this.
_STABLE_TIMEOUT_S = 2.0
_ACTIVE = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,
}


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed position: the next offset that it reads, and the metadata that it committed with it."""

    offset: int
    metadata: str = ""


class Groups:
    """Access the consumer groups of one cluster, with librdkafka options of a consumer (`probes`: see `ClientErrors`)."""

    def __init__(self, alias: str, options: Mapping[str, Any], *, probes: bool = False) -> None:
        self.alias = alias
        self.options = dict(options)
        self._errors = ClientErrors.from_options(alias, options, probes=probes)
        with self._errors.creating_client():
            self._client = AdminClient(self._errors.with_error_callback(), logger=client_log)
        self._errors.poll = partial(self._client.poll, 0)
        self._seen: set[Need] = set()

    def states(self) -> dict[str, str]:
        """Return the state of every group that commits offsets to Kafka, of any protocol, by Kafka's names."""
        with self._errors.translating("list consumer groups", Need("DESCRIBE", "GROUP", "*")):
            # Without a connected broker, listing groups would wait without end (librdkafka 2.16.1).
            self._errors.require_advertised(self._client.list_topics(timeout=timing().admin_timeout_s))
            for attempt in retry_transient(COORDINATOR_MOVING):
                with attempt:
                    found = self._client.list_consumer_groups(request_timeout=timing().admin_timeout_s).result()
                    if found.errors:
                        # A raised KafkaError is no `Exception`: nothing would catch it, and the thread would end.
                        raise KafkaException(found.errors[0])
        return {group.group_id: group.state.name.lower() for group in found.valid}

    def refusals(self, selection: TopicPattern) -> dict[str, ClusterError]:
        """Return `NotAuthorized` by the name asked for if groups of a selection may not be described: Kafka leaves them out silently.

        A cluster without any consumer so far is not asked: that would create its topic of groups (law H).
        """
        needs = dict(need_of_selection("GROUP", expression) for expression in selection.expressions)
        unseen = {need: name for need, name in needs.items() if need not in self._seen}
        found: dict[str, ClusterError] = {}
        doing = "see its consumer groups"
        with self._errors.translating(doing):
            if not unseen or GROUPS_TOPIC not in self._client.list_topics(timeout=timing().admin_timeout_s).topics:
                return {}
        for need, name in unseen.items():
            [future] = self._client.describe_consumer_groups([name], request_timeout=timing().admin_timeout_s).values()
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    found[name] = self._errors.to_cluster_error(error.args[0], doing, need)
                    continue
            self._seen.add(need)
        return found

    def describe(self, groups: Iterable[str]) -> dict[str, tuple[str, tuple[GroupMember, ...]]]:
        """Return state and members of the existing ones among these groups, of any protocol.

        Kafka does not report the members of groups that are not consumer groups, such as Connect's workers.
        """
        known = self.states()
        names = sorted(known.keys() & set(groups))
        if not names:
            return {}
        with self._errors.translating("describe consumer groups", Need("DESCRIBE", "GROUP", "*")):
            futures = self._client.describe_consumer_groups(names, request_timeout=timing().admin_timeout_s)
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
        """Return the groups that have members; an unknown state counts as active."""
        idle = {state.name.lower() for state in _IDLE}
        return {group for group, state in self.states().items() if state not in idle}

    def committed(
        self, groups: Iterable[str], partitions: Iterable[TopicPartition], *, unsure: dict[str, MirrorlakeError]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """Read what each group committed on the partitions; partitions without a commit are omitted (see `committed_each`)."""
        wanted = set(partitions)
        return self.committed_each(dict.fromkeys(groups, wanted), unsure=unsure)

    def committed_each(
        self, asked: Mapping[str, Iterable[TopicPartition]], *, unsure: dict[str, MirrorlakeError]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """Read what each group committed on its own partitions, eight groups at a time.

        `unsure` gets, by group, the `ClusterError` of those that could not be read, and are omitted, and the `SafetyError` of
        those that an open transaction commits for: their positions are those before it. An unreachable cluster raises.
        """
        found: dict[str, dict[TopicPartition, Committed]] = {}
        # Groups of one lost coordinator wait for it together, not one after another.
        until = time.monotonic() + timing().retry_timeout_s

        def read(group: str) -> None:
            try:
                found[group], is_stable = self._committed(group, asked[group], until)
                if not is_stable:
                    unsure[group] = SafetyError(f"a transaction that is open on {self.alias} commits for it")
            except ClusterError as error:
                unsure[group] = error

        with ThreadPoolExecutor(max_workers=8, thread_name_prefix="groups") as pool:
            list(pool.map(read, sorted(asked)))
        if any(isinstance(error, ClusterUnreachable) for error in unsure.values()):
            self.require_answer()
        return found

    def require_answer(self) -> None:
        """Raise `ClusterUnreachable` if the cluster does not answer, and not only a group's coordinator."""
        with self._errors.translating("list consumer groups"):
            self._client.list_topics(timeout=timing().admin_timeout_s)

    def _committed(
        self, group: str, partitions: Iterable[TopicPartition], until: float
    ) -> tuple[dict[TopicPartition, Committed], bool]:
        """Return the last stable positions, and whether no open transaction commits for the group."""
        wanted = [ClientPartition(tp.topic, tp.partition) for tp in sorted(set(partitions))]
        if not wanted:
            return {}, True
        with (
            self._consumer(group) as consumer,
            self._errors.translating(f"read the positions of group {group}", Need("DESCRIBE", "GROUP", group)),
        ):
            try:
                return _read_committed(_committed_by(consumer, wanted, _STABLE_TIMEOUT_S)), True
            except KafkaException as error:
                if error.args[0].code() not in _TRANSIENT:
                    raise
            with self._consumer(group, **{"isolation.level": "read_uncommitted"}) as hasty:
                for attempt in retry_transient(_TRANSIENT, timeout_s=until - time.monotonic()):
                    with attempt:
                        left_s = max(_STABLE_TIMEOUT_S, until - time.monotonic())
                        found = _committed_by(hasty, wanted, min(left_s, timing().admin_timeout_s))
            # The coordinator answers by now: only a transaction can still hide what it knows.
            with suppress(KafkaException):
                return _read_committed(_committed_by(consumer, wanted, _STABLE_TIMEOUT_S)), True
        return _read_committed(found), False

    def commit(
        self,
        group: str,
        positions: Mapping[TopicPartition, Committed],
        *,
        seen: Mapping[TopicPartition, int | None] = MappingProxyType({}),
    ) -> bool:
        """Set positions of a group without members (KIP-396); its other positions stay.

        Returns False, without a change, if the group has committed anything but what the caller has `seen`. That is read
        before each attempt: an attempt that timed out may have succeeded, and members may have come and gone since.

        Raises:
            GroupActive: the group has members; the coordinator refused, and nothing was changed.
        """
        entries = [
            ClientPartition(tp.topic, tp.partition, position.offset, metadata=position.metadata)
            for tp, position in sorted(positions.items())
        ]
        if not entries:
            return True
        with (
            self._consumer(group) as consumer,
            self._errors.translating(f"set the positions of group {group}", Need("READ", "GROUP", group)),
        ):
            for attempt in retry_transient(_TRANSIENT):
                with attempt:
                    now = _read_committed(_committed_by(consumer, entries, timing().admin_timeout_s))
                    if any(now[tp].offset not in (seen.get(tp), positions[tp].offset) for tp in now):
                        return False
                    self._set(consumer, group, entries)
        return True

    @contextmanager
    def _consumer(self, group: str, **more: str) -> Iterator[Consumer]:
        """Open a consumer that acts for a group. It never subscribes, so it never joins, and closing it leaves nothing behind."""
        options = {
            "group.id": group,
            "enable.auto.commit": "false",
            "session.timeout.ms": str(int(timing().admin_timeout_s * 1000)),
        }
        # A commit waits for its coordinator for the session time-out.
        consumer = Consumer({**self.options, **options, **more}, logger=client_log)
        try:
            yield consumer
        finally:
            consumer.close()

    def _set(self, consumer: Consumer, group: str, entries: Sequence[ClientPartition]) -> None:
        doing = f"set the positions of group {group}"
        try:
            done = consumer.commit(offsets=list(entries), asynchronous=False)
            problems = [tp.error for tp in done if tp.error is not None]
        except KafkaException as error:
            problems = [_last_error(consumer) or error.args[0]]
        for problem in problems:
            if problem.code() in _TRANSIENT:
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
            raise self._errors.to_cluster_error(problem, doing, Need("READ", "GROUP", group), *needs)


def _read_committed(found: Iterable[ClientPartition]) -> dict[TopicPartition, Committed]:
    return {
        TopicPartition(tp.topic, tp.partition): Committed(tp.offset, tp.metadata or "")
        for tp in found
        if tp.error is None and tp.offset >= 0
    }


def _committed_by(consumer: Consumer, wanted: list[ClientPartition], timeout_s: float) -> list[ClientPartition]:
    try:
        found: list[ClientPartition] = consumer.committed(wanted, timeout=timeout_s)
    except KafkaException as error:
        if (problem := _last_error(consumer)) is not None:
            raise KafkaException(problem) from error
        raise
    return found


def _last_error(consumer: Consumer) -> KafkaError | None:
    """Return why a group's coordinator may not be requested: the client retries, and reports the reason only as a message."""
    message = consumer.poll(0.1)
    return None if message is None else message.error()
