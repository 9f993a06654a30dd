"""The group explorer: where each consumer group would go on at the target, why, and what is held back."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.model.groups import GroupPlan, GroupPosition
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.session import Session
from mirrorlake.render import Table, badge, table

_WORDS = {"move": ("would move", "note"), "in_step": ("in_step", "good"), "hold": ("held back", "warn")}


def group_table(positions: Iterable[GroupPosition], *, name: str = "", held_only: bool = False) -> Table:
    """Return where groups would go on, those held back first.

    Args:
        positions: of a plan.
        name: only groups whose name holds this text.
        held_only: only positions that are held back.
    """
    chosen = [p for p in positions if name in p.group and (p.action == "hold" or not held_only)]
    rows = [
        (
            p.group,
            f"{p.resume.source}@{p.resume.upstream_offset}",
            None if p.resume.downstream_offset is None else f"{p.resume.target}@{p.resume.downstream_offset}",
            None if p.target_offset is None else str(p.target_offset),
            badge(*_WORDS[p.action]),  # type: ignore[arg-type]  # the moods above are moods
            p.reason,
            p.resume.records_again,
        )
        for p in sorted(chosen, key=lambda p: (p.action != "hold", p.group, p.resume.source))
    ]
    columns = ["group", "read on the source", "goes on at the target", "position there", "", "why", "reads again"]
    return table("", columns, rows)


class GroupsView:
    """Explore the groups of a flow; sets nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.plan: GroupPlan | None = None
        self.flow = controls.dropdown("groups-flow", "Flow")
        self.name = controls.text("groups-name", "Groups containing", hint="a part of the name", wide=False)
        self.held_only = controls.checkbox("groups-held", "Only what is held back")
        self.look = controls.button(
            "groups-look", "Read the groups", tip="Read their positions on both clusters; sets nothing"
        )
        self.rows = controls.html("groups-rows")
        self.widget = controls.column(controls.row(self.flow, self.look), self.name, self.held_only, self.rows)
        session.runner.on_click(self.look, self.on_look)
        for field in (self.name, self.held_only):
            field.observe(session.runner.guarded(self.render), "value")
        self.offer()

    def offer(self) -> None:
        """Offer the flows of the mirror."""
        controls.refill(self.flow, self._session.flow_names)

    async def on_look(self) -> None:
        """Read the groups and show the plan; changes nothing (law G)."""
        mirror = self._session.mirror_of(self.flow.value)
        self.plan = await self._session.runner.ask(mirror.plan_groups, self.flow.value)
        self.render()

    def render(self) -> None:
        """Show the plan that was read."""
        if self.plan is None:
            return
        found = group_table(self.plan, name=self.name.value.strip(), held_only=self.held_only.value)
        nothing = "No group of the flow has committed on its topics." if not len(self.plan) else "No such group."
        self.rows.value = found.html() if found.rows else nothing
