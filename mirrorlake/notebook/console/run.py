"""Step 4 of the wizard: run the mirror in this process with its progress, or by a command or a job."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import mirrorlake
from mirrorlake.errors import SafetyError
from mirrorlake.mirror import Mirror, Ran
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.progress_view import ProgressView
from mirrorlake.notebook.console.pulse import Reading
from mirrorlake.notebook.console.review import ReviewView
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.unit import systemd_unit
from mirrorlake.notebook.console.view import Panel
from mirrorlake.render import badge, breakable, format_duration, table
from mirrorlake.status import Status, status_badge

_ALL = "all flows"
# A status calls every cluster and reads the lake: fast enough to watch, and another view's status serves as well.
_POLL_INTERVAL_S = 5.0
_REFERENCE = re.compile(r"\$\{env:(\w+)\}")


@dataclass(frozen=True)
class RunLook:
    at: datetime
    ran: Ran
    status: Status | None = None


@dataclass
class ConsoleRun:
    """`flow` is None for all; `looks` are the newest, for the rate."""

    flow: str | None
    once: bool
    since: datetime
    stop: threading.Event = field(default_factory=threading.Event)
    stopped_at: datetime | None = None
    looks: deque[RunLook] = field(default_factory=lambda: deque(maxlen=3))
    problem: str = ""

    @property
    def said(self) -> str:
        return f"{self.flow or _ALL}{' once' if self.once else ''}"


class RunView(Panel):
    def __init__(self, session: Session, *, review: ReviewView, status: Callable[[], Reading] = Reading) -> None:
        super().__init__(session)
        self._review = review
        self._status = status
        self.current: ConsoleRun | None = None
        self.outcome = controls.html("applied")
        self.flow = controls.dropdown("run-flow", "Flow", [_ALL], _ALL)
        tip = "Run always on, until Stop or the end of this notebook"
        self.run = self.button("run", "Run", partial(self._go, once=False), tip=tip, main=True, changes=True)
        tip = "Mirror up to the present ends, then stop"
        self.once = self.button("run-once", "Run once", partial(self._go, once=True), tip=tip, changes=True)
        self.stop = self.button("run-stop", "Stop", self.on_stop, tip="Stop after the batches under way", changes=True)
        tip = "Hold the flow back wherever it runs; landing goes on"
        self.pause = self.button("run-pause", "Pause", self.on_pause, tip=tip, changes=True)
        tip = "Send what was held back, in order, and go on"
        self.resume = self.button("run-resume", "Resume", self.on_resume, tip=tip, changes=True)
        self.progress = ProgressView("run-progress", "runs here")
        self.said = controls.html("run-said")
        tip = "Write the file that a run elsewhere reads"
        self.save = self.button("run-save", "Save the settings", review.on_save, tip=tip, changes=True)
        self.elsewhere = controls.html("run-elsewhere")
        self.widget = controls.column(
            self.outcome,
            self.flow,
            controls.buttons(self.run, self.once, self.stop, self.pause, self.resume),
            self.progress.widget,
            self.said,
            self.elsewhere,
            controls.buttons(self.save),
        )
        self.on_change(self.update_controls, self.flow)
        # The run view also shows whether the settings are saved.
        review.after_action = self.update_controls
        self.offer()

    def offer(self, applied: str = "") -> None:
        """Offer the flows of the mirror; `applied` is HTML about the last apply."""
        controls.refill(self.flow, [_ALL, *self._session.flow_names])
        self.outcome.value = applied
        self.update_controls()

    async def on_stop(self) -> None:
        """Stop this console's run after its current batches."""
        self.end()

    def end(self) -> None:
        if self.current is not None and not self.current.stop.is_set():
            self.current.stopped_at = self._session.now()
            self.current.stop.set()

    async def on_pause(self) -> None:
        mirror = self._session.mirror_of(self.flow.value)
        for name in self._chosen():
            await self._runner.ask(mirror.pause, flow=name, reason="paused in the console")
        self.said.value = f"{badge('paused').html()} {breakable(self.flow.value)}: landing goes on, nothing is sent."

    async def on_resume(self) -> None:
        """End the pause of the chosen flow, or of all, and restart parked streams."""
        mirror = self._session.mirror_of(self.flow.value)
        ended = [await self._runner.ask(mirror.resume, flow=name) for name in self._chosen()]
        word = "resumed" if any(ended) else "was not paused"
        self.said.value = f"{badge(word, 'note').html()} {breakable(self.flow.value)}"

    async def _go(self, *, once: bool) -> None:
        mirror = self._session.mirror_of(self.flow.value)
        if self.current is not None:
            raise SafetyError(
                f"{self.current.said} runs in this console already",
                consequence="nothing was started",
                remedy="press Stop first",
            )
        flow = None if self.flow.value == _ALL else self.flow.value
        run = self.current = ConsoleRun(flow, once, self._session.now())
        self.said.value = ""
        self.update_controls()
        try:
            await self._refuse_a_second(mirror, flow)
            working = self._session.open(mirror.config, display=self.progress)
            ran = await self._work(working, run)
        finally:
            # Cancelling this, as closing the console does, also ends the run.
            run.stop.set()
            self.current = None
        self.said.value = f"<p>{breakable(run.said)} ended.</p>{ran.to_html()}"

    async def _work(self, working: Mirror, run: ConsoleRun) -> Ran:
        work = asyncio.wrap_future(_in_thread(lambda: working.run(run.flow, once=run.once, stop=run.stop)))
        watching = asyncio.ensure_future(self._watch(working, run))
        try:
            return await self.progress.during(work, also=lambda: self._seen(working, run))
        finally:
            watching.cancel()

    async def _refuse_a_second(self, mirror: Mirror, flow: str | None) -> None:
        """Refuse a second run: it would take over the relay, and the first would end with exit 3 (law F)."""
        found = await self._runner.ask(mirror.running, flow)
        if found:
            name, who = next(iter(found.items()))
            raise SafetyError(
                f"{name} runs already: {who}",
                consequence="nothing was started: a second run would take its relay over, and the first one would end with "
                "exit 3",
                remedy="stop that process first, or watch it in Status",
            )

    async def _watch(self, working: Mirror, run: ConsoleRun) -> None:
        """Record the run's progress repeatedly; use another view's status if it is recent."""
        while True:
            reading, now = self._status(), self._session.now()
            is_old = reading.at is None or now - reading.at > timedelta(seconds=2 * _POLL_INTERVAL_S)
            status = reading.value
            try:
                if is_old or status is None:
                    status = await self._runner.ask(working.status)
                run.problem = ""
            except Exception as error:  # shown beside the run, which goes on
                status, run.problem = None, error_text(error).splitlines()[0]
            run.looks.append(RunLook(self._session.now(), working.progress(), status))
            await asyncio.sleep(_POLL_INTERVAL_S)

    def _seen(self, working: Mirror, run: ConsoleRun) -> str:
        now = self._session.now()
        said = f" {breakable(run.said)} for {breakable(format_duration(now - run.since))}"
        if run.stopped_at is not None:
            said += f"; stopping for {breakable(format_duration(now - run.stopped_at))}, after the batches under way"
        if run.problem:
            said += f"<div>{badge('status not known', 'warn').html()} {breakable(run.problem)}</div>"
        if not run.looks or run.once:
            # A drain reports its own progress.
            return said
        sources = {flow.name: flow.source for flow in working.config.flows if run.flow in (None, flow.name)}
        return said + progress_table(list(run.looks), sources)

    def _chosen(self) -> list[str]:
        return self._session.flow_names if self.flow.value == _ALL else [self.flow.value]

    def update_controls(self) -> None:
        mirror, run = self._session.mirror, self.current
        unset = "review and apply a flow first" if mirror is None else ""
        for button in (self.run, self.once):
            button.allow(f"{run.said} runs in this console: press Stop first" if run else unset)
        for button in (self.pause, self.resume):
            button.allow(unset)
        self.stop.allow(
            "nothing runs in this console" if run is None else "it is stopping" if run.stop.is_set() else ""
        )
        self.elsewhere.value = "Nothing is set up yet: review and apply a flow first." if mirror is None else ""
        self.save.layout.display = "none"
        if mirror is not None:
            is_saved = self._review.is_saved
            self.save.layout.display = "none" if is_saved else None
            flow = None if self.flow.value in (_ALL, None) else self.flow.value
            self.elsewhere.value = elsewhere(mirror, self._review.file, flow=flow, is_saved=is_saved)


