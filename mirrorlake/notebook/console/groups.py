"""Explore groups on both clusters, and move chosen groups.

Law G (shown first): the plan of exactly the chosen groups is shown, and only it is carried out once the flow's name is typed.
"""

from __future__ import annotations

from typing import Any

from mirrorlake.errors import UsageError
from mirrorlake.model.group_overview import GroupOnCluster, GroupOverview, GroupOverviewPart, GroupOverviewRow
from mirrorlake.model.groups import GroupPlan
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.grid import Cell, Column, Grid, Row
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import FlowPanel, is_typed, require_shown, require_typed
from mirrorlake.render import badge, breakable, link, plural, table

_WORDS = {"move": badge("would move", "note"), "in_step": badge("in_step"), "hold": badge("held back", "warn")}
_DONE = {"move": badge("moved", "good"), "in_step": badge("in_step"), "hold": badge("held back", "warn")}
# Groups that need a person come first.
_ORDER = {"hold": 0, "move": 1, "in_step": 2}


def columns(source: str, target: str) -> list[Column]:
    return [
        Column("group", "Group"),
        Column("verdict", "Plan", kind="mark"),
        Column("source", f"On {source}"),
        Column("source_lag", "Offset lag", kind="number", help=f"From its position to the end, on {source}"),
        Column("target", f"On {target}"),
        Column("target_lag", "Offset lag", kind="number", help=f"From its position to the end, on {target}"),
        Column("goes_on", "Goes on at", help=f"The first record that it would read on {target}"),
        Column("again", "Again", kind="number", help="Records that it would read once more; empty: not known"),
        Column("why", "Why", kind="prose"),
    ]


def rows_of(standing: GroupOverview) -> list[Row]:
    return [_group_row(one, standing) for one in standing.groups]


def _group_row(one: GroupOverviewRow, standing: GroupOverview) -> Row:
    cells: dict[str, Any] = {
        "group": one.group,
        "verdict": _verdict(one.action),
        "source": _at(one.source),
        "source_lag": one.source.lag,
        "target": _at(one.target),
        "target_lag": one.target.lag,
        "goes_on": plural(len(one.parts), "partition"),
        "again": one.records_again,
        "why": one.reason,
    }
    return Row(
        one.group, cells, [_part_row(f"{one.group}/{number}", part, standing) for number, part in enumerate(one.parts)]
    )


def _part_row(key: str, part: GroupOverviewPart, standing: GroupOverview) -> Row:
    position, resume = part.position, part.position.resume
    there = None if resume.downstream_offset is None else f"{resume.target}@{resume.downstream_offset}"
    cells: dict[str, Any] = {
        "group": Cell(str(resume.source), link=link("topic", standing.source, resume.source.topic)),
        "verdict": _verdict(position.action),
        "source": f"read up to {resume.upstream_offset}",
        "source_lag": part.source_lag,
        "target": "no position" if position.target_offset is None else f"read up to {position.target_offset}",
        "target_lag": part.target_lag,
        "goes_on": "–" if there is None else Cell(there, link=link("topic", standing.target, resume.target.topic)),
        "again": resume.records_again,
        "why": position.reason,
    }
    return Row(key, cells)


def _verdict(action: str) -> Cell:
    return Cell.of(_WORDS[action], sort=_ORDER[action])


def _at(at: GroupOnCluster) -> Cell:
    who = [f"{one.client_id} from {one.host} reads {plural(one.partitions, 'partition')}" for one in at.members]
    return Cell(str(at), sort=len(at.members), title="; ".join(who))


def outcome_html(done: GroupPlan) -> str:
    worst = {one.group: min((p.action for p in done if p.group == one.group), key=_ORDER.__getitem__) for one in done}
    rows = [
        (group, _DONE[action], "; ".join(dict.fromkeys(p.reason for p in done if p.group == group)))
        for group, action in worst.items()
    ]
    return (
        f"<div>{breakable(plural(len(done.moves), 'position'))} moved</div>"
        + table("", ["group", "", "why"], rows).html()
    )


