"""Report on a failover, done or planned: possible loss, records read again by groups, where to write, RPO and RTO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from mirrorlake.config.schema import FlowConfig
from mirrorlake.failover.loss import PossibleLoss
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.groups import GroupPlan, GroupPosition
from mirrorlake.model.verify import VerifyReport
from mirrorlake.render import Badge, JsonDisplayable, Sheet, Table, badge, format_duration, plural, table
from mirrorlake.status import OpenTransaction

_MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGroup:
    """The position of a group on one partition, or none of one that could not be read; `records_again` is None if not known."""

    group: str
    source: str = ""
    upstream_offset: int | None = None
    target: str = ""
    downstream_offset: int | None = None
    action: str
    records_again: int | None = None
    exact: bool = False
    reason: str

    @classmethod
    def list(cls, plan: GroupPlan) -> tuple[PlacedGroup, ...]:
        unread = (cls(group=group, action="hold", reason=why) for group, why in plan.unread.items())
        return (*map(cls.of, plan), *unread)

    @classmethod
    def of(cls, position: GroupPosition) -> PlacedGroup:
        resume = position.resume
        return cls(
            group=position.group,
            source=str(resume.source),
            upstream_offset=resume.upstream_offset,
            target=str(resume.target),
            downstream_offset=resume.downstream_offset,
            action=position.action,
            records_again=resume.records_again,
            exact=resume.exact,
            reason=position.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSummary:
    """The proof made before groups were placed; `is_skipped` if the command was told to do without.

    `unproven` then names the partitions that earlier verifications prove only in part, with the offset where their proof ends.
    """

    is_skipped: bool = False
    verified: int = 0
    not_compared: int = 0
    differences: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()

    @classmethod
    def skipped(cls, until: Mapping[SourcePartition, int], reached: Mapping[SourcePartition, int]) -> ProofSummary:
        """Summarize the proofs of earlier verifications."""
        found = (f"{s}@{until.get(s, 0)}" for s, at in sorted(reached.items()) if until.get(s, 0) < at)
        return cls(is_skipped=True, unproven=tuple(found))

    @classmethod
    def of(cls, found: VerifyReport, *, stops_at: Mapping[SourcePartition, int] | None = None) -> ProofSummary:
        """Summarize the report of a verification.

        A frozen flow `stops_at` its positions: records landed past them wait for the failback, and are no difference.
        """
        stops: dict[tuple[str, int], int] = {}
        for source, position in (stops_at or {}).items():
            place = source.topic, source.partition
            stops[place] = min(stops.get(place, position), position)
        differences = (
            f"{d.where}: {d.problem} {d.topic}-{d.partition}@{d.offset}"
            for d in found.differences
            if d.problem != "not_republished" or d.offset < stops.get((d.topic, d.partition), d.offset + 1)
        )
        return cls(verified=found.verified, not_compared=found.not_compared, differences=tuple(differences)[:20])

    def __str__(self) -> str:
        if self.is_skipped:
            if not self.unproven:
                return "no verification (--unproven): earlier ones have proven all of it"
            more = "" if len(self.unproven) <= _MAX_NAMED else f" and {len(self.unproven) - _MAX_NAMED} more"
            return f"no verification (--unproven): not proven from {', '.join(self.unproven[:_MAX_NAMED])}{more} on"
        left = f", {plural(self.not_compared, 'record')} not compared" if self.not_compared else ""
        return f"{plural(self.verified, 'record')} verified{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEndpoints:
    """A topic of the flow after a failover: producers write to `write_to`, consumers read all of `read_from`.

    `goes_back_by` is the flow that carries what is written there to the old source; None where the settings have none.
    """

    topic: str
    write_to: str
    read_from: tuple[str, ...]
    goes_back_by: str | None = None

    @classmethod
    def of(cls, topic: str, flow: FlowConfig, flows: Iterable[FlowConfig]) -> TopicEndpoints:
        remote = flow.remote_topic(topic)
        # A topic with its source's prefix came from there, and is never sent back.
        write_to = topic if flow.policy.kind == "default" else remote
        back = [each for each in flows if (each.source, each.target) == (flow.target, flow.source)]
        return cls(
            topic=topic,
            write_to=write_to,
            read_from=(remote,) if remote == write_to else (remote, write_to),
            goes_back_by=next((each.name for each in back if each.carries(write_to)), None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStep:
    """A step: when it was done, and its result in a few words."""

    name: str
    at: datetime
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FailoverReport(JsonDisplayable):
    """What a failover did (`done`) or would do (`planned`).

    `rpo_s` bounds the seconds whose records may be lost; None where it is not known. `last_look_s` is how long before the failover
    began the ends of a source were read last that does not answer: records of that time are not among `partitions`. `rto_s` are
    the seconds from the command's first call to its last step, whatever lay between. `source_note` says how the source was found.
    `blocked` are the partitions where records wait for an open transaction of a source that answers; they count as missing.
    `refusals` are the reasons why a planned failover would be refused. `deny_writes` is the
    command that bars producers from the source.
    """

    flow: str
    source: str
    target: str
    state: Literal["planned", "done"]
    id: str = ""
    is_repeat: bool = False
    began_at: datetime | None = None
    ended_at: datetime | None = None
    source_answers: bool = False
    source_note: str = ""
    refusals: tuple[str, ...] = ()
    steps: tuple[ReportedStep, ...] = ()
    partitions: tuple[PossibleLoss, ...] = ()
    blocked: tuple[OpenTransaction, ...] = ()
    proof: ProofSummary | None = None
    groups: tuple[PlacedGroup, ...] = ()
    topics: tuple[TopicEndpoints, ...] = ()
    deny_writes: str = ""
    last_look_s: float | None = None
    rpo_s: float | None = None
    rto_s: float | None = None
    objective_rpo_s: float | None = None
    objective_rto_s: float | None = None
    json_include: ClassVar[tuple[str, ...]] = ("missing", "records_again", "held")

    @property
    def missing(self) -> int:
        """The source offsets that did not arrive; their records are lost with the source."""
        return sum(one.missing for one in self.partitions) + sum(one.offsets for one in self.blocked)

    @property
    def records_again(self) -> int | None:
        """The count of records that all groups read again, or None if one is not known."""
        counts = [one.records_again for one in self.groups if one.action != "hold"]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def held(self) -> int:
        """The count of group positions that were left unchanged."""
        return sum(one.action == "hold" for one in self.groups)

    def sheet(self) -> Sheet:
        """Show the possible loss first, then groups, topics and steps."""
        again = self.records_again
        facts = (
            f"{plural(self.missing, 'offset')} seen and not arrived",
            f"RPO {_measured(self.rpo_s, self.objective_rpo_s)}",
            f"RTO {_measured(self.rto_s, self.objective_rto_s)}" if self.state == "done" else None,
            "records read again: " + ("not known" if again is None else f"{again:,}".replace(",", " ")),
        )
        parts: list[str | Table] = [f"refused: {reason}" for reason in self.refusals]
        if self.is_repeat:
            parts.append(f"{self.flow} was failed over before; nothing was done again")
        parts += [self.source_note] if self.source_note else []
        parts += map(str, self.blocked)
        parts += [str(self.proof)] if self.proof is not None else []
        parts += [_losses(self.partitions)] if self.partitions else []
        parts += [groups_table(self.groups)] if self.groups else ["no group has a position on this flow's topics"]
        parts += [endpoints_table(self.topics, self.target)] if self.topics else []
        parts += [f"to bar producers from {self.source}: {self.deny_writes}"] if self.deny_writes else []
        parts += [steps_table(self.steps)]
        return Sheet(
            title=f"failover {self.flow}", badge=self._badge(), facts=facts, parts=tuple(p for p in parts if p)
        )

    def _badge(self) -> Badge:
        if self.refusals:
            return badge("refused")
        if self.state == "planned":
            return badge("nothing was changed", "note")
        return badge("failed over", "warn" if self.held or self.missing else "good")


def _measured(seconds: float | None, objective: float | None) -> str:
    said = "not known" if seconds is None else format_duration(seconds * 1000)
    if objective is None:
        return said
    verdict = "" if seconds is None else (", met" if seconds <= objective else ", missed")
    return f"{said} (objective {format_duration(objective * 1000)}{verdict})"


def _losses(rows: Iterable[PossibleLoss]) -> Table:
    columns = [
        "topic",
        "generation",
        "partition",
        "source end",
        "seen at",
        "landed up to",
        "republished up to",
        "not arrived",
    ]
    found = [
        (
            one.topic,
            str(one.generation),
            str(one.partition),
            None if one.seen_end is None else str(one.seen_end),
            one.seen_at,
            str(one.landed),
            str(one.republished),
            one.missing,
        )
        for one in sorted(rows, key=lambda one: (-one.missing, one.topic, one.generation, one.partition))
    ]
    return table("what may be lost with the source", columns, found)


def groups_table(rows: Iterable[PlacedGroup]) -> Table:
    columns = ["group", "source", "upstream", "target", "downstream", "reads again", "action", "reason"]
    found = [
        (
            one.group,
            one.source,
            None if one.upstream_offset is None else str(one.upstream_offset),
            one.target,
            None if one.downstream_offset is None else str(one.downstream_offset),
            one.records_again,
            badge(one.action, "note" if one.action == "move" else None),
            one.reason,
        )
        for one in sorted(rows, key=lambda one: (one.action != "hold", one.group, one.source))
    ]
    return table("groups", columns, found)


def endpoints_table(rows: Iterable[TopicEndpoints], target: str) -> Table:
    columns = ["topic", f"producers write to ({target})", "consumers read", "goes back by"]
    found = [(one.topic, one.write_to, ", ".join(one.read_from), one.goes_back_by) for one in rows]
    return table("topics that are open", columns, found)


def steps_table(steps: Iterable[ReportedStep]) -> Table:
    return table("steps", ["step", "at", "result"], [(one.name, one.at, one.said) for one in steps])
