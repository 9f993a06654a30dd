"""Ask a mirror where it stands, and prove it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mirrorlake import doctor, replay, tracking, verify
from mirrorlake.errors import UsageError
from mirrorlake.lag import Lag, Monitor, Report, Status
from mirrorlake.mirror.calls.core import CoreCalls
from mirrorlake.mirror.streams import continuous_sync
from mirrorlake.model.verify import VerifyReports
from mirrorlake.topics import History

if TYPE_CHECKING:
    import pandas as pd

    from mirrorlake.doctor import Findings
    from mirrorlake.tracking import Tracker
    from mirrorlake.verify import ProofReport, Verifications


class CheckCalls(CoreCalls):
    """Tell where a mirror stands, and prove it."""

    def status(self, flow: str | None = None) -> Status:
        """Show where each partition of each flow stands; a flow whose source or target does not answer is UNKNOWN.

        Raises:
            StoreError: the lake failed.
        """
        return self._context.shared(Monitor).status(flow)

    @property
    def _verifications(self) -> Verifications:
        return self._context.shared(verify.Verifications)

    def verify(
        self,
        flow: str | None = None,
        *,
        full: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        sample: float | None = None,
        direct: bool = False,
    ) -> VerifyReports:
        """Compare source, relay and target of each flow at a fixed cut, by count and by content.

        What an earlier verification proved is not read again. Flows may go on running: what they land and republish meanwhile
        is beyond the cut and not compared.

        Args:
            flow: compare this one only; `replay.<name>` and `restore.<name>`, too, always whole, with the relay alone.
            full: compare what is proven, too: a record that changed after its proof is found by this alone.
            since: records with a timestamp from this time on, as `"2026-11-22 03:30"` (UTC) or `"-2h"`; None from the first.
            until: records with a timestamp before this time; None to the last.
            sample: percent of the records, chosen by chance; what a sample finds equal does not count as proven.
            direct: compare source and target without the relay, wherever the source still holds the records. What has left
                the relay is compared so anyway.

        Raises:
            UsageError: a time or the sample is none.
            ClusterError: a cluster does not answer.

        Example:
            >>> mirror.verify(full=True, sample=1).equal  # doctest: +SKIP
            True
        """
        if flow is not None and replay.is_replay(self.config, flow):
            if since is not None or until is not None or sample is not None or direct:
                raise UsageError(f"{flow} is compared whole", remedy=f"mirrorlake verify --flow {flow}", flow=flow)
            return replay.verify_replay(self._context, flow)
        return self._verifications.verify(flow, full=full, since=since, until=until, sample=sample, direct=direct)

    def proof_report(self, verification: str) -> ProofReport:
        """Make a report of one verification to be signed off: ranges, digests, topic ids and table versions, with a fingerprint.

        It is made of the table `proofs`, so it can be made again later; counts and differences are in it where this object
        made the verification.

        Raises:
            UsageError: there was no such verification, or it found nothing new to prove and was another `Mirror`'s.

        Example:
            >>> mirror.proof_report(mirror.verify(full=True).verification).write("proof.html")  # doctest: +SKIP
        """
        return self._verifications.report(verification)

    def doctor(self, *, only: Collection[str] = (), skip: Collection[str] = ()) -> Findings:
        """Look at every layer the mirror stands on: settings, this machine, clusters, lake and flows; changes nothing.

        Args:
            only: run these checks of docs/doctor.md; `kafka` stands for all that begin so.
            skip: leave these out.

        Raises:
            UsageError: a name is that of no check.

        Example:
            >>> mirror.doctor(skip=["disk.free"]).bad  # doctest: +SKIP
            []
        """
        return doctor.examine(self._context, only=only, skip=skip)

    @property
    def lag(self) -> Lag:
        """The lag of each hop of each flow, now and over time, in offsets and in time (see `Lag`)."""
        return self._context.shared(Monitor).lag(self.config.flows)

    def lag_of(self, flow: str) -> Lag:
        """Return the lag of each hop of a flow (see `Lag`)."""
        return self[flow].lag

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo` over some days; on a path they last as long as the session.

        Example:
            >>> mirror.create_views(days=30)  # doctest: +SKIP
            >>> spark.sql("SELECT * FROM lag WHERE hop = 'republished' ORDER BY observed_at DESC")  # doctest: +SKIP
        """
        return self.lag.create_views(days=days)

    def report(
        self, *, since: str | timedelta | datetime = "24h", flow: str | None = None, verify: bool = False
    ) -> Report:
        """Report on lag, latency, RPO and verdicts since a time; `write` makes a file of it.

        It holds the last verification of this `Mirror`, if any; `verify` compares source, relay and target first.

        Raises:
            UsageError: the settings have no such flow, or `since` is not a time.
            ClusterError, StoreError: with `verify`, a cluster does not answer; the lake failed.

        Example:
            >>> mirror.report(since="7d", verify=True).write("report.html")  # doctest: +SKIP
        """
        context, flows = self._context, self._context.chosen(flow)
        if verify:
            self.verify(flow)
        known = self._verifications.newest(flows)
        return context.shared(Monitor).report(flows, since=since, known=known)

    @property
    def history(self) -> History:
        """The history of the clusters, which also plans the way back to an earlier state."""
        context = self._context

        def look() -> None:
            context.lake.create_all(context.config.sources)
            for flow in context.config.flows:
                continuous_sync(context, flow).look()

        targets = context.config.targets
        return History(context.lake, targets=targets, look=look, audit=context.audit(), now=context.now)

    @property
    def tracking(self) -> Tracker:
        """What logs verifications as MLflow runs: how many were `logged`, and how many `failures` were passed over."""
        return self._context.tracker

    def runs(self, *, kind: str | None = None, flow: str | None = None, newest: int = 100) -> pd.DataFrame:
        """Return logged runs as a pandas frame, newest first: figures in columns, parameters in `param.*`.

        Raises:
            UsageError: runs are not logged; says why.
            StoreError: the tracking store cannot be read.

        Example:
            >>> mirror.runs(flow="east->central")[["began_at", "equal", "records_per_second"]]  # doctest: +SKIP
        """
        return tracking.runs_frame(self._context.tracker.runs(kind=kind, flow=flow, newest=newest))
