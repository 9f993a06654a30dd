"""Sample the positions of a mirror, and build its lag and status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.lag.hanging_transactions import HANGS_MS, OpenTransaction, find_open_transactions
from mirrorlake.lag.judge import Retention
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.sampler import Sampler
from mirrorlake.lag.status import Status
from mirrorlake.lag.status_reader import Windows, read_status
from mirrorlake.lag.time_lag import age_ms
from mirrorlake.lag.unreachable import UnreachableClusters
from mirrorlake.model.flow import TopicPartition
from mirrorlake.offsets import load_offset_maps
from mirrorlake.tables import read_tables

_WINDOWS_AGE = timedelta(seconds=15)


class Monitor:
    """Sample, lag and status of one mirror; they share the memory of unreachable clusters."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # A snapshot does not wait again for a cluster that another one found unreachable.
        self._unreachable = UnreachableClusters()
        self._windows: dict[frozenset[str], tuple[datetime, Windows]] = {}

    def sampler(self, flows: Sequence[FlowConfig] | None = None) -> Sampler:
        """Build a sampler of all positions of the mirror, or of these flows without any group.

        Reuse it while it samples, because it remembers positions.
        """
        return Sampler(self._context, flows, unreachable=self._unreachable)

    def lag(self, flows: Sequence[FlowConfig], *, status: Callable[[], Status] | None = None) -> Lag:
        """Build the lag of these flows; verdicts use `status`, or else a sampler of their own."""
        context = self._context
        return Lag(
            context.lake,
            flows,
            look=lambda: self.sampler().read_positions(),
            runs=lambda names: load_offset_maps(
                context.lake, [flow for flow in flows if flow.name in names], context
            ).runs_text(),
            readers=context.reader,
            now=context.now,
            retention_of=Retention(context.config, admin=context.admin),
            status=status or (lambda: self._status(flows, self.sampler(flows))),
            paused=lambda: context.control().state(),
            every=context.config.sampling.every,
        )

    def status(self, flow: str | None = None) -> Status:
        return self.statuses(flow)()

    def statuses(self, flow: str | None = None) -> Callable[[], Status]:
        """Return a function for one thread that reads the status repeatedly, and follows the relays between two calls."""
        of: tuple[FlowConfig, ...] = ()
        sampler = self.sampler(of)

        def status() -> Status:
            nonlocal of, sampler
            if of != (chosen := self._context.chosen(flow)):
                of, sampler = chosen, self.sampler(chosen)
            return self._status(of, sampler)

        return status

    def _status(self, flows: Sequence[FlowConfig], sampler: Sampler) -> Status:
        context, look = self._context, sampler.read_positions()
        state = context.control().state()
        status = read_status(
            flows,
            look,
            lake=context.lake,
            target=context.admin,
            readers=context.reader,
            state=state,
            retention_of=Retention(context.config, admin=context.admin),
            windows=lambda: self._windows_of(flows),
            find_transactions=self.find_hanging_transactions,
        )
        # A table belongs to the mirror: the status of one flow lacks it.
        is_whole = tuple(flows) == tuple(context.config.flows)
        tables = read_tables(context, landed=look.landed, state=state).tables if is_whole else ()
        return replace(status, tables=tables)

    def find_hanging_transactions(
        self, alias: str, stable: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, OpenTransaction]:
        """Return the hanging transaction of each partition of a source that has one; `stable` are their last stable offsets."""
        context = self._context
        if context.config.cluster(alias).is_lake:
            return {}
        found = find_open_transactions(context.admin(alias), partial(context.reader, committed=False), stable)
        return {tp: one for tp, one in found.items() if age_ms(one.since_ms, context.now()) >= HANGS_MS}

    def _windows_of(self, flows: Sequence[FlowConfig]) -> Windows:
        """Return the newest samples, cached for some seconds because samples are further apart.

        A view of some flows takes the samples of a view of more flows, so that both judge the same.
        """
        names, now = frozenset(flow.name for flow in flows), self._context.now()
        for known, (read_at, windows) in list(self._windows.items()):
            if names <= known and timedelta() <= now - read_at < _WINDOWS_AGE:
                return windows
        windows = self.lag(flows).windows()
        self._windows[names] = now, windows
        return windows
