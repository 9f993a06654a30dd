"""Sample every position of a mirror at one time, and store the changes since the last sample.

Cheap on purpose: one request for metadata and two for offsets a broker of each source, one request a group, one tail read a
lane; the relay is asked for its newest batches only. Positions are read before the ends: lag may be reported too large by
what came in meanwhile, never too small.

Law H: nothing is written to any cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.lag.group_positions import FULL_READ_EVERY, GroupPositions
from mirrorlake.lag.snapshot import PositionSnapshot
from mirrorlake.lag.source_reader import SourceReader
from mirrorlake.lag.unreachable import PollRound, UnreachableClusters
from mirrorlake.lake import (
    LastSamples,
    PositionKey,
    Subject,
    SubjectSample,
    load_last_samples,
    prune_samples,
    write_samples,
)
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import merged_positions
from mirrorlake.republish import read_last_records

log = logging.getLogger(__name__)

# A complete sample bounds how far back a query reads, at the price of one row a position.
COMPLETE_EVERY = timedelta(hours=6)


class Sampler:
    """Sample the positions of one mirror, and remember them, so that only changes are written.

    `flows` are sampled without any group; by default all flows of the settings at each sample, and groups.
    """

    def __init__(
        self,
        context: Context,
        flows: Sequence[FlowConfig] | None = None,
        *,
        now: Callable[[], datetime] | None = None,
        unreachable: UnreachableClusters | None = None,
    ) -> None:
        self._context = context
        self._chosen = flows
        self._now = now or context.now
        self._remembered: LastSamples | None = None
        self._snapshots = 0
        self._sources: dict[str, SourceReader] = {}
        self._groups = GroupPositions(context)
        self._logged_errors: dict[Subject, str] = {}
        self._unreachable = unreachable or UnreachableClusters()

    def once(self) -> PositionSnapshot:
        """Sample once, write the changes, and return the snapshot.

        A cluster that does not answer is reported in `PositionSnapshot.unanswered`, in the table and in the log; the others are
        sampled all the same.
        """
        if self._remembered is None:
            self._context.lake.create_all(self._context.config.sources)
            self._remembered = load_last_samples(self._context.lake)
        remembered, seen = self._remembered, self.read_positions()
        at = seen.observed_at
        looks = remembered.choose_rows(seen.looks, at, complete_every=COMPLETE_EVERY)
        try:
            write_samples(self._context.lake, at, looks)
        except Exception:
            # The state of the table is unknown, so it is read again.
            self._remembered = None
            raise
        for look in looks:
            self._log_unanswered(look)
            remembered.record(look, at)
        if any(look.complete for look in looks):
            prune_samples(self._context.lake, before=at - self._context.config.sampling.keep, now=at)
        return replace(seen, looks=looks)

    def read_positions(self) -> PositionSnapshot:
        """Read all positions now; writes nothing."""
        context, round_ = self._context, PollRound()
        # A running mirror adopts new settings between two samples.
        flows = context.config.flows if self._chosen is None else self._chosen
        sources = self._readers_of(flows)
        clusters = {*sources, *(flow.target for flow in flows)} - {*context.config.lake_clusters}

        def skip_cluster(alias: str, why: ClusterError) -> None:
            round_.skip([("cluster", alias), *(("flow", flow.name) for flow in flows if flow.target == alias)], why)

        for alias in clusters:
            if (why := self._unreachable.last_error(alias)) is not None:
                skip_cluster(alias, why)
        is_full = self._snapshots % FULL_READ_EVERY == 0
        round_.call({("cluster", a): partial(source.read_topics, is_full=is_full) for a, source in sources.items()})
        # After the first requests, because a cluster that has just become unreachable costs its time-out there.
        at = self._now()
        for source in sources.values():
            source.use_recorded_topics()
        with_groups = clusters if self._chosen is None else ()
        positions = round_.call({("cluster", a): partial(self._read_groups, a, flows) for a in with_groups})
        for alias in round_.unreachable:
            skip_cluster(alias, round_.errors["cluster", alias])
        lanes = round_.call({("flow", flow.name): partial(read_last_records, context, flow) for flow in flows})
        names = {flow.name: flow.remote_topic for flow in flows}
        sent = {subject: merged_positions(last, names[subject[1]]).positions for subject, last in lanes.items()}
        landed = round_.call({("relay", a): source.read_landed for a, source in sources.items()})
        ends = round_.call({("cluster", a): source.read_ends for a, source in sources.items()})
        flow_positions = (sources[a].flow_positions(relay, to, sent) for (_, a), (relay, to) in landed.items())
        for found in (ends, *flow_positions):
            for subject, several in found.items():
                positions.setdefault(subject, {}).update(several)
        looks = [
            SubjectSample(
                subject=subject,
                name=name,
                positions={} if (subject, name) in round_.errors else positions.get((subject, name), {}),
                took_ms=int(took * 1000),
                error=error.cause if (error := round_.errors.get((subject, name))) else None,
            )
            for (subject, name), took in sorted(round_.seconds.items())
        ]
        self._snapshots += 1
        for alias in round_.unreachable & clusters:
            ask = context.admin(alias).broker_count
            self._unreachable.record(alias, round_.errors["cluster", alias], ask=ask)
        return PositionSnapshot(
            observed_at=at,
            looks=tuple(looks),
            landed={alias: relay for (_, alias), (relay, _) in landed.items()},
            lanes={flow: last for (_, flow), last in lanes.items()},
            errors=round_.errors,
        )

    def _readers_of(self, flows: Sequence[FlowConfig]) -> dict[str, SourceReader]:
        found = {}
        for alias in dict.fromkeys(flow.source for flow in flows):
            found[alias] = self._sources.setdefault(alias, SourceReader(self._context, alias))
            found[alias].flows = [flow for flow in flows if flow.source == alias]
        return found

    def _read_groups(self, alias: str, flows: Sequence[FlowConfig]) -> dict[PositionKey, int]:
        remote = {
            flow.remote_topic(name)
            for flow in flows
            if flow.target == alias
            for name in self._sources[flow.source].topics
            if flow.carries(name)
        }
        partitions = {
            TopicPartition(name, partition): 1
            for name, state in self._context.admin(alias).describe(remote).items()
            for partition in range(state.partitions)
        }
        if alias in self._sources:
            partitions |= self._sources[alias].partitions
        return self._groups.read(alias, partitions, number=self._snapshots)

    def _log_unanswered(self, look: SubjectSample) -> None:
        # Without this an outage would be logged at every sample.
        error = look.error or ""
        if error and self._logged_errors.get(look.key) != error:
            # A flow's error is often its cluster's, which was logged.
            level = logging.INFO if error in self._logged_errors.values() else logging.WARNING
            log.log(level, "sample.unanswered %s=%s why=%s", look.subject, look.name, error)
        self._logged_errors[look.key] = error
