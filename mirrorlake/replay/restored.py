"""Displayable plan and report of a restore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from mirrorlake.model.plan import Change
from mirrorlake.model.verify import Difference
from mirrorlake.render import JsonDisplayable, Sheet, Table, badge, by_fields, plural, table
from mirrorlake.replay.as_of import GroupAsOf
from mirrorlake.replay.plan import ReplayPlan


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestorePlan(JsonDisplayable):
    """The records, ACLs and group positions of a restore; shown first, then run (law G).

    Attributes:
        records: the records to send, as the plan of a replay.
        at: the time as of which topics are restored.
        acls: the ACLs to create.
        groups: the positions of groups at that time.
        notes: what to know before running it.
    """

    records: ReplayPlan
    at: datetime
    acls: tuple[Change, ...] = ()
    groups: tuple[GroupAsOf, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its flow."""
        return self.records.name

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as `--json` prints it."""
        return {"name": self.name, "at": self.at.isoformat(), **by_fields(self)}

    def sheet(self) -> Sheet:
        """Show topics, records, ACLs and group positions."""
        sent = self.records.sheet()
        rows = [(one.group, str(one.source), str(one.position)) for one in self.groups]
        return replace(
            sent,
            title=f"{sent.title}, as of {self.at:%Y-%m-%d %H:%M:%S} UTC",
            facts=(*sent.facts, plural(len(self.acls), "ACL"), plural(len(self.groups), "group position")),
            parts=(
                *sent.parts,
                *([table("ACLs", ["name"], [[one.name] for one in self.acls])] if self.acls else []),
                *([table("groups", ["group", "source", "position"], rows)] if rows else []),
                *(f"note: {note}" for note in self.notes),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestoreReport(JsonDisplayable):
    """The result of a restore, compared with the relay.

    Attributes:
        name: the name of its flow.
        at: the time as of which topics were restored.
        topics: the number of topics.
        records: the number of their records in the relay.
        sent: records that this call sent.
        verified: records on the target that are equal in bytes, headers, timestamps and order.
        differences: the first thousand differing records.
        moved: group positions that this call set.
        held: group positions that were not set, with the reason.
        gone: records that left the relay after the planning.
        left_target: records that the target's retention or compaction removed before they were compared.
        done: whether it is done.
        took_s: seconds that this call took.
    """

    name: str
    at: datetime
    topics: int
    records: int
    sent: int = 0
    verified: int = 0
    differences: tuple[Difference, ...] = ()
    moved: int = 0
    held: tuple[str, ...] = ()
    gone: int = 0
    left_target: int = 0
    done: bool = True
    took_s: float = 0.0
    json_include: ClassVar[tuple[str, ...]] = ("equal",)

    @property
    def equal(self) -> bool:
        """Whether the target's records equal the relay's, except records that left either."""
        compared = self.verified + self.left_target
        return self.done and not self.differences and self.records - self.gone <= compared <= self.records

    def sheet(self) -> Sheet:
        """Show the verdict, the differences and the groups that were not set."""
        verdict = badge("equal") if self.equal else badge("different")
        return Sheet(
            title=f"{self.name}, as of {self.at:%Y-%m-%d %H:%M:%S} UTC",
            badge=verdict if self.done else badge("stopped; the same command goes on", "warn"),
            facts=(
                plural(self.topics, "topic"),
                f"{plural(self.sent, 'record')} sent now",
                f"{self.verified:,} of {plural(self.records, 'record')} verified",
                *((f"{self.left_target:,} have left the target",) if self.left_target else ()),
                f"{plural(self.moved, 'group position')} set",
            ),
            parts=(
                *([_differences(self.differences)] if self.differences else []),
                *(f"held back: {one}" for one in self.held),
            ),
        )


def _differences(found: Sequence[Difference]) -> Table:
    rows = [(badge(one.problem), one.topic, str(one.partition), str(one.offset)) for one in found]
    return table("differences", ["problem", "topic", "partition", "offset"], rows)
