"""Display the topics of a cluster, and the page of one topic.

librdkafka returns no sizes on disk, so the size of a topic is its count of offsets. That is an upper bound of its records:
compacted records and transaction markers have offsets, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Literal, overload

from mirrorlake.kafka import PartitionState
from mirrorlake.model.plan import Note
from mirrorlake.render import (
    JsonDisplayable,
    LinkedText,
    Sheet,
    badge,
    format_count,
    format_duration,
    format_size,
    link,
    plural,
    table,
)

How = Literal[
    "mirrored", "remote", "excluded", "never_leaves", "internal", "comes_back", "no_name", "not_selected", "no_flow"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirroring:
    """The effect of one flow on a topic: `mirrored` to the topic `other` of `cluster`, `remote` from it, or why not."""

    flow: str
    how: How
    cluster: str = ""
    other: str | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.how == "mirrored":
            return f"{self.cluster}: {self.other}"
        if self.how == "remote":
            return f"remote topic of {self.flow}, from {self.cluster}" + (f": {self.other}" if self.other else "")
        return f"{self.flow}: {self.why}" if self.flow else self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    """One topic of a cluster; values that are unknown or may not be read are None.

    `records` counts offsets: an upper bound. `records_per_s` needs two reads. `retention_ms` is -1 if age deletes nothing.
    `ends` are the partitions' ends.
    """

    topic: str
    partitions: int
    replicas: int = 0
    under_replicated: int = 0
    records: int | None = None
    records_per_s: float | None = None
    cleanup: str | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    internal: bool = False
    mirrorings: tuple[Mirroring, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict, repr=False)
    json_exclude: ClassVar[tuple[str, ...]] = ("ends",)

    @property
    def is_mirrored(self) -> bool:
        return any(one.how == "mirrored" for one in self.mirrorings)

    @property
    def kept(self) -> str:
        """The topic's retention in words, or "" if unknown."""
        if self.cleanup is None:
            return ""
        words = ["compacted"] if "compact" in self.cleanup else []
        if "delete" in self.cleanup:
            age, most = self.retention_ms, self.retention_bytes
            limits = [_short(age)] if age is not None and age >= 0 else []
            limits += [format_size(most)] if most is not None and most >= 0 else []
            words += limits or ["for ever"]
        return ", ".join(words)

    @property
    def mirrored(self) -> str:
        told = [one for one in self.mirrorings if one.how in ("mirrored", "remote")] or self.mirrorings
        return "; ".join(dict.fromkeys(map(str, told)))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TopicList(JsonDisplayable, Sequence[TopicLine]):
    """The topics of a cluster at a moment; `hidden` counts the omitted internal topics, `notes` tell what mirrors nothing.

    Example:
        >>> print(TopicList(cluster="east", topics=(TopicLine(topic="orders", partitions=3, records=1200, cleanup="compact"),)))
        topics of east: 1 topic · 3 partitions · 0 mirrored
          topic   partitions  records  kept       mirrored
          orders           3    1 200  compacted
          records: by offsets, at most; compacted records and markers of transactions count
    """

    cluster: str
    topics: tuple[TopicLine, ...]
    hidden: int = 0
    observed_at: datetime | None = None
    notes: tuple[Note, ...] = ()
    json_exclude: ClassVar[tuple[str, ...]] = ("observed_at",)

    def __len__(self) -> int:
        return len(self.topics)

    @overload
    def __getitem__(self, index: int) -> TopicLine: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TopicLine, ...]: ...
    def __getitem__(self, index: int | slice) -> TopicLine | tuple[TopicLine, ...]:
        return self.topics[index]

    def after(self, before: TopicList) -> TopicList:
        """Return this list with the records/s since an earlier one; None for a topic that shrank or is new."""
        if self.observed_at is None or before.observed_at is None:
            return self
        span_s = (self.observed_at - before.observed_at).total_seconds()
        known = {line.topic: line.ends for line in before.topics}
        return replace(
            self,
            topics=tuple(replace(line, records_per_s=_rate(known.get(line.topic), line.ends, span_s)) for line in self),
        )

    def sheet(self) -> Sheet:
        """Show the topics by name."""
        has_rate = any(line.records_per_s is not None for line in self.topics)
        columns = ["topic", "partitions", "records", *(["records/s"] if has_rate else []), "kept", "mirrored"]
        rows = [
            (
                line.topic,
                line.partitions,
                line.records,
                *([line.records_per_s] if has_rate else []),
                line.kept,
                line.mirrored,
            )
            for line in self.topics
        ]
        weak = sum(line.under_replicated for line in self.topics)
        facts = [
            plural(len(self), "topic"),
            plural(sum(line.partitions for line in self.topics), "partition"),
            f"{format_count(sum(line.is_mirrored for line in self.topics))} mirrored",
            *([f"{plural(self.hidden, 'internal topic')} not shown"] if self.hidden else []),
        ]
        note = "records: by offsets, at most; compacted records and markers of transactions count"
        shown = (table("", columns, rows, least=("kept", "records/s")), note) if rows else ("no topic",)
        return Sheet(
            title=f"topics of {self.cluster}",
            badge=badge(f"{plural(weak, 'partition')} with too few replicas in sync", "warn") if weak else None,
            facts=(*facts, self.observed_at),
            parts=(*shown, *map(str, self.notes)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLine(PartitionState):
    """One partition of a topic: its first offset and its end, None if no leader answers."""

    earliest: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReader:
    group: str
    state: str
    partitions: int
    offset_lag: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TopicPage(JsonDisplayable):
    """One topic of a cluster: its partitions, own settings, consumer groups and flows.

    `readers` is None if the groups could not be read; `note` has the reason.
    """

    cluster: str
    line: TopicLine
    partitions: tuple[PartitionLine, ...]
    settings: Mapping[str, str]
    readers: tuple[TopicReader, ...] | None = ()
    note: str = ""
    observed_at: datetime | None = None
    json_exclude: ClassVar[tuple[str, ...]] = ("observed_at",)

    def sheet(self) -> Sheet:
        """Show partitions, settings, readers and flows."""
        partitions = [
            (
                *(None if at is None else str(at) for at in (one.partition, one.earliest, one.end)),
                None if one.earliest is None or one.end is None else one.end - one.earliest,
                "none" if one.leader is None else str(one.leader),
                ", ".join(map(str, one.isr))
                + ("" if len(one.isr) >= len(one.replicas) else f" of {len(one.replicas)}"),
            )
            for one in self.partitions
        ]
        readers = [(one.group, one.state, one.partitions, one.offset_lag) for one in self.readers or ()]
        line = self.line
        flows = [
            (
                one.flow or "–",
                badge(one.how, "good" if one.how == "mirrored" else None),
                LinkedText(str(one), link("topic", one.cluster, one.other)) if one.other else str(one),
            )
            for one in line.mirrorings
        ]
        columns = ["partition", "earliest", "end", "records", "leader", "in sync"]
        none = "no group has committed on it"
        return Sheet(
            title=f"{line.topic} on {self.cluster}",
            badge=badge("internal", "off") if line.internal else None,
            facts=(
                plural(line.partitions, "partition"),
                None if line.records is None else f"{format_count(line.records)} records at most",
                f"kept: {line.kept}" if line.kept else None,
                self.observed_at,
            ),
            parts=(
                table("", ["flow", "", "where, or why not"], flows),
                table("", columns, partitions),
                *(
                    [table("settings of its own", ["setting", "value"], list(self.settings.items()))]
                    if self.settings
                    else []
                ),
                table("read by", ["group", "state", "partitions", "offset lag"], readers)
                if readers
                else self.note or none,
            ),
        )


def _rate(before: Mapping[int, int] | None, now: Mapping[int, int], span_s: float) -> float | None:
    if before is None or span_s <= 0 or not now.keys() >= before.keys():
        return None
    came = sum(end - before.get(partition, 0) for partition, end in now.items())
    return came / span_s if came >= 0 else None


def _short(ms: int) -> str:
    """Format a duration without a second unit of zero.

    >>> _short(604_800_000), _short(90_000)
    ('7 d', '1 min 30 s')
    """
    words = format_duration(ms).split(" ")
    return " ".join(words[:2] if words[2:3] == ["0"] else words)
