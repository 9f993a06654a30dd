"""Verify flows of a mirror at a fixed cut, and store the proofs; repeat it if records leave a relay meanwhile."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime
from functools import cached_property
from typing import Any

from mirrorlake.config import when
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import StoreError
from mirrorlake.lake import ProofCache, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.verify import VerifyReport, VerifyReports
from mirrorlake.offsets import with_redrives
from mirrorlake.progress import DRAW_INTERVAL_S, ProgressCallback, ignore_progress
from mirrorlake.rules import View, view_of_flow
from mirrorlake.runtime import PeriodicTask
from mirrorlake.verify.cut import take_cut
from mirrorlake.verify.report import ProofReport, proof_report
from mirrorlake.verify.scope import Scope, read_time_ranges
from mirrorlake.verify.source_end import SourceEnd
from mirrorlake.verify.target_end import TargetEnd
from mirrorlake.verify.tracking import track_verification, verification_run
from mirrorlake.verify.verify import Verification, Verifier

_FIRST_VERIFY_S = 120.0
_MAX_LOGGED = 10
# A retention pass and erasures, one a key, may follow one another.
_ATTEMPTS = 10

log = logging.getLogger(__name__)


class Verifications:
    """Compare flows of a mirror, and remember the reports."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reports: dict[str, tuple[tuple[VerifyReport, ...], datetime]] = {}

    @cached_property
    def _proofs(self) -> ProofCache:
        return ProofCache(self._context.lake)

    def verify(
        self,
        flow: str | None,
        *,
        full: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        lost: Collection[str] = (),
    ) -> VerifyReports:
        """Compare source, relay and target of each flow at a fixed cut (see `Mirror.verify`).

        Sources in `lost` are not asked: of their flows, relay and target are compared.
        """
        context = self._context
        chosen = context.chosen(flow)
        now = context.now()
        first, last = (None if text is None else when(text, now=now) for text in (since, until))
        within = None if first is last is None else (first, last)
        began_at = context.now()
        how = {"full": full, "within": within, "lost": lost}
        with context.board() as board, ThreadPoolExecutor(1, thread_name_prefix="verify") as pool:
            call = pool.submit(self._compare, chosen, **how, tell=board.tell)
            while wait([call], timeout=DRAW_INTERVAL_S).not_done:
                board.tick()
            found = call.result()
        times = {"began_at": began_at, "ended_at": context.now()}
        for each, report in zip(chosen, found, strict=True):
            run = verification_run(report, each, context.config, **times)
            # A store that failed once is not waited for again.
            if track_verification(context, run) is None:
                break
        self._reports[found.verification] = tuple(found), began_at
        return found

    def report(self, verification: str) -> ProofReport:
        """Make the report of a verification (see `Mirror.proof_report`)."""
        reports, at = self._reports.get(verification, ((), None))
        return proof_report(self._context.lake, verification, reports, at)

    def duty(self) -> PeriodicTask:
        """Return the task of a running mirror that proves new records and logs differences."""

        def do() -> None:
            for report in self._compare(self._context.config.flows, waits=False):
                # Records that wait are lag, which is reported elsewhere.
                found = [one for one in report.differences if one.problem != "not_republished"]
                for one in found[:_MAX_LOGGED]:
                    log.error("verify.different flow=%s found=%s", report.flow, one)
                if found:
                    log.error("verify.different flow=%s differences=%d next=mirrorlake verify", report.flow, len(found))

        every_s = self._context.config.verify.every.total_seconds()
        # Streams need all cores while they start.
        return PeriodicTask(name="verify", interval_s=every_s, first_delay_s=min(every_s, _FIRST_VERIFY_S), run=do)

    def _compare(self, chosen: Sequence[FlowConfig], **how: Any) -> VerifyReports:
        """Compare flows at a fixed cut, and store the proofs; `how` are the options of `_compare_once`.

        The comparison is repeated if an erasure or retention removes records from a relay meanwhile.
        """
        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1
            before = self._read_removals()
            verification, at = uuid.uuid4().hex, self._context.now()
            try:
                found = self._compare_once(chosen, **how)
            except (FileNotFoundError, StoreError):
                if is_last or not self._has_left(before):
                    raise
            else:
                if is_last or all(one.equal for one in found.reports) or not self._has_left(before):
                    break
            log.info("verify.again why=%s", "records left a relay meanwhile")
        self._proofs.write(found.proofs, verification=verification, at=at)
        return VerifyReports(found.reports, verification=verification)

    def _read_removals(self) -> frozenset[tuple[str, SourcePartition, int | None]]:
        acts = (one for alias in self._context.config.sources for one in removed_from(self._context.lake, alias))
        return frozenset((one.removal, one.source, one.relay_version) for one in acts)

    def _has_left(self, before: Collection[tuple[str, SourcePartition, int | None]]) -> bool:
        """Return whether records have left a relay since `before`, or are about to."""
        now = self._read_removals()
        return now != before or any(version is None for *_, version in now)

    def _compare_once(
        self,
        chosen: Sequence[FlowConfig],
        *,
        full: bool = False,
        within: tuple[datetime | None, datetime | None] | None = None,
        lost: Collection[str] = (),
        waits: bool = True,
        tell: ProgressCallback = ignore_progress,
    ) -> Verification:
        context = self._context
        targets = {flow.target for flow in chosen}
        into = {target: with_redrives(context, context.config.flows_to(target)) for target in targets}
        aliases = {each.source for flows in into.values() for each in flows}
        context.lake.create_all(aliases)
        cuts = {target: take_cut(context, flows, lost=lost) for target, flows in into.items()}
        return Verifier(
            context,
            chosen,
            proofs=self._proofs,
            # The relays are read after the cuts.
            sources={alias: SourceEnd(context, alias, is_lost=alias in lost) for alias in sorted(aliases)},
            targets={alias: TargetEnd.at(cut, alias, context) for alias, cut in cuts.items()},
            views=self._views(),
            scope=Scope(
                full=full,
                between=None if within is None else read_time_ranges(context.lake, aliases, *within),
            ),
            waits=waits,
            tell=tell,
        ).run()

    def _views(self) -> dict[str, View]:
        found: dict[str, View] = {}
        for flow in self._context.config.flows:
            if (view := view_of_flow(flow)) is not None:
                found |= {flow.name: view, flow.redrive_name: view}
        return found
