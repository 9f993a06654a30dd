"""Consumer groups on both clusters of a flow: members, state and lag, with the position at which each would resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mirrorlake.model.groups import GroupPosition
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_count, plural, table

# The state of a group that the cluster does not have.
ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    client_id: str
    host: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOnCluster:
    """A group on one cluster: its state in Kafka's words (`absent` if it is unknown there) and its members.

    `lag` is the sum, in offsets, from its positions on the flow's topics to their ends; None without a position.
    """

    state: str
    members: tuple[GroupMember, ...] = ()
    lag: int | None = None

    def __str__(self) -> str:
        return f"{self.state}, {plural(len(self.members), 'member')}" if self.members else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverviewPart:
    position: GroupPosition
    source_lag: int | None
    target_lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverviewRow:
    group: str
    source: GroupOnCluster
    target: GroupOnCluster
    parts: tuple[GroupOverviewPart, ...]
    unread: str = ""
    json_include: ClassVar[tuple[str, ...]] = ("action", "reason")

    @property
    def action(self) -> str:
        """The action of a plan: `hold` if any position is on hold, else `move` if any moves, else `in_step`."""
        actions = {part.position.action for part in self.parts}
        return next((action for action in ("hold", "move", "in_step") if action in actions), "hold")

    @property
    def reason(self) -> str:
        said = (part.position.reason for part in self.parts if part.position.action == self.action)
        return self.unread or "; ".join(dict.fromkeys(said))

    @property
    def records_again(self) -> int | None:
        """The number of records it would read again; None if that is unknown for a partition."""
        again = [part.position.resume.records_again for part in self.parts]
        return None if None in again else sum(number or 0 for number in again)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupOverview(JsonDisplayable):
    """The groups of a flow, those on hold first."""

    flow: str
    source: str
    target: str
    groups: tuple[GroupOverviewRow, ...]

    def sheet(self) -> Sheet:
        """Show a row a group."""
        sides = [title for alias in (self.source, self.target) for title in (f"on {alias}", f"offset lag on {alias}")]
        columns = ["group", *sides, "action", "reads again", "reason"]
        rows = [
            (
                one.group,
                str(one.source),
                one.source.lag,
                str(one.target),
                one.target.lag,
                badge(one.action, "note" if one.action == "move" else None),
                one.records_again,
                one.reason,
            )
            for one in self.groups
        ]
        held = sum(one.action == "hold" for one in self.groups)
        return Sheet(
            title=f"groups of {self.flow}",
            badge=badge(f"{format_count(held)} held back", "warn") if held else badge("ok" if rows else "empty"),
            facts=(plural(len(rows), "group"),),
            parts=(table("", columns, rows) if rows else "no group has a position on this flow's topics",),
        )
