"""Plans: every change to a cluster or the lake as a value that is looked at first and applied afterwards (law G)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as it is or should be: partitions and the settings that differ from the cluster's defaults."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: `action` on `kind` `name` at `where` (a cluster alias or `lake`), with the reason in a sentence.

    Actions: `create`, `add_partitions`, `set_configs`, `conflict` (is shown, never applied).
    """

    where: str
    kind: str
    name: str
    action: str
    before: Any = None
    after: Any = None
    reason: str = ""

    def __str__(self) -> str:
        moved = f" {self.before} -> {self.after}" if self.before is not None else f" {self.after}"
        return f"{self.where}: {self.action} {self.kind} {self.name}{moved} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes in the order in which they are applied; empty when everything is as it should be."""

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes)) or "nothing to change"

    @property
    def conflicts(self) -> tuple[Change, ...]:
        """The changes that a person has to decide about."""
        return tuple(change for change in self.changes if change.action == "conflict")


def topic_changes(*, where: str, wanted: TopicSpec, actual: TopicSpec | None) -> list[Change]:
    """Return what turns `actual` into `wanted`; an existing topic is only ever grown (KIP-195), never shrunk.

    >>> topic_changes(where="west", wanted=TopicSpec(name="t", partitions=3), actual=TopicSpec(name="t", partitions=3))
    []
    """
    if actual is None:
        return [
            Change(
                where=where,
                kind="topic",
                name=wanted.name,
                action="create",
                after={"partitions": wanted.partitions, "configs": dict(wanted.configs)},
                reason="missing on the target",
            )
        ]
    changes = []
    if actual.partitions < wanted.partitions:
        changes.append(
            Change(
                where=where,
                kind="topic",
                name=wanted.name,
                action="add_partitions",
                before=actual.partitions,
                after=wanted.partitions,
                reason="the source has more partitions; keys of other producers may change partition",
            )
        )
    differing = {key: value for key, value in wanted.configs.items() if actual.configs.get(key) != value}
    if differing:
        changes.append(
            Change(
                where=where,
                kind="topic",
                name=wanted.name,
                action="set_configs",
                before={key: actual.configs.get(key) for key in differing},
                after=differing,
                reason="differs from the source",
            )
        )
    return changes


# What MirrorMaker 2 never copies (`DefaultConfigPropertyFilter`, 4.3): bound to the cluster they were set on.
UNCOPIED_CONFIGS = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    }
)
