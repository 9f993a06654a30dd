"""How a mirror is doing: samples, lag, status, verification, reports and history."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from mirrorlake import tracking, verify
from mirrorlake.config import identity, plain, when
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.kafka import Groups
from mirrorlake.lag import (
    Blocked,
    Lag,
    Report,
    Retention,
    SampledMoment,
    Sampler,
    SampleSites,
    Status,
    Unreachable,
    Windows,
    blocked_partitions,
    make_report,
    other_flows,
    read_status,
)
from mirrorlake.lake import newest_proofs
from mirrorlake.mirror.services.comparisons import Comparisons
from mirrorlake.mirror.streams import continuous_sync
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.verify import VerifyReport, VerifyReports
from mirrorlake.offsets import known_maps
from mirrorlake.progress import DRAW_EVERY_S
from mirrorlake.runtime import Duty
from mirrorlake.topics import History

if TYPE_CHECKING:
    import pandas as pd

    from mirrorlake.tracking import Tracker
    from mirrorlake.verify import ProofReport

# The time between two looks where neither the settings nor the command give one.
_SAMPLE_S = 30.0
_FIRST_VERIFY_S = 120.0
_MOST_LOGGED = 10
_WINDOWS_AGE = timedelta(seconds=15)

log = logging.getLogger(__name__)


class Checks:
    """Look at the positions of a mirror, and compare what stands where."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._comparisons = Comparisons(context)
        # Of all samplers: a look does not wait again for a cluster that another look has found away.
        self._unreachable = Unreachable()
        self._windows: dict[frozenset[str], tuple[datetime, Windows]] = {}
        self._verified: dict[str, tuple[VerifyReport, datetime]] = {}
        self._reports: dict[str, tuple[tuple[VerifyReport, ...], datetime]] = {}

    @cached_property
    def tracker(self) -> Tracker:
        """What keeps runs of verifications, where the settings and this machine allow it."""
        return tracking.make_tracker(self._context.config)

    def runs(self, *, kind: str | None, flow: str | None, newest: int) -> pd.DataFrame:
        """Return logged runs as a pandas frame, newest first (see `Mirror.runs`)."""
        return tracking.runs_frame(self.tracker.runs(kind=kind, flow=flow, newest=newest))

    # -- lag ------------------------------------------------------------------------------------------------------

    def sampler(self, flows: Sequence[FlowConfig] | None = None) -> Sampler:
        """Build a sampler of all positions of the mirror, or of these flows without any group.

        Keep one for as long as it samples, because it remembers.
        """
        sites = self.sample_sites if flows is None else partial(self._sites_of, flows, {})
        return Sampler(self._context.lake, sites, now=self._context.now, unreachable=self._unreachable)

    def sample_sites(self) -> SampleSites:
        """List the sites to sample from the settings as they are now."""
        context = self._context
        return self._sites_of(context.config.flows, {alias: context.groups(alias) for alias in context.admins()})

    def _sites_of(self, flows: Sequence[FlowConfig], groups: Mapping[str, Groups]) -> SampleSites:
        context = self._context
        sources = {flow.source for flow in flows}
        clusters = {*sources, *(flow.target for flow in flows)} - {*context.config.lake_clusters}
        return SampleSites(
            flows=flows,
            sampling=context.config.sampling,
            sources={alias: context.source(alias) for alias in sources},
            admins={alias: context.admin(alias) for alias in clusters},
            groups=groups,
            ledger=context.ledger,
        )

    def sample(self, *, every_s: float | None, stop: threading.Event, tell: Callable[[SampledMoment], None]) -> None:
        """Look at all positions until `stop` is set (see `Mirror.sample`)."""
        sampler = self.sampler()
        while not stop.is_set():
            begun = time.monotonic()
            tell(sampler.once())
            every = every_s or self._context.config.sampling.every.total_seconds() or _SAMPLE_S
            stop.wait(max(0.0, begun + every - time.monotonic()))

    def lag(self, flows: Sequence[FlowConfig], *, status: Callable[[], Status] | None = None) -> Lag:
        """Build the lag of these flows; `status` tells where they stand, for verdicts, instead of a sampler of their own."""
        context = self._context
        return Lag(
            context.lake,
            flows,
            look=lambda: self.sampler().look(),
            runs=lambda names: known_maps(
                context.lake, [flow for flow in flows if flow.name in names], context
            ).runs_text(),
            readers=context.reader,
            now=context.now,
            retention_of=self._retention(),
            status=status or (lambda: self._status(flows, self.sampler(flows))),
            paused=lambda: context.control().state(),
            every=context.config.sampling.every,
        )

    def _retention(self) -> Retention:
        context = self._context
        return Retention(context.config, admin=context.admin)

    def report(self, flow: str | None, *, since: str | timedelta | datetime, verify: bool) -> Report:
        """Report on lag, latency, RPO and verdicts (see `Mirror.report`)."""
        chosen = self._context.chosen(flow)
        if verify:
            self.verify(flow)
        known = [self._verified[each.name] for each in chosen if each.name in self._verified]
        others = [each.name for each in chosen if each.name not in self._verified]
        end = self._context.now()
        return make_report(
            self.lag(chosen),
            start=when(since, now=end),
            end=end,
            settings=identity(plain(self._context.config)),
            verifications=[found for found, _ in known],
            verified_at=min((at for _, at in known), default=None),
            recorded=newest_proofs(self._context.lake, others) if others else (),
            mirror=", ".join(each.name for each in chosen),
            host=socket.gethostname(),
        )

    # -- status ---------------------------------------------------------------------------------------------------

    def status(self, flow: str | None) -> Status:
        """Return where each partition of each flow stands (see `Mirror.status`)."""
        chosen = self._context.chosen(flow)
        return self._status(chosen, self.sampler(chosen))

    def statuses(self, flow: str | None) -> Callable[[], Status]:
        """Make what tells the status again and again, to one thread: it follows the relays from one time to the next."""
        of: tuple[FlowConfig, ...] = ()
        sampler = self.sampler(of)

        def status() -> Status:
            nonlocal of, sampler
            if of != (chosen := self._context.chosen(flow)):
                of, sampler = chosen, self.sampler(chosen)
            return self._status(of, sampler)

        return status

    def _status(self, chosen: Sequence[FlowConfig], sampler: Sampler) -> Status:
        context, look = self._context, sampler.look()
        state = context.control().state()
        status = read_status(
            chosen,
            look,
            lake=context.lake,
            target=context.admin,
            readers=context.reader,
            state=state,
            retention_of=self._retention(),
            windows=lambda: self._windows_of(chosen),
            blocked_of=self._blocked,
        )
        others = other_flows(
            context.config,
            state,
            lake=context.lake,
            now=context.now(),
            sources={flow.source for flow in chosen},
        )
        return replace(status, other_flows=others)

    def _blocked(self, alias: str, stable: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Blocked]:
        context = self._context
        if context.config.cluster(alias).is_lake:
            return {}
        readers = partial(context.reader, committed=False)
        return blocked_partitions(context.admin(alias), readers, stable, now=context.now())

    def _windows_of(self, flows: Sequence[FlowConfig]) -> Windows:
        """Read the newest samples; who asks every few seconds gets what was read a moment ago, as samples are further apart.

        A view of some flows takes what a view of more flows has read, so that both judge the same.
        """
        names, now = frozenset(flow.name for flow in flows), self._context.now()
        for known, (read_at, windows) in list(self._windows.items()):
            if names <= known and timedelta() <= now - read_at < _WINDOWS_AGE:
                return windows
        windows = self.lag(flows).windows()
        self._windows[names] = now, windows
        return windows

    def history(self) -> History:
        """Open the history of the clusters (see `Mirror.history`)."""
        context = self._context

        def look() -> None:
            context.lake.create_all(context.config.sources)
            for flow in context.config.flows:
                continuous_sync(context, flow).look()

        return History(
            context.lake,
            targets=context.config.targets,
            look=look,
            audit=context.audit(),
            now=context.now,
        )

    # -- verification ---------------------------------------------------------------------------------------------

    def verify(
        self,
        flow: str | None,
        *,
        full: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        sample: float | None = None,
        direct: bool = False,
        lost: Collection[str] = (),
    ) -> VerifyReports:
        """Compare source, relay and target of each flow at a fixed cut (see `Mirror.verify`).

        Sources in `lost` are not asked: of their flows, relay and target are compared.
        """
        context = self._context
        chosen = context.chosen(flow)
        now = context.now()
        first, last = (None if text is None else when(text, now=now) for text in (since, until))
        if sample is not None and not 0 < sample <= 100:
            raise UsageError(f"a sample of {sample} percent is none", remedy="mirrorlake verify --sample 5")
        between = None if first is last is None else (first, last)
        self.tracker.warm_up()
        began_at = context.now()
        with context.board() as board, ThreadPoolExecutor(1, thread_name_prefix="verify") as pool:
            call = pool.submit(
                self._comparisons.compare,
                chosen,
                full=full,
                between=between,
                sample=sample,
                direct=direct,
                lost=lost,
                tell=board.tell,
            )
            while wait([call], timeout=DRAW_EVERY_S).not_done:
                board.tick()
            found = call.result()
        ended_at = context.now()
        for each, report in zip(chosen, found, strict=True):
            timed = verify.Timed(found=report, began_at=began_at, ended_at=ended_at)
            verify.track_verification(
                timed, each, context.config, tracker=self.tracker, lake=context.lake, now=context.now
            )
        self._verified |= {report.flow: (report, ended_at) for report in found}
        self._reports[found.verification] = tuple(found), began_at
        return found

    def duty(self) -> Duty:
        """Return the duty of a mirror that runs: prove what came since the last time; what differs is logged."""

        def do() -> None:
            for report in self._comparisons.compare(self._context.config.flows, waits=False, may_job=False):
                # What waits for a flow is its lag, which others tell.
                found = [one for one in report.differences if one.problem != "not_republished"]
                for one in found[:_MOST_LOGGED]:
                    log.error("verify.different flow=%s found=%s", report.flow, one)
                if found:
                    log.error("verify.different flow=%s differences=%d next=mirrorlake verify", report.flow, len(found))

        every_s = self._context.config.verify.every.total_seconds()
        # The streams need all cores for their start.
        return Duty(name="verify", every_s=every_s, first_s=min(every_s, _FIRST_VERIFY_S), do=do)

    def proof_report(self, verification: str) -> ProofReport:
        """Make the report of a verification (see `Mirror.proof_report`)."""
        reports, at = self._reports.get(verification, ((), None))
        return verify.proof_report(self._context.lake, verification, reports, at)
