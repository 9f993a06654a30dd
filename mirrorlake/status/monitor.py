"""One poll of a mirror: read, judge, write; status, lag, metrics and the lines of a run show what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.status.history import Lag, windows_of
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.judging import SnapshotJudge
from mirrorlake.status.polling import UnreachableClusters
from mirrorlake.status.snapshot import PositionSnapshot, Sampler
from mirrorlake.status.status import Status
from mirrorlake.status.verdict import WINDOW_SAMPLES, HopKey, LagSample


class Monitor:
    """The snapshots of one mirror; all of a process share the memory of unreachable clusters."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # A snapshot does not wait again for a cluster that another one found unreachable.
        self._unreachable = UnreachableClusters(context)
        self._newest: tuple[datetime, LagVerdict] | None = None

    # -- the poll of a running mirror --------------------------------------------------------------------------------------

    def sample(self) -> PositionSnapshot:
        """Read all flows and groups once, judge, write what changed, and return the snapshot."""
        return self.make_poll()()

    def make_poll(self) -> Callable[[], PositionSnapshot]:
        """Return `sample` for one thread that calls it again and again: it remembers positions and the last snapshots."""
        sampler = self._sampler()
        recent: list[dict[HopKey, LagSample]] | None = None

        def poll() -> PositionSnapshot:
            nonlocal recent
            flows = self._context.config.flows
            snapshot = sampler.read()
            samples = dict(snapshot.hops(flows))
            asked = None if snapshot.errors else samples
            before = self.lag().recent(asked) if recent is None else recent
            verdict = SnapshotJudge(self._context, flows, snapshot, samples, lambda of: windows_of(before, of)).judge()
            recent = [*before, samples][1 - WINDOW_SAMPLES :]
            self._newest = snapshot.observed_at, verdict
            written = sampler.write(snapshot, verdict.status)
            if (served := self._context.metrics) is not None:
                # A verdict of a minute ago would call a flow paused that was resumed since, and waits for nothing.
                served.show(verdict)
            return written

        return poll

    def make_newest_reader(self, flow: str | None = None) -> Callable[[], LagVerdict]:
        """Return a function for one thread that gives the verdict of this process's poll, or takes a snapshot where none is young."""
        judge = self._make_judge(flow)

        def newest() -> LagVerdict:
            known, every = self._newest, self._context.config.sampling.every
            # Half an interval of patience for a poll that is late.
            if flow is None and known is not None and self._context.now() - known[0] <= 1.5 * every:
                return known[1]
            return judge()

        return newest

    # -- snapshots of commands -------------------------------------------------------------------------------------------------

    def status(self, flow: str | None = None) -> Status:
        """Read flows, and return how they stand; writes nothing."""
        # Of landing it shows positions and what expires, which need no earlier sample.
        return self._read_and_judge(flow, sent_only=True).status

    def lag(self, flow: str | None = None) -> Lag:
        """Return the lag of flows; each answer about the present reads all positions."""
        flows, judge = self._context.chosen(flow), self._make_judge(flow)
        return Lag(self._context, flows, read=lambda: self._sampler().read(), judge=judge)

    # -- pieces --------------------------------------------------------------------------------------------------------------

    def _sampler(self, flows: Sequence[FlowConfig] | None = None) -> Sampler:
        return Sampler(self._context, flows, self._unreachable)

    def _make_judge(self, flow: str | None) -> Callable[[], LagVerdict]:
        sampler = self._sampler()
        return lambda: self._read_and_judge(flow, sampler)

    def _read_and_judge(
        self, flow: str | None, sampler: Sampler | None = None, *, sent_only: bool = False
    ) -> LagVerdict:
        # Before the read: a running mirror may adopt other flows meanwhile, of which nothing was read.
        flows, recent = self._context.chosen(flow), partial(self.lag(flow).recent, sent_only=sent_only)
        snapshot = (sampler or self._sampler(flows)).read()
        samples = dict(snapshot.hops(flows))
        return SnapshotJudge(self._context, flows, snapshot, samples, lambda of: windows_of(recent(of))).judge()
