"""Report on a failback, done or planned: the divergent tail, the records sent back, and the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import FailoverRefused
from mirrorlake.failover.report import PlacedGroup, ProofSummary, ReportedStep, groups_table, steps_table
from mirrorlake.model.flow import RecordRange
from mirrorlake.procedure import Refusal
from mirrorlake.render import Badge, JsonDisplayable, Sheet, Table, badge, plural, table
from mirrorlake.status import OpenTransaction

TailChoice = Literal["restore", "drop", "keep"]
TAIL_CHOICES: tuple[TailChoice, ...] = ("restore", "drop", "keep")
MEANS: Mapping[TailChoice, str] = {
    "restore": "it is sent to the target, after what stands there",
    "drop": "it stays on the source; groups that stand before it go on after it",
    "keep": "it stays on the source, where groups read it; the target never gets it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """A record of the divergent tail, with its coordinates on the old source."""

    topic: str
    generation: int
    partition: int
    offset: int
    timestamp: datetime | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FailbackReport(JsonDisplayable):
    """What a failback did (`done`) or would do (`planned`).

    `blocked` are the partitions of either side where records wait for an open transaction: they go on by the flow when it ends.
    `tail` are the records of the source that never arrived on the target, by partition; `records` the first of them, in a plan.
    `back` is how many records were sent to the source, by flow.
    """

    flow: str
    source: str
    target: str
    state: Literal["planned", "done"]
    id: str = ""
    failover: str = ""
    is_repeat: bool = False
    began_at: datetime | None = None
    ended_at: datetime | None = None
    refusals: tuple[str, ...] = ()
    steps: tuple[ReportedStep, ...] = ()
    blocked: tuple[OpenTransaction, ...] = ()
    tail: tuple[RecordRange, ...] = ()
    records: tuple[TailRecord, ...] = ()
    choice: TailChoice | None = None
    back: Mapping[str, int] = field(default_factory=dict)
    proof: ProofSummary | None = None
    groups: tuple[PlacedGroup, ...] = ()
    json_include: ClassVar[tuple[str, ...]] = ("tail_records", "held")

    @property
    def tail_records(self) -> int:
        """The count of source records that never arrived on the target."""
        return sum(part.records for part in self.tail)

    @property
    def held(self) -> int:
        """The count of group positions that were left unchanged."""
        return sum(one.action == "hold" for one in self.groups)

    def sheet(self) -> Sheet:
        """Show the divergent tail first, then what went back, the groups, and the steps."""
        parts: list[str | Table] = [f"refused: {reason}" for reason in self.refusals]
        if self.is_repeat:
            parts.append(f"{self.flow} was failed back before; nothing was done again")
        parts += map(str, self.blocked)
        if self.tail:
            chosen = f"{self.choice}: {MEANS[self.choice]}" if self.choice else "not settled yet (--tail)"
            parts += [f"divergent tail, {chosen}", _tail_table(self.tail)]
        if self.tail and self.records:
            parts.append(_records_table(self.records))
        parts += [f"{name}: {plural(count, 'record')} went back" for name, count in self.back.items()]
        parts += [str(self.proof)] if self.proof is not None else []
        parts += [groups_table(self.groups)] if self.groups else []
        return Sheet(
            title=f"failback {self.flow}",
            badge=self._badge(),
            facts=(f"{plural(self.tail_records, 'record')} never arrived", f"{plural(len(self.groups), 'position')}"),
            parts=(*parts, steps_table(self.steps)),
        )

    def _badge(self) -> Badge:
        if self.refusals:
            return badge("refused")
        if self.state == "planned":
            return badge("nothing was changed", "note")
        return badge("failed back", "warn" if self.held else "good")


def _tail_table(parts: Sequence[RecordRange]) -> Table:
    rows = [(p.topic, str(p.generation), str(p.partition), str(p.first), str(p.end), p.records) for p in parts]
    return table("never arrived", ["topic", "generation", "partition", "first offset", "next offset", "records"], rows)


def _records_table(records: Sequence[TailRecord]) -> Table:
    # A dash would not tell null from an unknown value.
    data = [["‹null›" if cell is None else cell for cell in (one.key, one.value)] for one in records]
    rows = [
        (one.topic, str(one.partition), str(one.offset), one.timestamp, *cells, one.headers)
        for one, cells in zip(records, data, strict=True)
    ]
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    return table(f"the first {len(records)} of them", columns, rows)


def not_failed_back(flow: FlowConfig, refusals: Sequence[Refusal]) -> FailoverRefused:
    reasons = tuple(map(str, refusals))
    return FailoverRefused(
        f"{flow.name} is not failed back: {'; '.join(reasons)}",
        consequence="no group was placed, and the flow stays paused",
        remedy=f"resolve it, then mirrorlake failback --flow '{flow.name}' again; it goes on where it stopped",
        flow=flow.name,
        reasons=reasons,
    )
