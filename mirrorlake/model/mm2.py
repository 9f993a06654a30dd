"""MirrorMaker 2's own records: offset syncs, checkpoints, heartbeats and Connect's source offsets, byte for byte.

    record        key                                value
    OffsetSync    topic STRING, partition INT32      upstream INT64, downstream INT64
    Checkpoint    group, topic, partition            version INT16 = 0, upstream, downstream, metadata STRING
    Heartbeat     source alias, target alias         version INT16 = 0, timestamp INT64 (ms)
    SourceOffset  JSON [connector, partition map]    JSON {"offset": n}, or nothing

INT: big-endian. STRING: INT16 length, then UTF-8. From `org.apache.kafka.connect.mirror.{OffsetSync, Checkpoint,
Heartbeat, MirrorUtils}`, 4.3. An offset sync names one delivered record on both sides; a checkpoint names positions,
the next record to read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.mm2_bytes import Mm2FormatError, document, pack, unpack
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.policy import DefaultPolicy

T = TypeVar("T")
R = TypeVar("R", bound="_FieldsInOrder")

HEARTBEATS = "heartbeats"
SOURCE_CONNECTOR = "MirrorSourceConnector"
# `cleanup.policy` of all three topics, each with one partition (`MirrorUtils.createSinglePartitionCompactedTopic`).
INTERNAL_TOPIC_CONFIGS = {"cleanup.policy": "compact"}


class _FieldsInOrder:
    """A record with its fields in the order of `_KEY` and `_VALUE` (`mm2_bytes`)."""

    __slots__: tuple[str, ...] = ()
    _KEY: ClassVar[str]
    _VALUE: ClassVar[str]

    def key(self) -> bytes:
        return pack(self._KEY, self._fields()[: len(self._KEY)])

    def value(self) -> bytes:
        return pack(self._VALUE, self._fields()[len(self._KEY) :])

    def _fields(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def from_record(cls: type[R], key: bytes | None, value: bytes | None) -> R:
        """Decode a record; Mm2FormatError if the bytes are not one, or one of a later version."""
        make: Callable[..., R] = cls
        return make(*unpack(cls._KEY, key, "key"), *unpack(cls._VALUE, value, "value"))


@dataclass(frozen=True, slots=True, order=True)
class OffsetSync(_FieldsInOrder):
    """One delivered record: `upstream_offset` of a source partition is `downstream_offset` of the remote partition."""

    _KEY, _VALUE = "si", "qq"
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint(_FieldsInOrder):
    """A translated group position: `topic` is the target's name, both offsets are the next record to read."""

    _KEY, _VALUE = "ssi", "vqqs"
    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Heartbeat(_FieldsInOrder):
    _KEY, _VALUE = "ss", "vq"
    source: str
    target: str
    timestamp_ms: int


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """A source connector's last replicated offset in Connect's offsets topic; None after a reset.

    `cluster` is the source's alias in MirrorMaker's settings.
    """

    connector: str
    cluster: str
    topic: str
    partition: int
    offset: int | None

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None) -> SourceOffset | None:
        """Decode a record of Connect's offsets topic; None for another kind (checkpoints, heartbeats, others).

        Decoded as JSON, because the order inside the map is whatever the Java map yields.
        """
        parts = document(key, "key")
        if not isinstance(parts, list) or len(parts) != 2 or not isinstance(parts[0], str):
            raise Mm2FormatError("the key is not [connector, partition]")
        connector, place = parts
        if not isinstance(place, dict) or set(place) != {"cluster", "partition", "topic"}:
            return None
        cluster, topic, partition = place["cluster"], place["topic"], place["partition"]
        if not (isinstance(cluster, str) and isinstance(topic, str) and _is_offset(partition)):
            raise Mm2FormatError(f"{place} is not a source partition")
        offset = None
        if value is not None and (found := document(value, "value")) is not None:
            offset = found.get("offset") if isinstance(found, dict) else None
            if not _is_offset(offset):
                raise Mm2FormatError(f"{found} is not a source offset")
        return cls(connector, cluster, topic, partition, offset)

    def key(self) -> bytes:
        place = {"cluster": self.cluster, "partition": self.partition, "topic": self.topic}
        return json.dumps([self.connector, place], separators=(",", ":"), ensure_ascii=False).encode()

    def value(self) -> bytes | None:
        return None if self.offset is None else json.dumps({"offset": self.offset}, separators=(",", ":")).encode()


