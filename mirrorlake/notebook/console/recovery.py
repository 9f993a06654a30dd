"""Recovery: objectives and proofs, drills with their progress, and the checklist of a cutover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirrorlake.failover import CutoverReport, DrillReport
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.progress_view import ProgressView
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import FlowPanel, is_typed, require_typed
from mirrorlake.render import Table, badge, table


def drill_table(drills: Iterable[DrillReport]) -> Table:
    rows = [
        (
            one.began_at,
            badge("passed", "good") if one.passed else badge("failed", "bad"),
            *(f"{verdict.objective}: {verdict.said}" for verdict in one.verdicts[:2]),
            one.records,
            one.scratch,
        )
        for one in drills
    ]
    return table("drills", ["began", "", "RPO", "RTO", "records", "into"], rows)


class RecoveryView(FlowPanel):
    def __init__(self, session: Session) -> None:
        super().__init__(session, "recovery")
        tip = "Objectives, what is proven and past drills; changes nothing"
        self.look = self.button("recovery-look", "Read", self.on_look, tip=tip)
        tip = "Rehearse a failover into brokers on this machine; the mirror runs on"
        self.drill = self.button("recovery-drill", "Run a drill", self.on_drill, tip=tip, changes=True)
        self.confirm = controls.text("recovery-confirm", "Cut over", hint="type the flow's name", wide=False)
        tip = "Check each step, and place groups without members"
        self.cutover = self.button("recovery-cutover", "Go on with the cutover", self.on_cutover, tip=tip, changes=True)
        self.objectives = controls.html("recovery-objectives")
        self.progress = ProgressView("recovery-progress", "the drill runs")
        self.drilled = controls.html("recovery-drilled")
        self.drills = controls.html("recovery-drills")
        self.checklist = controls.html("recovery-checklist")
        self.widget = controls.column(
            controls.buttons(self.flow, self.look, self.drill),
            self.objectives,
            self.progress.widget,
            self.drilled,
            self.drills,
            controls.buttons(self.confirm, self.cutover),
            self.checklist,
        )
        self.on_change(self.update_controls, self.confirm)
        self.on_change(self._forget, self.flow)
        self.offer()
        self.update_controls()

    async def on_look(self) -> None:
        mirror, name = self._session.mirror_of(self.flow.value), self.flow.value
        status = await self._runner.ask(mirror[name].status)
        self.objectives.value = status.to_html()
        self._list_drills(await self._runner.ask(mirror[name].drills))

    async def on_drill(self) -> None:
        mirror, name = self._session.mirror_of(self.flow.value), self.flow.value
        rehearsal = self._session.open(mirror.config, display=self.progress)
        report = await self.progress.during(self._runner.ask(rehearsal[name].drill))
        self.drilled.value = report.to_html()
        self._list_drills(await self._runner.ask(mirror[name].drills))

    async def on_cutover(self) -> None:
        mirror, name = self._session.mirror_of(self.flow.value), self.flow.value
        require_typed(self.confirm, name, beside="Go on with the cutover")
        report: CutoverReport = await self._runner.ask(mirror[name].cutover)
        self.checklist.value = report.to_html()

    def _list_drills(self, drills: Sequence[DrillReport]) -> None:
        self.drills.value = drill_table(drills).html() if drills else "No drill of this flow was run yet."

    def update_controls(self) -> None:
        is_ready = is_typed(self.confirm, self.flow.value)
        self.cutover.allow("" if is_ready else f"type {self.flow.value} beside it first")

    def _forget(self) -> None:
        for shown in (self.objectives, self.drilled, self.drills, self.checklist):
            shown.value = ""
        self.update_controls()