def progress_table(looks: Sequence[RunLook], sources: Mapping[str, str]) -> str:
    """`sources` are the sources by running flow; rates are between the first and the last of `looks`."""
    first, last = looks[0], looks[-1]
    seconds = (last.at - first.at).total_seconds()
    came, went = _counts(last.ran)
    came_since, went_since = _counts(last.ran.since(first.ran))

    def rate(records: int) -> int | None:
        return round(records / seconds) if seconds > 0 else None

    rows = []
    for name, source in sources.items():
        flow = None if last.status is None else last.status.get(name)
        lag = None if flow is None or flow.time_lag_ms is None else timedelta(milliseconds=flow.time_lag_ms)
        offset_lag = flow.offset_lag if flow is not None and flow.is_whole else None
        judged = (offset_lag, lag, None if flow is None else status_badge(flow.verdict, flow.state))
        arrived = came.get(source, 0), rate(came_since.get(source, 0))
        rows.append((name, *arrived, went.get(name, 0), rate(went_since.get(name, 0)), *judged))
    columns = ["flow", "records in", "in/s", "records out", "out/s", "offset lag", "time lag", "verdict"]
    return table("", columns, rows).html()


def _counts(ran: Ran) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of landed records by source, and of republished records by flow."""
    return {one.source: one.records for one in ran.landed}, {one.flow: one.records for one in ran.republished}


def elsewhere(mirror: Mirror, file: Path | None, *, flow: str | None, is_saved: bool) -> str:
    """Return as HTML how to run the mirror outside of the notebook: command, job, unit, and variables."""
    named = str(file) if file is not None else "conf/mirror.yml"
    conf = shlex.quote(named) + (f" --flow {shlex.quote(flow)}" if flow else "")
    job = Path(mirrorlake.__file__).parents[1] / "jobs" / "mirrorlake.py"
    unit = systemd_unit([sys.executable, "-m", "mirrorlake", "run", "--conf", conf], settings=named)
    needed = sorted(set(_REFERENCE.findall(mirror.config.text)))
    lines = [
        "<p><b>Elsewhere.</b> The same mirror as a command or a job:</p>",
        controls.code(f"mirrorlake run --conf {conf}"),
        "<details><summary>Spark or Databricks job, systemd service</summary>"
        + controls.code(f"spark-submit {job if job.exists() else 'jobs/mirrorlake.py'} run --conf {conf}")
        + "<p>On Databricks: a wheel task with the entry point <code>mirrorlake</code> and the same parameters.</p>"
        + controls.code(unit)
        + "</details>",
    ]
    if needed:
        lines.append(f"<p>It needs the variables {breakable(', '.join(needed))}.</p>")
    if not is_saved:
        mark = badge("not saved yet", "warn").html()
        lines.insert(
            0, f"<p>{mark} A run elsewhere reads <code>{breakable(named)}</code>: save the settings there first.</p>"
        )
    return "".join(lines)


def _in_thread(call: Callable[[], Ran]) -> Future[Ran]:
    """Run a call in a daemon thread, which does not stop a kernel from ending."""
    future: Future[Ran] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="mirrorlake console run", daemon=True).start()
    return future