# -- names of topics --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mm2Names:
    """Names of MirrorMaker 2's topics (`DefaultReplicationPolicy`, which `IdentityReplicationPolicy` extends).

    `separator` is `replication.policy.separator`, `separator_in_internal` is
    `replication.policy.internal.topic.separator.enabled` (KIP-949).
    """

    separator: str = "."
    separator_in_internal: bool = True

    def checkpoints(self, source: str) -> str:
        return f"{source}{self._inner}checkpoints{self._inner}internal"

    def offset_syncs(self, other: str) -> str:
        """Return the name of the offset-syncs topic; `other` is the cluster at the flow's other end."""
        return f"mm2-offset-syncs{self._inner}{other}{self._inner}internal"

    def remote_heartbeats(self, source: str, topic: str = HEARTBEATS) -> str:
        """Return the target's name of a heartbeats topic of the source; every policy names it like the default one."""
        return DefaultPolicy(self.separator).remote_topic(source, "", topic)

    def is_heartbeats(self, topic: str) -> bool:
        """Return whether the topic is a heartbeats topic, on whatever hop (`ReplicationPolicy.isHeartbeatsTopic`)."""
        return DefaultPolicy(self.separator).original_topic(topic) == HEARTBEATS

    @property
    def _inner(self) -> str:
        return self.separator if self.separator_in_internal else "."


def connect_group(source: str) -> str:
    """Return the group of MirrorMaker's workers in dedicated mode, on the target."""
    return f"{source}-mm2"


# -- from the exact map to offset syncs ---------------------------------------------------------------------------------


def syncs_of(run: MappedRange, *, every: int) -> Iterator[OffsetSync]:
    """Yield offset syncs of a mapped range: of its first and last record, and of every `every`-th record between.

    MirrorMaker emits a sync after `offset.lag.max` records and after each gap (`MirrorSourceTask.PartitionState`).
    Its readers translate a position to the sync before it, plus one. So law A is true whichever syncs are left out,
    and the last record's sync makes a group at the end of the range exact.
    """
    holes = iter(run.holes)
    hole = next(holes, None)
    skipped = 0
    places = [*range(0, run.count - 1, every), run.count - 1]
    for place in places:
        upstream = run.first_upstream + place + skipped
        while hole is not None and hole[0] <= upstream:
            skipped += hole[1]
            upstream += hole[1]
            hole = next(holes, None)
        yield OffsetSync(run.source.topic, run.source.partition, upstream, run.first_downstream + place)


def is_outdated(sync: OffsetSync, runs: Iterable[MappedRange], *, position: int | None) -> bool:
    """Return whether a sync belongs to an earlier incarnation of the remote topic, or an earlier source topic, than these ranges.

    Law A: the syncs of the present incarnation may begin at any offset; none may be left out for being before an outdated one.
    """
    if position is not None and sync.upstream_offset >= position:
        return True
    up, down = sync.upstream_offset, sync.downstream_offset
    return any(
        (run.first_upstream <= up <= run.last_upstream and run.downstream_of(up) != down)
        or (run.first_upstream > up and run.first_downstream <= down)
        for run in runs
    )


def checkpoints_of(plan: GroupPlan) -> list[Checkpoint]:
    """Return the checkpoints of every translated position, moved or not, also of active groups (`MirrorCheckpointTask`)."""
    return [
        Checkpoint(
            one.group,
            one.resume.target.topic,
            one.resume.target.partition,
            one.resume.upstream_offset,
            one.resume.downstream_offset,
            one.metadata,
        )
        for one in plan.translated()
        if one.resume.downstream_offset is not None
    ]


# -- reading what others wrote ------------------------------------------------------------------------------------------

Decoder = Callable[[bytes | None, bytes | None], T]
"""Decodes one kind of record, e.g. `Checkpoint.from_record`; raises `Mm2FormatError`."""


class _Record(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A record that could not be decoded, and why."""

    topic: str
    partition: int
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}: {self.why}"


@dataclass(slots=True)
class Decoded(Generic[T]):
    """The decoded records of a topic, in its order, and the skipped ones."""

    values: list[T] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def decode_all(topic: str, records: Iterable[_Record], decode: Decoder[T]) -> Decoded[T]:
    """Decode records of one topic; malformed records and tombstones are skipped and listed, and never stop the reader.

    (Java's readers end in a NullPointerException at a tombstone.)
    """
    found: Decoded[T] = Decoded()
    for record in records:
        try:
            found.values.append(decode(record.key, record.value))
        except Mm2FormatError as error:
            found.skipped.append(Skipped(topic=topic, partition=record.partition, offset=record.offset, why=str(error)))
    return found
