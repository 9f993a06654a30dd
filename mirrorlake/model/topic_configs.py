"""Which topic settings are copied, which are the target's own, and why (Kafka 4.3, `TopicConfig`).

    synced       the source's value is copied; where the source uses its default, the target uses its own
    overridden   the target decides: `sync.configs_override`, or else the target's own default
    never        neither copied nor touched: `sync.configs_exclude`, whose default is MirrorMaker 2's list

Only settings of the topic itself count as set. A default is never copied as an override. MirrorMaker 2 treats values
that a broker inherits from dynamic cluster defaults as explicit (`MirrorSourceConnector.targetConfig`).

Earlier copies show who set a value on the target. A copied setting that the source no longer sets returns to the
target's default. A setting that the source never had is left alone (MirrorMaker 2 deletes it every ten minutes,
`use.defaults.from`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mirrorlake.model.patterns import TopicPattern

SyncClass = Literal["synced", "overridden", "never"]


@dataclass(frozen=True, slots=True)
class SyncRule:
    sync_class: SyncClass
    reason: str


_RETENTION = "how long readers may come late is part of what the topic promises"
_CLEANING = "what compaction may remove, and when, is part of what the topic promises"
_SEGMENTS = "segments bound how soon retention and compaction act"
_DISK = "how the log is kept on disk goes with the topic's traffic"
_TIERED = "tiered storage must be set up on the target's own brokers, which refuse the setting otherwise"
_SIZE = "a record that the source accepted must be accepted by the target"

# The default of `sync.configs_exclude`: `config.properties.exclude` of MirrorMaker 2 (`DefaultConfigPropertyFilter`, 4.x).
DEFAULT_EXCLUDE_CONFIGS = TopicPattern(
    (
        r"follower\.replication\.throttled\.replicas",
        r"leader\.replication\.throttled\.replicas",
        r"message\.timestamp\.difference\.max\.ms",
        r"message\.timestamp\.type",
        r"unclean\.leader\.election\.enable",
        r"min\.insync\.replicas",
    )
)

_THROTTLED = "names brokers of one cluster by number"
RULES: Mapping[str, SyncRule] = {
    "cleanup.policy": SyncRule("synced", _CLEANING),
    "compression.gzip.level": SyncRule("synced", _DISK),
    "compression.lz4.level": SyncRule("synced", _DISK),
    "compression.type": SyncRule("synced", _DISK),
    "compression.zstd.level": SyncRule("synced", _DISK),
    "delete.retention.ms": SyncRule("synced", _CLEANING),
    "file.delete.delay.ms": SyncRule("synced", _DISK),
    "flush.messages": SyncRule(
        "synced", "what may be lost when a machine loses power is part of what the topic promises"
    ),
    "flush.ms": SyncRule("synced", "what may be lost when a machine loses power is part of what the topic promises"),
    "follower.replication.throttled.replicas": SyncRule("never", _THROTTLED),
    "index.interval.bytes": SyncRule("synced", _DISK),
    "leader.replication.throttled.replicas": SyncRule("never", _THROTTLED),
    "local.retention.bytes": SyncRule("overridden", _TIERED),
    "local.retention.ms": SyncRule("overridden", _TIERED),
    "max.compaction.lag.ms": SyncRule("synced", _CLEANING),
    "max.message.bytes": SyncRule("synced", _SIZE),
    "message.timestamp.after.max.ms": SyncRule("synced", "timestamps that the source accepted must be accepted"),
    "message.timestamp.before.max.ms": SyncRule("synced", "timestamps that the source accepted must be accepted"),
    "message.timestamp.difference.max.ms": SyncRule("never", "gone since Kafka 4.0; old records would be refused"),
    "message.timestamp.type": SyncRule("never", "LogAppendTime would replace the records' timestamps (law C)"),
    "min.cleanable.dirty.ratio": SyncRule("synced", _CLEANING),
    "min.compaction.lag.ms": SyncRule("synced", _CLEANING),
    "min.insync.replicas": SyncRule("never", "depends on the replication factor, which is the target's own"),
    "preallocate": SyncRule("synced", _DISK),
    "remote.log.copy.disable": SyncRule("overridden", _TIERED),
    "remote.log.delete.on.disable": SyncRule("overridden", _TIERED),
    "remote.storage.enable": SyncRule("overridden", _TIERED),
    "retention.bytes": SyncRule("synced", _RETENTION),
    "retention.ms": SyncRule("synced", _RETENTION),
    "segment.bytes": SyncRule("synced", _SEGMENTS),
    "segment.index.bytes": SyncRule("synced", _SEGMENTS),
    "segment.jitter.ms": SyncRule("synced", _SEGMENTS),
    "segment.ms": SyncRule("synced", _SEGMENTS),
    "unclean.leader.election.enable": SyncRule("never", "whether to lose records or to wait is the target's decision"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSync:
    """How one flow copies topic settings; overrides are set even if it is not `enabled`."""

    enabled: bool
    excluded: Callable[[str], bool]
    overrides: Callable[[str], Mapping[str, str]]

    def rule(self, topic: str, name: str) -> SyncRule:
        """Return what this flow does with one setting of a source topic, and why."""
        if name in self.overrides(topic):
            return SyncRule("overridden", "set by sync.configs_override")
        if not self.enabled:
            return SyncRule("never", "sync.configs is false")
        known = RULES.get(name)
        if self.excluded(name):
            reason = known.reason if known and known.sync_class == "never" else "named by sync.configs_exclude"
            return SyncRule("never", reason)
        if known is None:
            return SyncRule("synced", "not known to Kafka 4.3; copied as MirrorMaker 2 does")
        if known.sync_class == "never":
            # A replaced list decides alone, as in MirrorMaker 2.
            return SyncRule("synced", "sync.configs_exclude does not name it")
        return known

    def wanted(self, topic: str, configs: Mapping[str, str]) -> dict[str, str]:
        copied = {name: value for name, value in configs.items() if self.rule(topic, name).sync_class == "synced"}
        return copied | dict(self.overrides(topic))


def given_up(
    actual: Mapping[str, str], *, wanted: Mapping[str, str], copied: Mapping[str, str], rule: Callable[[str], SyncRule]
) -> tuple[str, ...]:
    """Return the settings of a remote topic that go back to the target's default.

    These were copied with exactly their present value and are no longer wanted. Values that somebody changed since,
    and settings that were never copied, stay. So do settings that are now excluded: an exclusion leaves a setting
    alone.
    """
    return tuple(
        sorted(
            name
            for name, value in actual.items()
            if name not in wanted and copied.get(name) == value and rule(name).sync_class != "never"
        )
    )


def merged(wanted: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the settings of a remote topic that several source topics share; the first topic's value wins."""
    result: dict[str, str] = {}
    for configs in wanted:
        for name, value in configs.items():
            result.setdefault(name, value)
    return result
