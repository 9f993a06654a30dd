"""Results of an erasure or its plan, and the copies that may remain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_size, plural, table


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedPart:
    source: SourcePartition
    records: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTarget:
    """The erased records on one flow's target.

    `passed` are records that the flow has sent or withheld, None if its ledger does not answer; `unsent` those that it has not
    reached, and will never send. `keeps` is how long the target retains sent records, by the remote topic's own settings.
    """

    flow: str
    target: str
    topic: str
    passed: int | None
    unsent: int | None
    keeps: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Erasure(JsonDisplayable):
    """The records erased from the relay of a source, or with `planned` those to be erased.

    Attributes:
        source: the alias of the source.
        topic: the source topic.
        by: how the records were chosen: key, a header's name, a predicate; never the value.
        reason: the reason that the person gave.
        planned: nothing was done yet.
        parts: the records by source partition.
        files: the number of relay files with these records.
        bytes: the size of these files.
        undecided: records that the predicate cannot decide: the value is not JSON, or names a member twice. They stay.
        waiting: chosen records that landing has not accounted for yet. They stay.
        targets: these records on the targets.
        finished: records of an earlier, killed erasure that this one finished.
        left: chosen records in the relay after the erasure: run it again.
        removal: the id of the act in the table `removed`; empty if nothing was taken out.
        relay_version: the first version of the relay without them.
        rows_of_tables: the number of rows that left each typed table.
        deleted_files: relay files with these records, by name: they were deleted from the disk.
        sent_to: topics that got some of the records, each with its flow, also a renamed flow or a replay.
    """

    source: str
    topic: str
    by: str
    reason: str
    planned: bool
    parts: tuple[ErasedPart, ...]
    files: int = 0
    bytes: int = 0
    undecided: int = 0
    waiting: int = 0
    targets: tuple[OnTarget, ...] = ()
    finished: int = 0
    left: int = 0
    removal: str = ""
    relay_version: int | None = None
    rows_of_tables: Mapping[str, int] = field(default_factory=dict)
    deleted_files: tuple[str, ...] = ()
    sent_to: tuple[str, ...] = ()
    json_include: ClassVar[tuple[str, ...]] = ("records", "ok")

    @property
    def records(self) -> int:
        """The number of chosen records."""
        return sum(one.records for one in self.parts)

    @property
    def ok(self) -> bool:
        """Whether no chosen or undecided record is left in the lake."""
        return not (self.left or self.undecided or self.waiting)

    def sheet(self) -> Sheet:
        """Return the erased records, and their remaining copies, as a sheet."""
        would = "would be erased" if self.planned else "erased"
        facts = [f"{plural(self.records, 'record')} of {self.topic} {would}, by {self.by}"]
        facts.append(
            f"{plural(self.files, 'file')} of {format_size(self.bytes)} {'hold them' if self.planned else 'held them'}"
        )
        facts += [f"{plural(self.finished, 'record')} of an erasure that was killed"] if self.finished else []
        if not self.planned and self.removal:
            facts.append(
                f"gone from version {self.relay_version} of the relay on; act {self.removal} in the table removed"
            )
            facts.append(f"{plural(len(self.deleted_files), 'file')} deleted")
        facts += [f"{plural(rows, 'row')} of the table {name}" for name, rows in self.rows_of_tables.items() if rows]
        parts = []
        if self.parts:
            rows = [(one.source, one.records, one.first_offset, one.last_offset) for one in self.parts]
            parts.append(table("", ["partition", "records", "first offset", "last offset"], rows))
        if self.targets:
            rows_of_targets = [
                (one.flow, f"{one.target} {one.topic}", one.passed, one.unsent, one.keeps) for one in self.targets
            ]
            columns = ["flow", "remote topic", "sent or withheld", "will never be sent", "what was sent stays there"]
            parts.append(table("", columns, rows_of_targets))
        notes = list[str]()
        if self.sent_to:
            notes.append(
                f"not reached: {', '.join(self.sent_to)} got some of them; the log of {self.source} and backups may hold them, too"
            )
        if self.undecided:
            notes.append(
                f"{plural(self.undecided, 'record')} cannot be judged: the value is not JSON, or names a member twice; they stay. "
                "Next: erase them by key or header"
            )
        if self.waiting or self.left:
            notes.append(
                f"not erased, because just landed or not accounted for yet: {plural(max(self.waiting, self.left), 'record')}. "
                "Next: the same command again"
            )
        mood = (
            badge("plan", "note") if self.planned else badge("erased", "good") if self.ok else badge("not all", "warn")
        )
        return Sheet(title=f"Erasure from {self.source}", badge=mood, facts=tuple(facts), parts=(*parts, *notes))
