"""One snapshot: where every position of a mirror stands at one moment, and since when records wait there.

Cheap on purpose: one request for metadata and two for offsets a broker of each source, one request a group, one tail read a
lane; the relay is asked for its newest batches, and for the oldest record that waits. Positions are read before the ends: lag may
be reported too large by what came in meanwhile, never too small.

Law H: nothing is written to any cluster.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, ClusterUnreachable, MirrorlakeError
from mirrorlake.kafka import list_partitions
from mirrorlake.lake import (
    OFFSET_MAP,
    LandedPositions,
    LastSamples,
    PositionKey,
    PositionState,
    Subject,
    SubjectSample,
    load_last_samples,
    prune_samples,
    write_samples,
)
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import SentPositions
from mirrorlake.offsets import load_offset_maps
from mirrorlake.republish import read_sent_positions
from mirrorlake.status.ages import TargetCommit, Waiting, find_unread
from mirrorlake.status.polling import PollRound, UnreachableClusters
from mirrorlake.status.sources import SourceReader
from mirrorlake.status.status import Status, grouped
from mirrorlake.status.verdict import HopKey, LagSample, age_ms

log = logging.getLogger(__name__)

# A complete sample bounds how far back a query reads, at the price of one row a position.
COMPLETE_EVERY = timedelta(hours=6)
# Every tenth snapshot forgets what the last ones found: recorded topics, ages, translated groups.
_FULL_READ_EVERY = 10
# If all topics of all groups are more positions than this, each group is read in full in one snapshot of ten, in turns.
_MAX_POSITIONS = 200_000


@dataclass(frozen=True, kw_only=True)
class PositionSnapshot:
    """All samples of one time, with relay positions by source, those of ledgers by flow, and errors by subject.

    `scope` is that of its sampler (see `scope_of`); `waiting` is the timestamp of the oldest record that waits at a position, None
    where none does; without it, not known.
    """

    observed_at: datetime
    looks: tuple[SubjectSample, ...]
    scope: str = ""
    landed: Mapping[str, LandedPositions] = field(default_factory=dict, repr=False)
    sent: Mapping[str, SentPositions] = field(default_factory=dict, repr=False)
    errors: Mapping[Subject, ClusterError] = field(default_factory=dict, repr=False)
    waiting: Mapping[PositionKey, datetime | None] = field(default_factory=dict, repr=False)

    @property
    def changed(self) -> int:
        """The count of changed positions."""
        return sum(sample.changed for sample in self.looks)

    @property
    def unanswered(self) -> tuple[SubjectSample, ...]:
        """The samples whose subject did not answer."""
        return tuple(sample for sample in self.looks if sample.error is not None)

    @cached_property
    def positions(self) -> dict[PositionKey, int]:
        """All sampled positions."""
        return {key: offset for sample in self.looks for key, offset in sample.positions.items()}

    def hops(self, flows: Iterable[FlowConfig]) -> Iterator[tuple[HopKey, LagSample]]:
        """Yield each hop of flows with its lag; of a source that did not answer, the end is not known."""
        positions, of_flow = self.positions, {sample.key: sample.positions for sample in self.looks}
        of_groups = [key for key in positions if key.kind == "group"]
        groups = grouped(of_groups, lambda key: (key.source, key.source_partition))
        for flow in flows:
            for key in of_flow.get(("flow", flow.name), {}):
                end_key = PositionKey(key.source, None, key.topic, key.generation, key.partition, "last_stable", None)
                end = positions.get(end_key)
                hops = [(key, key.kind, flow.target)]
                if key.kind == "republished":
                    hops.append((end_key._replace(kind="reached"), "landed", flow.source))
                    readers = groups.get((flow.source, key.source_partition), ()) if groups else ()
                    hops += [(group, "consumed", flow.source) for group in readers]
                place = key.topic, key.generation, key.partition
                for at, hop, cluster in hops:
                    if at in positions:
                        hop_key = HopKey(flow.name, flow.source, *place, hop, at.group_id, cluster)
                        yield hop_key, self._sample(at, positions[at], end)

    def _sample(self, key: PositionKey, position: int, end: int | None) -> LagSample:
        if end is None:
            return LagSample(self.observed_at, position)
        since = self.waiting.get(key)
        time_lag_ms = age_ms(since, self.observed_at) if key in self.waiting else None
        return LagSample(self.observed_at, position, end, max(0, end - position), since, time_lag_ms)

    def __str__(self) -> str:
        seen = sum(len(sample.positions) for sample in self.looks)
        lines = [f"positions: {seen:,} seen, {self.changed:,} changed"]
        return "\n".join(lines + [f"{sample.subject} {sample.name}: {sample.error}" for sample in self.unanswered])


def scope_of(flows: Iterable[FlowConfig]) -> str:
    """Return the scope of a sampler: another settings file on the same lake finds other positions, and what it lacks is not gone."""
    return hashlib.sha256("\n".join(sorted(flow.name for flow in flows)).encode()).hexdigest()[:16]


class Sampler:
    """Read the positions of one mirror again and again, and write what changed since the last snapshot.

    `flows` are read without any group; by default all flows of the settings in each snapshot, and groups.
    """

    def __init__(self, context: Context, flows: Sequence[FlowConfig] | None, unreachable: UnreachableClusters) -> None:
        self._context = context
        self._chosen = flows
        self._remembered: tuple[str, LastSamples] | None = None
        self._count = 0
        self._sources: dict[str, SourceReader] = {}
        self._listed: dict[str, Sequence[str]] = {}
        self._groups: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        self._consumed: dict[TargetCommit, dict[PositionKey, int]] = {}
        self._logged_errors: dict[Subject, str] = {}
        self._unreachable = unreachable

    def write(self, seen: PositionSnapshot, status: Status) -> PositionSnapshot:
        """Write what changed since the last snapshot, and return the snapshot with it.

        A cluster that did not answer is reported in `PositionSnapshot.unanswered`, in the table and in the log.
        """
        lake, at, scope = self._context.lake, seen.observed_at, seen.scope
        if self._remembered is None or self._remembered[0] != scope:
            lake.create_all(self._context.config.sources)
            self._remembered = scope, load_last_samples(lake, scope, {one.key for one in seen.looks})
        _, remembered = self._remembered

        verdicts = {(one.flow, row.topic, row.partition): row.verdict for one in status.flows for row in one.partitions}

        def finding(key: PositionKey) -> PositionState:
            waits = seen.waiting[key] is not None if key in seen.waiting else None
            verdict = verdicts.get((key.flow or "", key.topic, key.partition)) if key.kind == "republished" else None
            return PositionState(waits, seen.waiting.get(key), verdict)

        looks = [replace(one, findings={key: finding(key) for key in one.positions}) for one in seen.looks]
        samples = remembered.choose_rows(looks, at, complete_every=COMPLETE_EVERY)
        try:
            write_samples(lake, at, samples, scope=scope)
        except Exception:
            # The state of the table is unknown, so it is read again.
            self._remembered = None
            raise
        for sample in samples:
            self._log_unanswered(sample)
            remembered.record(sample, at)
        if any(sample.complete for sample in samples):
            prune_samples(lake, before=at - self._context.config.sampling.keep, now=at)
        return replace(seen, looks=samples)

    def read(self) -> PositionSnapshot:
        """Read all positions now; writes nothing."""
        context, round_ = self._context, PollRound()
        # A running mirror adopts new settings between two snapshots.
        flows = context.config.flows if self._chosen is None else self._chosen
        of_source = grouped(flows, lambda flow: flow.source)
        sources = {a: self._sources.setdefault(a, SourceReader(context, a)) for a in of_source}
        clusters = {*sources, *(flow.target for flow in flows)} - {*context.config.lake_clusters}

        def skip_cluster(alias: str, why: ClusterError) -> None:
            round_.skip([("cluster", alias), *(("flow", flow.name) for flow in flows if flow.target == alias)], why)

        for alias in clusters:
            if (why := self._unreachable.last_error(alias)) is not None:
                skip_cluster(alias, why)
        is_full = self._count % _FULL_READ_EVERY == 0
        round_.call(
            {("cluster", a): partial(sources[a].read_topics, of, is_full=is_full) for a, of in of_source.items()}
        )
        # After the first requests, because a cluster that has just become unreachable costs its time-out there.
        at = context.now()
        with_groups = clusters if self._chosen is None else ()
        positions = round_.call({("cluster", a): partial(self._read_groups, a, flows) for a in with_groups})
        for alias in round_.unreachable:
            skip_cluster(alias, round_.errors["cluster", alias])
        ledgers = round_.call({("flow", flow.name): partial(read_sent_positions, context, flow) for flow in flows})
        sent = {flow: of for (_, flow), of in ledgers.items()}
        landed = round_.call({("relay", a): source.read_landed for a, source in sources.items()})
        ends = round_.call({("cluster", a): source.read_ends for a, source in sources.items()})
        flow_positions = (sources[a].flow_positions(of_source[a], sent) for _, a in landed)
        for found in (ends, *flow_positions):
            for subject, several in found.items():
                positions.setdefault(subject, {}).update(several)
        for key, offset in self._read_consumed(flows, positions, round_).items():
            positions["flow", key.flow or ""][key] = offset
        for subject in positions.keys() & round_.errors.keys():
            positions[subject] = {}
        every = [item for several in positions.values() for item in several.items()]
        standing = grouped(every, lambda item: item[0].source)
        waiting: Waiting = {}
        for alias, source in sources.items():
            waiting |= source.find_waiting(dict(standing.get(alias, ())))
        samples = [
            SubjectSample(
                subject=subject,
                name=name,
                positions=positions.get((subject, name), {}),
                took_ms=int(took * 1000),
                error=error.cause if (error := round_.errors.get((subject, name))) else None,
            )
            for (subject, name), took in sorted(round_.seconds.items())
        ]
        self._count += 1
        for alias in round_.unreachable & clusters:
            self._unreachable.away[alias] = round_.errors["cluster", alias]
        return PositionSnapshot(
            observed_at=at,
            looks=tuple(samples),
            scope=scope_of(flows),
            landed={alias: relay for (_, alias), relay in landed.items()},
            sent=sent,
            errors=round_.errors,
            waiting=waiting,
        )

    # -- groups --------------------------------------------------------------------------------------------------------

    def _read_groups(self, alias: str, flows: Sequence[FlowConfig]) -> dict[PositionKey, int]:
        """Read the committed positions of groups on a cluster, of source topics and of remote ones."""
        remotes = {
            flow.remote_topic(topic)
            for flow in flows
            if flow.target == alias
            for topic in self._sources[flow.source].topics
            if flow.carries(topic)
        }
        partitions = dict.fromkeys(list_partitions(self._context.admin(alias).describe(remotes)), 1)
        if alias in self._sources:
            partitions |= self._sources[alias].partitions
        groups, selection = self._context.groups(alias), self._context.config.sampling.group_selection
        try:
            self._listed[alias] = [*groups.states()]
        except ClusterUnreachable:
            raise
        except ClusterError as error:
            # Who may not list groups may read the topics all the same; and what was listed before has not gone.
            log.info("sample.groups_not_listed cluster=%s why=%s", alias, error.cause)
        listed = self._listed.get(alias, ())
        names = [name for name in listed if selection.matches(name) and not name.startswith("mirrorlake.")]
        wants_all = len(names) * len(partitions) <= _MAX_POSITIONS
        asked: dict[str, Iterable[TopicPartition]] = {}
        for turn, name in enumerate(sorted(names)):
            known = self._groups.get((alias, name))
            is_due = (turn + self._count) % _FULL_READ_EVERY == 0
            asked[name] = partitions if wants_all or known is None or is_due else known.keys() & partitions.keys()
        unsure: dict[str, MirrorlakeError] = {}
        for name, committed in groups.committed_each(asked, unsure=unsure).items():
            self._groups[alias, name] = {tp: at.offset for tp, at in committed.items()}
        # A group that could not be read is where it was: it has neither read on nor gone.
        return {
            PositionKey(alias, None, tp.topic, partitions[tp], tp.partition, "group", name): at
            for name in asked
            for tp, at in self._groups.get((alias, name), {}).items()
            if tp in partitions
        }

    def _read_consumed(
        self, flows: Sequence[FlowConfig], positions: Mapping[Subject, Mapping[PositionKey, int]], round_: PollRound
    ) -> dict[PositionKey, int]:
        """Translate the positions of groups on targets to the sources, by the flows' maps.

        A group that rests before records that were sent stays where it is, and is not translated again.
        """
        found: dict[PositionKey, int] = {}
        # From time to time all are translated: a remote topic may have been made again.
        known, self._consumed = {} if self._count % _FULL_READ_EVERY == 0 else self._consumed, {}
        lake = self._context.lake
        if not lake.exists(lake.meta_location(OFFSET_MAP)):
            # Nothing was sent yet: what groups have read there is of another mirror.
            return {}
        for flow in flows:
            sent = {key.source_partition: at for key, at in positions.get(("flow", flow.name), {}).items()}
            remotes = {flow.remote_topic(topic) for topic in {source.topic for source in sent}}
            commits = [
                TargetCommit(flow.name, key.group_id or "", TopicPartition(key.topic, key.partition), offset)
                for key, offset in positions.get(("cluster", flow.target), {}).items()
                if key.kind == "group" and key.topic in remotes
            ]
            for one in commits:
                at = known.get(one, {})
                if at and all(offset < sent.get(key.source_partition, 0) for key, offset in at.items()):
                    self._consumed[one] = at
            fresh = [one for one in commits if one not in self._consumed]
            try:
                maps = load_offset_maps(self._context, [flow]) if fresh else None
            except ClusterError as error:
                # The target stopped answering meanwhile.
                round_.skip([("flow", flow.name)], error)
                continue
            self._consumed |= find_unread(maps, fresh, {flow.name: sent}) if maps is not None else {}
            for one in commits:
                for key, offset in self._consumed.get(one, {}).items():
                    found[key] = min(offset, found.get(key, offset))
        return found

    def _log_unanswered(self, sample: SubjectSample) -> None:
        # Without this an outage would be logged at every snapshot.
        error = sample.error or ""
        if error and self._logged_errors.get(sample.key) != error:
            # A flow's error is often its cluster's, which was logged.
            level = logging.INFO if error in self._logged_errors.values() else logging.WARNING
            log.log(level, "sample.unanswered %s=%s why=%s", sample.subject, sample.name, error)
        self._logged_errors[sample.key] = error
