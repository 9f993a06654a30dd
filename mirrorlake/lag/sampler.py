"""Sample every position of a mirror at one time, and store the changes since the last sample.

Cheap on purpose: one request for metadata and two for offsets a broker of each source, one request a group, one tail read a
lane; the relay is asked for its newest batches only. Positions are read before the ends: lag may be reported too large by
what came in meanwhile, never too small.

Law H: nothing is written to any cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache, partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import describe_with_leaders, format_partitions
from mirrorlake.lag.group_positions import FULL_READ_EVERY, GroupPositions
from mirrorlake.lag.snapshot import PositionSnapshot
from mirrorlake.lag.unreachable import PollRound, UnreachableClusters
from mirrorlake.lake import (
    METADATA,
    KnownTopic,
    LandedPositions,
    LastSamples,
    PositionKey,
    SourceTopics,
    Subject,
    SubjectSample,
    erased_from,
    landed_and_republished,
    landed_positions,
    left_before,
    load_last_samples,
    next_generation,
    prune_samples,
    read_landing_positions,
    update_landed_positions,
    write_samples,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.removed import Removed, past_removed
from mirrorlake.republish import merged_positions, read_last_records

log = logging.getLogger(__name__)

# A complete sample bounds how far back a query reads, at the price of one row a position.
COMPLETE_EVERY = timedelta(hours=6)


class Sampler:
    """Sample the positions of one mirror, and remember them, so that only changes are written.

    Args:
        context: of the mirror.
        flows: sample these and no group; by default all flows of the settings at each sample, and groups.
        now: the clock, in UTC, where it is not that of the context.
        unreachable: the unreachable clusters that other samplers know.

    Example:
        >>> sample = mirror.sample(once=True)  # doctest: +SKIP
        >>> sample.unanswered  # doctest: +SKIP
        ()
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
        self._lake = context.lake
        self._chosen = flows
        self._flows: Sequence[FlowConfig] = ()
        self._clusters: Collection[str] = ()
        self._now = now or context.now
        self._remembered: LastSamples | None = None
        self._snapshots = 0
        self._current_topics: dict[str, dict[str, KnownTopic]] = {}
        self._logged_leaderless: dict[str, str] = {}
        self._topics: dict[str, SourceTopics] = {}
        self._unexpected: dict[str, set[str]] = {}
        self._landed: dict[str, LandedPositions] = {}
        self._ends: dict[str, dict[TopicPartition, int]] = {}
        self._groups = GroupPositions(context)
        self._logged_errors: dict[Subject, str] = {}
        self._unreachable = unreachable or UnreachableClusters()

    def once(self) -> PositionSnapshot:
        """Sample once, write the changes, and return the snapshot.

        A cluster that does not answer is reported in `PositionSnapshot.unanswered`, in the table and in the log; the others are
        sampled all the same.

        Raises:
            StoreError: the lake failed.
        """
        if self._remembered is None:
            self._lake.create_all(self._context.config.sources)
            self._remembered = load_last_samples(self._lake)
        remembered, seen = self._remembered, self.read_positions()
        at = seen.observed_at
        looks = remembered.choose_rows(seen.looks, at, complete_every=COMPLETE_EVERY)
        try:
            write_samples(self._lake, at, looks)
        except Exception:
            # The state of the table is unknown, so it is read again.
            self._remembered = None
            raise
        for look in looks:
            self._log_unanswered(look)
            remembered.record(look, at)
        if any(look.complete for look in looks):
            prune_samples(self._lake, before=at - self._context.config.sampling.keep, now=at)
        return replace(seen, looks=looks)

    def read_positions(self) -> PositionSnapshot:
        """Read all positions now; writes nothing."""
        context, round_ = self._context, PollRound()
        # A running mirror adopts new settings between two samples.
        flows = self._flows = context.config.flows if self._chosen is None else self._chosen
        sources = list(dict.fromkeys(flow.source for flow in flows))
        self._clusters = {*sources, *(flow.target for flow in flows)} - {*context.config.lake_clusters}
        for alias in self._clusters:
            if (why := self._unreachable.last_error(alias)) is not None:
                self._skip_cluster(round_, alias, why)
        found = round_.call({("cluster", a): partial(self._read_topics, a) for a in sources})
        # After the first requests, because a cluster that has just become unreachable costs its time-out there.
        at = self._now()
        for (_, alias), topics in found.items():
            self._current_topics[alias] = topics
        for alias in set(sources) - self._current_topics.keys():
            # The source has not answered this sampler yet, so the lake's topics are used.
            self._current_topics[alias] = dict(self._read_recorded_topics(alias))
        with_groups = self._clusters if self._chosen is None else ()
        held = round_.call({("cluster", a): partial(self._read_group_positions, a) for a in with_groups})
        for alias in round_.unreachable:
            self._skip_cluster(round_, alias, round_.errors["cluster", alias])
        lanes = round_.call({("flow", flow.name): partial(read_last_records, context, flow) for flow in flows})
        sent = {subject: merged_positions(last) for subject, last in lanes.items()}
        landed = round_.call({("relay", a): partial(self._read_landed, a) for a in sources})
        ends = round_.call({("cluster", a): partial(self._read_ends, a) for a in sources})
        positions: dict[Subject, dict[PositionKey, int]] = {subject: {} for subject in round_.seconds}
        for subject, groups in held.items():
            positions[subject] |= groups
        for (_, alias), (first, last) in ends.items():
            self._ends[alias] = last
            for kind, offsets in (("earliest", first), ("last_stable", last)):
                for tp, offset in offsets.items():
                    topic = self._current_topics[alias][tp.topic]
                    key = PositionKey(
                        alias, None, tp.topic, topic.generation_of(tp.partition), tp.partition, kind, None
                    )
                    positions["cluster", alias][key] = offset
        for (_, alias), (relay, seen) in landed.items():
            self._add_flow_positions(alias, relay, seen, sent, positions)
        looks = [
            SubjectSample(
                subject=subject,
                name=name,
                positions={} if (subject, name) in round_.errors else positions[subject, name],
                took_ms=int(took * 1000),
                error=error.cause if (error := round_.errors.get((subject, name))) else None,
            )
            for (subject, name), took in sorted(round_.seconds.items())
        ]
        self._snapshots += 1
        for alias in round_.unreachable:
            if alias in self._clusters:
                ask = context.admin(alias).broker_count
                self._unreachable.record(alias, round_.errors["cluster", alias], ask=ask)
        return PositionSnapshot(
            observed_at=at,
            looks=tuple(looks),
            landed={alias: relay for (_, alias), (relay, _) in landed.items()},
            lanes={flow: last for (_, flow), last in lanes.items()},
            errors=round_.errors,
        )

    def _add_flow_positions(
        self,
        alias: str,
        relay: LandedPositions,
        seen: Mapping[SourcePartition, int],
        sent: Mapping[Subject, Mapping[SourcePartition, int]],
        positions: dict[Subject, dict[PositionKey, int]],
    ) -> None:
        """Add the landed and republished positions of a source's partitions."""
        living = self._current_topics.get(alias, {})
        ends = self._ends.get(alias, {})
        flows = [(flow, sent["flow", flow.name]) for flow in self._flows_from(alias) if ("flow", flow.name) in sent]

        @lru_cache
        def gone() -> tuple[Mapping[SourcePartition, int], Sequence[Removed]]:
            return left_before(self._lake, alias), erased_from(self._lake, alias)

        def waits_from(source: SourcePartition, position: int, holds: int) -> int:
            """Skip records that left the relay before the flow sent them, because it does not wait for them."""
            if position >= holds:
                return position
            left, erased = gone()
            return past_removed(left.get(source, 0), erased, source, position)

        def put(subject: Subject, flow: str | None, source: SourcePartition, kind: str, offset: int) -> None:
            key = PositionKey(alias, flow, source.topic, source.generation, source.partition, kind, None)
            positions.setdefault(subject, {})[key] = offset

        for name, topic in living.items():
            carrying = [(flow, done) for flow, done in flows if flow.carries(name)]
            for partition in range(topic.partitions):
                source = SourcePartition(name, topic.generation_of(partition), partition)
                tp, starts_at = TopicPartition(name, partition), topic.starts_at(partition)
                holds = relay.reached.get(source)
                # A generation that landing has not seen has no id yet, and landing's positions are of another one.
                read = seen.get(source, 0) if topic.topic_id else 0
                place = partial(landed_and_republished, holds=holds, seen=read, end=ends.get(tp, holds or 0))
                put(("relay", alias), None, source, "reached", place(sent=0)[0])
                for flow, done in carrying:
                    sent_to = waits_from(source, done.get(source, starts_at), holds or 0)
                    offset = place(sent=sent_to)[1]
                    put(("flow", flow.name), flow.name, source, "republished", offset)
        # An earlier generation of a topic is sampled until all flows have sent it.
        for source, holds in relay.reached.items():
            life = living.get(source.topic)
            if life is not None and source.generation >= life.generation_of(source.partition):
                continue
            waiting = [
                (flow, waits_from(source, done.get(source, 0), holds))
                for flow, done in flows
                if flow.carries(source.topic)
            ]
            if any(offset < holds for _, offset in waiting):
                put(("relay", alias), None, source, "reached", holds)
                put(("cluster", alias), None, source, "last_stable", holds)
                for flow, offset in waiting:
                    put(("flow", flow.name), flow.name, source, "republished", offset)

    def _read_topics(self, alias: str) -> dict[str, KnownTopic]:
        source, flows = self._context.source(alias), self._flows_from(alias)
        states = source.describe(name for name in source.topic_names() if any(flow.carries(name) for flow in flows))
        topics = self._topics.setdefault(alias, SourceTopics(self._lake, alias))

        def unexpected() -> set[str]:
            known, seen = topics.known, self._landed.get(alias, LandedPositions({}, {})).reached
            newer = (s for s in seen if s.topic in known and s.generation > known[s.topic].generation_of(s.partition))
            return {s.topic for s in newer} | {
                n for n, state in states.items() if n not in known or known[n].topic_id != state.topic_id
            }

        # A topic that nobody lands stays unknown, so it must not cause a read at each sample.
        if (now := unexpected()) and (now != self._unexpected.get(alias) or self._snapshots % FULL_READ_EVERY == 0):
            topics.known = self._read_recorded_topics(alias)
            self._unexpected[alias] = unexpected()
        return {
            name: replace(next_generation(topics.known.get(name), state), partitions=state.partitions)
            for name, state in states.items()
        }

    def _read_recorded_topics(self, alias: str) -> dict[str, KnownTopic]:
        if not self._lake.exists(self._lake.meta_location(METADATA)):
            return {}
        return SourceTopics(self._lake, alias).load()

    def _partitions(self, alias: str) -> dict[TopicPartition, int]:
        """Return the partitions of a cluster whose group positions are sampled, with generations: source and remote topics."""
        remote = {
            flow.remote_topic(name)
            for flow in self._flows
            if flow.target == alias
            for name in self._current_topics.get(flow.source, {})
            if flow.carries(name)
        }
        found = {
            TopicPartition(name, partition): 1
            for name, state in self._context.admin(alias).describe(remote).items()
            for partition in range(state.partitions)
        }
        return found | {
            TopicPartition(name, partition): topic.generation_of(partition)
            for name, topic in self._current_topics.get(alias, {}).items()
            for partition in range(topic.partitions)
        }

    def _read_group_positions(self, alias: str) -> dict[PositionKey, int]:
        return self._groups.read(alias, self._partitions(alias), number=self._snapshots)

    def _read_landed(self, alias: str) -> tuple[LandedPositions, Mapping[SourcePartition, int]]:
        # A lake cluster has several publishers, so the times of its batches may be out of order.
        known = self._landed.get(alias) if alias in self._clusters else None
        if not self._lake.exists(self._lake.relay_location(alias)):
            return LandedPositions({}, {}), {}
        # Read before the relay, so that offsets which were read but are not in the relay are markers.
        seen = read_landing_positions(self._lake, alias)
        self._landed[alias] = (
            landed_positions(self._lake, alias) if known is None else update_landed_positions(self._lake, alias, known)
        )
        return self._landed[alias], seen

    def _read_ends(self, alias: str) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        source = self._context.source(alias)
        partitions = [
            TopicPartition(n, p) for n, topic in self._current_topics[alias].items() for p in range(topic.partitions)
        ]
        if alias not in self._clusters:
            # Published records are landed at once.
            reached = self._landed.get(alias, LandedPositions({}, {})).reached
            return dict.fromkeys(partitions, 0), {
                tp: reached.get(SourcePartition(tp.topic, 1, tp.partition), 0) for tp in partitions
            }
        try:
            return source.log_start_offsets(partitions), source.last_stable_offsets(partitions)
        except ClusterError:
            admin = self._context.admin(alias)
            _, leaderless = describe_with_leaders(admin, {tp.topic for tp in partitions})
            led = [tp for tp in partitions if tp not in leaderless]
            if len(led) == len(partitions):
                raise
            self._log_leaderless(alias, format_partitions(leaderless & {*partitions}))
            return admin.log_start_offsets(led), admin.last_stable_offsets(led)

    def _log_leaderless(self, alias: str, names: str) -> None:
        if self._logged_leaderless.get(alias) != names:
            log.warning(
                "sample.no_leader source=%s partitions=%s why=they are left out until a broker leads them", alias, names
            )
        self._logged_leaderless[alias] = names

    def _log_unanswered(self, look: SubjectSample) -> None:
        # Without this an outage would be logged at every sample.
        error = look.error or ""
        if error and self._logged_errors.get(look.key) != error:
            # A flow's error is often its cluster's, which was logged.
            level = logging.INFO if error in self._logged_errors.values() else logging.WARNING
            log.log(level, "sample.unanswered %s=%s why=%s", look.subject, look.name, error)
        self._logged_errors[look.key] = error

    def _flows_from(self, alias: str) -> list[FlowConfig]:
        return [flow for flow in self._flows if flow.source == alias]

    def _skip_cluster(self, round_: PollRound, alias: str, why: ClusterError) -> None:
        flows = [("flow", flow.name) for flow in self._flows if flow.target == alias]
        round_.skip([("cluster", alias), *flows], why)