class GroupsView(FlowPanel):
    def __init__(self, session: Session) -> None:
        super().__init__(session, "groups")
        self.plan: GroupPlan | None = None
        tip = "Read members and positions on both clusters; sets nothing"
        self.look = self.button("groups-look", "Read the groups", self.on_look, tip=tip, main=True)
        self.grid = Grid(
            "groups-rows",
            columns("the source", "the target"),
            label="Consumer groups",
            least=("goes_on", "target_lag", "source_lag", "again"),
            select="many",
            follow=session.follow,
            empty="No groups were read yet.",
            file="groups.csv",
        )
        tip = "Show where exactly these groups would go; sets nothing"
        self.choose = self.button("groups-plan-chosen", "Plan for the chosen", self.on_plan, tip=tip)
        self.shown = controls.html("groups-plan")
        self.confirm = controls.text("groups-confirm", "Flow's name", hint="type it to move the groups")
        self.apply = self.button(
            "groups-apply", "Move the groups", self.on_apply, tip="Carry out the plan above", changes=True
        )
        self.outcome = controls.html("groups-applied")
        self._decide = controls.column(self.shown, controls.buttons(self.confirm, self.apply))
        self.widget = controls.column(
            controls.row(self.flow, self.look), self.grid, controls.buttons(self.choose), self._decide, self.outcome
        )
        self.on_change(self._withdraw, self.grid, trait="selected")
        self.on_change(self._other_flow, self.flow)
        self.on_change(self.update_controls, self.confirm)
        self.offer()
        self.update_controls()

    async def on_look(self) -> None:
        self.outcome.value = ""
        await self._read()

    async def choose_group(self, flow: str, group: str) -> None:
        if flow not in self.flow.options:
            raise UsageError(f"there is no flow {flow}", remedy=f"choose one of {', '.join(self.flow.options)}")
        self.flow.value = flow
        await self._read()
        if all(row["key"] != group for row in self.grid.rows):
            raise UsageError(f"no group {group} has committed on the topics of {flow}", remedy="choose one of the list")
        self.grid.selected = [group]

    async def on_plan(self) -> None:
        """Show the plan of exactly the chosen groups (law G)."""
        mirror = self._session.mirror_of(self.flow.value)
        chosen = sorted(self.grid.selected)
        if not chosen:
            raise UsageError("no group is chosen", remedy="tick the groups that are to be moved")
        self.outcome.value = ""
        plan = await self._runner.ask(mirror.plan_groups, self.flow.value, groups=chosen)
        if chosen == sorted(self.grid.selected):
            self.plan = plan
            # All rows: a person cannot agree to hidden rows.
            self.shown.value = plan.to_html(rows=None)

    async def on_apply(self) -> None:
        """Carry out the plan that is shown, and no other (law G); groups with members are never moved."""
        plan = require_shown(self.plan, first="choose groups and press Plan for the chosen")
        require_typed(self.confirm, plan.flow, beside="Move the groups")
        mirror = self._session.mirror_of(plan.flow)
        done = await self._runner.ask(mirror.apply_groups, plan.flow, plan=plan)
        self._withdraw()
        self.outcome.value = outcome_html(done)
        await self._read()

    async def _read(self) -> None:
        name = self.flow.value
        mirror = self._session.mirror_of(name)
        standing = await self._runner.ask(mirror.group_standing, name)
        if name != self.flow.value:
            return
        self.grid.empty = "No group of the flow has committed on its topics."
        self.grid.show(rows_of(standing), columns(standing.source, standing.target))

    def _other_flow(self) -> None:
        self.grid.show([])
        self._withdraw()
        self.outcome.value = ""

    def _withdraw(self) -> None:
        self.plan, self.shown.value, self.confirm.value = None, "", ""
        self.update_controls()

    def update_controls(self) -> None:
        plan = self.plan
        self._decide.layout.display = None if plan is not None else "none"
        self.choose.allow("" if self.grid.selected else "tick the groups that are to be moved")
        self.confirm.placeholder = "" if plan is None else f"type {plan.flow} to move the groups"
        if plan is None or not plan.moves:
            self.apply.allow("no position is to be moved")
        else:
            self.apply.allow("" if is_typed(self.confirm, plan.flow) else f"type {plan.flow} beside it first")
