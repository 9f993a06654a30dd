"""Find leaderless partitions: they are left out while their brokers are down, and everything else goes on."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Protocol

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.topic_metadata import TopicState, list_partitions
from mirrorlake.model.flow import TopicPartition

_POLL_INTERVAL_S = 0.5


class _TopicDescriber(Protocol):
    def describe(self, names: Iterable[str]) -> dict[str, TopicState]: ...


def describe_with_leaders(
    admin: _TopicDescriber, names: Iterable[str], *, timeout_s: float = 0.0
) -> tuple[dict[str, TopicState], frozenset[TopicPartition]]:
    """Return topic states and the partitions still leaderless after `timeout_s`."""
    names, until = list(names), time.monotonic() + timeout_s
    states = admin.describe(names)
    while any(state.leaderless for state in states.values()) and time.monotonic() < until:
        time.sleep(_POLL_INTERVAL_S)
        states = admin.describe(names)
    return states, frozenset(
        TopicPartition(name, number) for name, state in states.items() for number in state.leaderless
    )


def those_led(admin: _TopicDescriber, wanted: Collection[TopicPartition]) -> set[TopicPartition]:
    """Return those of the partitions that a broker leads; one that does not exist has no leader."""
    states, leaderless = describe_with_leaders(admin, {tp.topic for tp in wanted})
    return {*list_partitions(states)}.intersection(wanted) - leaderless


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def leaderless_error(alias: str, partitions: Iterable[TopicPartition], *, landed: str) -> ClusterUnreachable:
    partitions = sorted(partitions)
    return ClusterUnreachable(
        f"cluster {alias}: no leader for {format_partitions(partitions)}",
        consequence=f"their records are not landed; {landed}",
        remedy=f"start their brokers of {alias}, then run the same command again",
        alias=alias,
        partitions=list(map(str, partitions)),
    )
