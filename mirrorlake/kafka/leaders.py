"""Partitions without a leader: nothing can be asked of them while their brokers are away, and everything else goes on without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_delay, wait_fixed

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.topic_looks import TopicState
from mirrorlake.model.flow import TopicPartition

# An election takes less, and so does the first one of a new topic.
ELECTED_S = 5.0


class _DescribesTopics(Protocol):
    def describe(self, names: Iterable[str]) -> dict[str, TopicState]: ...


def describe_with_leaders(
    admin: _DescribesTopics, names: Iterable[str], *, elected_s: float = 0.0
) -> tuple[dict[str, TopicState], frozenset[TopicPartition]]:
    """Describe topics; return with them the partitions that are leaderless, also after `elected_s`.

    Raises:
        ClusterError: the cluster does not answer.
    """

    def last(looks: RetryCallState) -> dict[str, TopicState]:
        assert looks.outcome is not None  # noqa: S101  it has looked
        found: dict[str, TopicState] = looks.outcome.result()
        return found

    states = Retrying(
        retry=retry_if_result(lambda states: any(state.leaderless for state in states.values())),
        stop=stop_after_delay(elected_s),
        wait=wait_fixed(0.5),
        retry_error_callback=last,
    )(admin.describe, list(names))
    return states, frozenset(
        TopicPartition(name, number) for name, state in states.items() for number in state.leaderless
    )


def named(partitions: Iterable[TopicPartition]) -> str:
    """Name partitions in one order, for a log line or a message."""
    return ", ".join(map(str, sorted(partitions)))


def leaderless_error(alias: str, partitions: Iterable[TopicPartition], *, landed: str) -> ClusterUnreachable:
    """Return the error of work that is not complete, because nobody leads some partitions."""
    partitions = sorted(partitions)
    return ClusterUnreachable(
        f"nobody leads {named(partitions)} of {alias}: the brokers that hold it are away",
        consequence=f"what it holds is not landed; {landed}",
        remedy=f"bring these brokers of {alias} back, then run the same command again",
        alias=alias,
        partitions=list(map(str, partitions)),
    )
