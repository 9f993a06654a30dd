"""Results of maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_size, plural, table


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The compaction of a table: `files` of `bytes` became `into` files; `waiting` files wait for a flow."""

    files: int = 0
    bytes: int = 0
    into: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Records that left a relay by its retention, or would."""

    records: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """Records of a source partition, from an offset on, that must stay past their retention; `bytes` is the size of their files.

    `held_by` is who needs them: a flow, landing, a setting. `remedy` is what a person can do.
    """

    source: SourcePartition
    from_offset: int
    records: int
    bytes: int
    held_by: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable:
    """What maintenance did to one table, or with `plan` would do.

    `table` is `relay of east` for a relay. `deleted` are files deleted now that left the table long enough ago. `held` are the records
    past its retention that stay. `why_not` is why something was not done; "" if all was.
    """

    table: str
    files: int = 0
    compacted: Compacted = Compacted()
    deleted: int = 0
    log_checkpoint: bool = False
    expired: Expired = Expired()
    held: tuple[HeldBack, ...] = ()
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimmedLedger:
    flow: str
    records: int = 0
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Maintained(JsonDisplayable):
    """What one maintenance pass did, or with `planned` what it would do.

    Example:
        >>> kept = KeptTable(table="relay of east", files=3, compacted=Compacted(files=64, bytes=81920, into=2))
        >>> print(Maintained(planned=False, tables=(kept,), ledgers=(TrimmedLedger(flow="east->central", records=9),)))
        Upkeep: ✓ ok · 64 files became 2 · 0 files deleted · 9 ledger records deleted
          table          files  rewritten  bytes  into  waiting  deleted
          relay of east      3         64  82 kB     2        0        0
    """

    planned: bool
    tables: tuple[KeptTable, ...]
    ledgers: tuple[TrimmedLedger, ...] = ()
    json_include: ClassVar[tuple[str, ...]] = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether all due work was done."""
        return not self.why_not

    @property
    def why_not(self) -> list[str]:
        """The work not done, each with its reason; [] if all was done."""
        return [
            *(f"{one.table}: {one.why_not}" for one in self.tables if one.why_not),
            *(f"ledger of {one.flow}: {one.why_not}" for one in self.ledgers if one.why_not),
        ]

    def sheet(self) -> Sheet:
        """Return the tables with rewritten or deleted files, or planned ones, as a sheet."""
        compacted = [one.compacted for one in self.tables]
        would = "would become" if self.planned else "became"
        facts = [
            f"{plural(sum(one.files for one in compacted), 'file')} {would} {sum(one.into for one in compacted)}",
            f"{plural(sum(one.deleted for one in self.tables), 'file')} deleted",
            f"{plural(sum(one.records for one in self.ledgers), 'ledger record')} deleted",
        ]
        rows = [
            (
                one.table,
                one.files,
                one.compacted.files,
                format_size(one.compacted.bytes),
                one.compacted.into,
                one.compacted.waiting,
                one.deleted,
            )
            for one in self.tables
            if one.compacted != Compacted() or one.deleted
        ]
        columns = ["table", "files", "rewritten", "bytes", "into", "waiting", "deleted"]
        parts = [table("", columns, rows)] if rows else []
        left = [
            (one.table, one.expired.records, one.expired.files, format_size(one.expired.bytes)) for one in self.tables
        ]
        if any(records for _, records, *_ in left):
            facts.append(f"{plural(sum(row[1] for row in left), 'record')} {'would leave' if self.planned else 'left'}")
            columns = ["retention", "records", "files", "bytes"]
            parts.append(table("", columns, [row for row in left if row[1]]))
        held = [
            (one.table, one_held.source, one_held.from_offset, one_held.records, one_held.why, one_held.remedy)
            for one in self.tables
            for one_held in one.held
        ]
        if held:
            parts.append(table("", ["past its retention", "stays", "from", "records", "because", "next"], held))
        return Sheet(
            title="Upkeep",
            badge=badge("ok") if self.ok else badge("not all", "warn"),
            facts=tuple(facts),
            parts=(*parts, *self.why_not),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Retirement(JsonDisplayable):
    """The retirement of a flow, or its plan.

    Attributes:
        flow: the flow.
        state: `planned` or `retired`.
        is_repeat: the flow was retired before; nothing was done again.
        waiting: unsent landed offsets of each source partition; retention may remove them from now on.
    """

    flow: str
    state: Literal["planned", "retired"]
    is_repeat: bool = False
    waiting: Mapping[str, int] = field(default_factory=dict)

    def sheet(self) -> Sheet:
        """Return the offsets that the flow no longer holds back, as a sheet."""
        would = "would release" if self.state == "planned" else "releases"
        rows = [(source, offsets) for source, offsets in self.waiting.items()]
        return Sheet(
            title=f"retire {self.flow}",
            badge=badge("nothing was changed", "note") if self.state == "planned" else badge("retired"),
            facts=(f"{would} {plural(sum(self.waiting.values()), 'offset')} to retention",),
            parts=(table("not sent by it", ["source partition", "offsets"], rows),) if rows else (),
        )
