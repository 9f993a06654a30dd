"""Consumer groups: the position at which each one resumes on the target, and why some are not moved.

Law A (never ahead): the position on the target never skips a record that the group has not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar, Literal

from mirrorlake.errors import MirrorlakeError
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import resume_offset
from mirrorlake.model.own_commits import MovePermission
from mirrorlake.render import Displayable, Sheet, badge, plural, table

Action = Literal["move", "in_step", "hold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """The position at which a reader resumes on a target partition.

    `source` is the source partition that feeds it. Of several, it is the one whose record decides; `upstream_offset`
    is the reader's there, and `reason` says so. `downstream_offset` is None without a safe position; `reason` then
    says why. `exact` means that the reader neither repeats nor skips a record. Otherwise it reads `records_again`
    records again (None: unknown).
    """

    source: SourcePartition
    upstream_offset: int
    target: TopicPartition
    downstream_offset: int | None = None
    exact: bool = False
    records_again: int | None = 0
    reason: str = ""

    @classmethod
    def of(cls, decides: Contribution, target: TopicPartition, *, reason: str) -> Resume:
        """Build a result without a position, for a reason."""
        return cls(source=decides.source, upstream_offset=decides.upstream_offset, target=target, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCheck:
    """The check of a position on the source: `again` records before it are not republished yet (None: unknown)."""

    is_safe: bool = True
    exact: bool = True
    again: int | None = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Contribution:
    """The records of one source partition of one flow on a target partition, seen from one reader's position.

    `last_read` is the downstream offset of the last read record, `first_unread` of the first unread one; None without
    such a record.
    """

    flow: str
    source: SourcePartition
    upstream_offset: int
    check: PositionCheck = PositionCheck()
    _: KW_ONLY
    last_read: int | None = None
    first_unread: int | None = None

    def __str__(self) -> str:
        return f"{self.source}@{self.upstream_offset} of {self.flow}"


def position_among(contributions: Sequence[Contribution], *, known_to: int | None = None) -> int | None:
    """Return the position of a reader on a target partition that several source partitions feed; None without a record.

    Right after the last read record, but never past the first unread one (law A). No other such position repeats
    fewer records. A fully read source partition does not limit it. From the downstream offset `known_to` on, records
    may be missing in the contributions, because a transaction was open; None if all are known.

    Example:
        >>> orders = [SourcePartition("orders", 1, p) for p in (0, 1)]
        >>> first = Contribution(flow="f", source=orders[0], upstream_offset=9, last_read=40)
        >>> second = Contribution(flow="f", source=orders[1], upstream_offset=3, last_read=20, first_unread=23)
        >>> position_among([first, second])
        23
    """
    position = resume_offset(
        (one.last_read for one in contributions if one.last_read is not None),
        (one.first_unread for one in contributions if one.first_unread is not None),
    )
    return position if position is None or known_to is None else min(position, known_to)


def limiting(contributions: Sequence[Contribution]) -> Contribution:
    """Return the contribution that decides the position: the first unread record, or the last read one if all are read."""
    unread = [one for one in contributions if one.first_unread is not None]
    if unread:
        return min(unread, key=lambda one: (one.first_unread or 0, one.flow, one.source))
    return max(contributions, key=lambda one: (-1 if one.last_read is None else one.last_read, one.flow, one.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """One target partition of one group: `action` is `move`, `in_step` (already at the position) or `hold`, with the reason.

    `target_offset` is the group's commit on the target, or None. `is_translated` is false if the group stays and
    nothing was translated. `has_members` is whether it is on hold because of its members on the target.
    """

    group: str
    resume: Resume
    metadata: str
    target_offset: int | None
    action: Action
    reason: str
    is_translated: bool = True
    has_members: bool = False
    json_exclude: ClassVar[tuple[str, ...]] = ("has_members",)

    @property
    def topic(self) -> str:
        return self.resume.source.topic

    @property
    def is_past(self) -> bool:
        to = self.resume.downstream_offset
        return to is not None and self.target_offset is not None and self.target_offset > to

    def on_hold(self, reason: str, *, has_members: bool = False) -> GroupPosition:
        return replace(self, action="hold", reason=reason, has_members=has_members)

    def __str__(self) -> str:
        r = self.resume
        there = "nowhere" if r.downstream_offset is None else f"{r.target}@{r.downstream_offset}"
        again = "" if not r.records_again else f", reads {plural(r.records_again, 'record')} again"
        return f"{self.group}: {r.source}@{r.upstream_offset} -> {there}: {self.action} ({self.reason}{again})"


def decide(
    group: str,
    resume: Resume,
    *,
    metadata: str,
    target_offset: int | None,
    is_active: bool,
    where: str = "the target",
) -> GroupPosition:
    """Decide whether one position of a group is moved.

    A group is never moved while it has members on the target, nor back before its own progress there (MirrorMaker 2
    does that: KAFKA-19794). `where` names the cluster in the reason.

    Example:
        >>> here, there = SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0)
        >>> resume = Resume(source=here, upstream_offset=7, target=there, downstream_offset=5, exact=True)
        >>> decide("billing", resume, metadata="", target_offset=9, is_active=False).action
        'hold'
    """
    to = resume.downstream_offset
    reason = resume.reason or "exact: the next record it reads is the first it has not read"
    position = GroupPosition(
        group=group, resume=resume, metadata=metadata, target_offset=target_offset, action="move", reason=reason
    )
    if to is None:
        return position.on_hold(resume.reason)
    if target_offset == to:
        return replace(position, action="in_step", reason=resume.reason or "it is there already")
    if is_active:
        reason = f"it has members on {where}; an active group is never moved"
        return position.on_hold(reason, has_members=True)
    if position.is_past:
        return position.on_hold(f"it has read to {target_offset} on {where}; it is never moved back")
    return position


def stays(
    group: str,
    source: SourcePartition,
    offset: int,
    target: TopicPartition,
    permission: MovePermission,
    *,
    target_offset: int | None,
) -> GroupPosition:
    """Leave a group where it is: it last committed on the target itself, or only mirrorlake ever set its positions."""
    downstream = target_offset if permission.is_certain else None
    return GroupPosition(
        group=group,
        resume=Resume(source=source, upstream_offset=offset, target=target, downstream_offset=downstream, exact=True),
        metadata="",
        target_offset=target_offset,
        action="in_step" if permission.is_certain else "hold",
        reason=permission.reason,
        is_translated=False,
    )


_ORDER: tuple[Action, ...] = ("hold", "move", "in_step")


@dataclass(frozen=True, slots=True, repr=False)
class GroupPlan(Displayable):
    """Every position of every group of a flow; shown first, then applied (law G).

    The positions of `leaderless` source partitions are translated by the offset map alone, or not moved. Groups that could not
    be read are `unread`, by the reason: they are on hold without a position.
    """

    flow: str
    positions: tuple[GroupPosition, ...]
    leaderless: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, flow: str, plans: Sequence[GroupPlan]) -> GroupPlan:
        """Join plans into one of a flow."""
        unread = {group: why for plan in plans for group, why in plan.unread.items()}
        return cls(flow, tuple(one for plan in plans for one in plan), unread=unread)

    def __iter__(self) -> Iterator[GroupPosition]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)

    def sheet(self) -> Sheet:
        """Show the position of each group; those that are not moved come first, then the moves."""
        # Few clients commit metadata.
        metadata = any(p.metadata for p in self.positions)
        columns = ["group", "source", "upstream", "target", "downstream", "reads again", "action", "reason"]
        columns += ["metadata"] if metadata else []
        rows = [
            (
                p.group,
                str(p.resume.source),
                str(p.resume.upstream_offset),
                str(p.resume.target),
                None if p.resume.downstream_offset is None else str(p.resume.downstream_offset),
                p.resume.records_again,
                badge(p.action, "note" if p.action == "move" else None),
                p.reason,
                *([p.metadata] if metadata else []),
            )
            for p in sorted(self.positions, key=lambda p: _ORDER.index(p.action))
        ]
        groups, held = len(self.groups), len(self.held) + len(self.unread)
        return Sheet(
            title=f"groups of {self.flow}",
            badge=badge(f"{held} held back", "warn") if held else badge("ok" if rows else "empty"),
            facts=(plural(groups, "group"), f"{plural(len(self.moves), 'position')} to move"),
            parts=(
                table("", columns, rows, least=("metadata", "upstream", "target"))
                if rows
                else "no group has a position on this flow's topics",
                *(f"on hold: {group}: {why}" for group, why in self.unread.items()),
                *((f"no leader on the source: {', '.join(self.leaderless)}",) if self.leaderless else ()),
            ),
        )

    @property
    def moves(self) -> tuple[GroupPosition, ...]:
        """The positions that applying the plan changes."""
        return tuple(position for position in self.positions if position.action == "move")

    @property
    def held(self) -> tuple[GroupPosition, ...]:
        """The positions that are not moved, with the reason."""
        return tuple(position for position in self.positions if position.action == "hold")

    @property
    def with_members(self) -> list[str]:
        """The names of the groups that are on hold because they have members."""
        return sorted({one.group for one in self.held if one.has_members})

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups that have a position or could not be read, sorted."""
        return tuple(sorted({position.group for position in self.positions} | self.unread.keys()))

    def only(self, groups: Collection[str]) -> GroupPlan:
        """Return the plan of some of the groups."""
        unread = {group: why for group, why in self.unread.items() if group in groups}
        return replace(self, positions=tuple(one for one in self.positions if one.group in groups), unread=unread)

    def as_shown(self, shown: GroupPlan) -> GroupPlan:
        """Return an earlier plan with the moves that this present plan still allows; the others are on hold, with the reason.

        A group that has read on meanwhile moves to the position shown, which is before this plan's (law A).
        """
        present = {(one.group, one.resume.target): one for one in self.positions}

        def judged(one: GroupPosition) -> GroupPosition:
            now = present.get((one.group, one.resume.target))
            if one.action != "move" or one.resume.downstream_offset is None:
                return one
            if now is None:
                return one.on_hold("its position on the source is gone since the plan was shown")
            if now.action == "hold":
                return one.on_hold(now.reason, has_members=now.has_members)
            if now.resume.downstream_offset is None or now.resume.downstream_offset < one.resume.downstream_offset:
                return one.on_hold("it went back on the source since the plan was shown")
            return one

        return replace(self, positions=tuple(map(judged, shown.positions)))

    def unsure(self, why: Mapping[str, MirrorlakeError]) -> GroupPlan:
        """Return the plan with groups on hold that cannot be read, or that an open transaction commits for, and why."""
        said = {group: error.cause for group, error in sorted(why.items())}
        positions = (
            one.on_hold(said[one.group]) if one.group in said and one.action != "hold" else one for one in self
        )
        unread = {group: cause for group, cause in said.items() if group not in {one.group for one in self}}
        return replace(self, positions=tuple(positions), unread=unread)

    def translated(self) -> list[GroupPosition]:
        """List the translated positions, moved or not."""
        return [one for one in self.positions if one.is_translated and one.resume.downstream_offset is not None]

    def holding(self, group: str, reason: str, *, has_members: bool = False) -> GroupPlan:
        """Return the plan with the moves of one group on hold."""
        positions = (
            one.on_hold(reason, has_members=has_members) if one.group == group and one.action == "move" else one
            for one in self
        )
        return replace(self, positions=tuple(positions))
