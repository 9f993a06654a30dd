"""The part of the facade that says how a mirror is doing: status, verification, lag, reports, history."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from mirrorlake.config.fingerprint import identity, plain
from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.config.values import length_of
from mirrorlake.doctor import checks as doctor_step
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.report import Report, make_report
from mirrorlake.lag.status import Status, read_status
from mirrorlake.lake.audit import Audit
from mirrorlake.mirror.base import Part
from mirrorlake.model.verify import VerifyReports
from mirrorlake.progress.board import DRAW_EVERY_S
from mirrorlake.republish.fencing import read_lanes
from mirrorlake.topics import rules_plan as rules_step
from mirrorlake.topics.acl_plan import read_ownership
from mirrorlake.topics.history import History
from mirrorlake.tracking.frame import runs_frame
from mirrorlake.tracking.tracker import Tracker
from mirrorlake.verify import verify as verify_step
from mirrorlake.verify.cut import Relays, take_cut
from mirrorlake.verify.tracking import Timed, track_verification

if TYPE_CHECKING:
    import pandas as pd


class Checking(Part):
    """Status, verification, lag, reports and history of a mirror."""

    def status(self, flow: str | None = None) -> Status:
        """Return per flow where each partition stands.

        Raises:
            ClusterError: a source or a target does not answer.
        """
        chosen = self._chosen(flow)
        return read_status(
            chosen,
            self._wiring.sampler(chosen).look(must_answer=True),
            lake=self.lake,
            target=self.admin,
            readers=self._wiring.reader,
            state=self._wiring.control().state(),
        )

    def verify(self, flow: str | None = None) -> VerifyReports:
        """Compare source, relay and target of each flow at a fixed cut, by count and by content.

        Flows may go on running: what they land and republish meanwhile is beyond the cut and not compared.

        Raises:
            ClusterError: a cluster does not answer.
        """
        chosen = self._chosen(flow)
        beside = {
            target: self._wiring.with_redrives(self.config.flows_to(target))
            for target in {each.target for each in chosen}
        }
        self.lake.create_all({each.source for flows in beside.values() for each in flows})
        cuts = {target: take_cut(self.lake, flows, self._wiring) for target, flows in beside.items()}
        relays = Relays(self.lake, {each.source for flows in beside.values() for each in flows})
        views = self._wiring.views(self.config.flows)

        def compare(each: FlowConfig) -> Timed:
            source, target = self._wiring.source_side(each.source), self._wiring.side(each.target)
            began_at = self._now()
            with closing(self._wiring.ledger(each)) as ledger:
                found = verify_step.verify_flow(
                    each,
                    lake=self.lake,
                    source=source,
                    target=target,
                    cut=cuts[each.target],
                    relays=relays,
                    views=views,
                    tails=partial(read_lanes, ledger, target.admin, each.ledger_topic),
                    tell=board.tell,
                )
            return Timed(found=found, began_at=began_at, ended_at=self._now())

        self.tracking.warm_up()
        # Much of a small comparison is planning and waiting, which several flows can do side by side.
        with self._wiring.watching() as board, ThreadPoolExecutor(4, thread_name_prefix="verify") as pool:
            calls = [pool.submit(compare, each) for each in chosen]
            while wait(calls, timeout=DRAW_EVERY_S).not_done:
                board.tick()
            results = [one.result() for one in calls]
        for each, timed in zip(chosen, results, strict=True):
            track_verification(timed, each, self.config, tracker=self.tracking, lake=self.lake, now=self._now)
        found = VerifyReports(timed.found for timed in results)
        at = self._now()
        self._verified |= {one.flow: (one, at) for one in found}
        return found

    @property
    def tracking(self) -> Tracker:
        """What logs verifications as MLflow runs: how many were `logged`, and how many `failures` were passed over."""
        return self._wiring.tracker

    def runs(self, *, kind: str | None = None, flow: str | None = None, newest: int = 100) -> pd.DataFrame:
        """Return logged runs as a pandas frame, newest first: figures in columns, parameters in `param.*` (see `runs_frame`).

        Raises:
            UsageError: runs are not logged; says why.
            StoreError: the tracking store cannot be read.

        Example:
            >>> mirror.runs(flow="east->central")[["began_at", "equal", "records_per_second"]]  # doctest: +SKIP
        """
        return runs_frame(self.tracking.runs(kind=kind, flow=flow, newest=newest))

    def report(self, *, since: str | timedelta = "24h", flow: str | None = None, verify: bool = False) -> Report:
        """Return a report on lag, latency, RPO and verdicts since a time; `write` makes a file of it.

        It holds the last verification of this `Mirror`, where there was one.

        Args:
            since: how far back it goes.
            flow: one flow; all of them without it.
            verify: compare source, relay and target first.

        Raises:
            UsageError: there is no such flow, or `since` is not a time.
            ClusterError, StoreError: with `verify`, a cluster does not answer; the lake failed.

        Example:
            >>> mirror.report(since="7d", verify=True).write("report.html")  # doctest: +SKIP
        """
        chosen, length = self._chosen(flow), length_of(since)
        if verify:
            self.verify(flow)
        known = [self._verified[each.name] for each in chosen if each.name in self._verified]
        end = self._now()
        return make_report(
            self._wiring.lag(chosen),
            start=end - length,
            end=end,
            settings=identity(plain(self.config)),
            verifications=[found for found, _ in known],
            verified_at=min((at for _, at in known), default=None),
        )

    def doctor(self) -> doctor_step.Findings:
        """Look at every layer the mirror stands on; changes nothing."""
        sources, admins = self._wiring.sources(), self._wiring.clusters()
        held = self._wiring.held
        return doctor_step.examine(
            self.config, sources=sources, admins=admins, lake=self.lake, held=held, now=self._now()
        )

    @property
    def lag(self) -> Lag:
        """Return how far each hop of each flow is and was behind, in offsets and in time (see `Lag`)."""
        return self._wiring.lag(self.config.flows)

    def lag_of(self, flow: str) -> Lag:
        """Return how far each hop of a flow is and was behind (see `Lag`)."""
        return self._wiring.lag([self.config.flow(flow)])

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo` and return their names; on a path they last as long as the session.

        Args:
            days: how far back they reach.

        Example:
            >>> mirror.create_views()  # doctest: +SKIP
            >>> spark.sql("SELECT * FROM lag WHERE hop = 'republished' ORDER BY observed_at DESC")  # doctest: +SKIP
        """
        return self.lag.create_views(days=days)

    @property
    def history(self) -> History:
        """Open the history of the clusters, which also plans the way back to an earlier state."""

        def look() -> None:
            self.lake.create_all(self.config.sources)
            for flow in self.config.flows:
                self._wiring.continuous_sync(flow).look()

        return History(
            self.lake,
            targets=self.config.targets,
            look=look,
            owned=partial(read_ownership, audit=Audit(self.lake, now=self._now)),
            now=self._now,
        )

    def try_rules(self, flow: str, topic: str, newest: int) -> rules_step.RuleTrial:
        """Try the rules of a flow on the newest records of a topic (see `FlowHandle.try_rules`)."""
        settings = self.config.flow(flow)
        return rules_step.try_rules(self.lake, settings, self._wiring.view(settings), topic=topic, newest=newest)
