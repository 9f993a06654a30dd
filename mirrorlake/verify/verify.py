"""Verify that source, relay and target hold the same records, by count and content, and name every difference.

Flows may go on running, because a fixed cut is compared (`verify/cut.py`). The table `proofs` keeps proven ranges, which are not
read again. Both sides are ordered streams, so no query runs: one process reads each record once a hop.

Law E (accounted for): a record that was not compared is never called equal. Landed records that were not republished are
differences, and so are duplicates in the relay.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import ClusterAdmin, spark_options
from mirrorlake.lake import (
    RELAY_TARGET,
    SOURCE_RELAY,
    SOURCE_TARGET,
    ProofCache,
    ProvenRange,
    RangeProof,
    Tombstones,
    read_tombstones,
)
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.remotes import known_id
from mirrorlake.model.verify import VerifyReport
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.rules import View
from mirrorlake.verify.comparison_results import HopResult
from mirrorlake.verify.completeness import (
    LostRecords,
    SendBounds,
    count_withheld,
    find_first_offsets,
    find_lost_and_pending,
    find_send_bounds,
    list_lost,
    wait_for_pending,
)
from mirrorlake.verify.cut import FixedCut
from mirrorlake.verify.direct import SourceFeed, build_source_feeds, find_before_landing, topics_compared_by_relay
from mirrorlake.verify.flow_report import FlowAtCut, build_flow_report, count_explained, count_proven_before
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRange, OffsetRanges
from mirrorlake.verify.relays import Relays
from mirrorlake.verify.runners import JOB_RECORDS, RunnerChoice
from mirrorlake.verify.scope import KnownRanges, Scope
from mirrorlake.verify.source_comparison import compare_with_sources
from mirrorlake.verify.source_facts import SourceFacts
from mirrorlake.verify.source_side import SourceSide, compare_dense_offsets, compare_with_source
from mirrorlake.verify.target_hop import compare_with_target
from mirrorlake.verify.target_side import FeedKey, FeedSummary, TargetResult, TargetSide, summarize_feeds
from mirrorlake.verify.unit import fetch_as_consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SENDING_KINDS = (RELAY_TARGET, SOURCE_TARGET)
_LANDING, _SENDING = "verify: source and relay", "verify: relay and target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The report of each flow, and the proofs to store."""

    reports: tuple[VerifyReport, ...]
    proofs: tuple[RangeProof, ...]


class Verifier:
    """Compare flows at a cut; the relays were read after it.

    Args:
        context: of the mirror.
        flows: the flows to compare.
        proofs: earlier proofs.
        cuts: the cut of each target, with all flows into it.
        relays: the relays of all sources of these flows.
        views: the views of the rules, by flow.
        lost: sources that are not asked; of their flows, relay and target are compared.
        direct: compare all that a source still holds with the target, without the relay; otherwise only what left the relay.
        waits: give a running flow time to send its pending records.
        session: runs a Spark job for very many records; None for threads of this process.
        job_from: the count of a hop's offsets from which a job runs.
    """

    def __init__(
        self,
        context: Context,
        flows: Iterable[FlowConfig],
        *,
        proofs: ProofCache,
        cuts: Mapping[str, FixedCut],
        relays: Relays,
        views: Mapping[str, View],
        scope: Scope,
        lost: Collection[str] = (),
        direct: bool = False,
        waits: bool = True,
        session: SparkSession | None = None,
        job_from: int = JOB_RECORDS,
        tell: ProgressCallback = ignore_progress,
    ) -> None:
        self._flows = tuple(flows)
        self._lake = context.lake
        self._proofs = proofs
        self._context = context
        self._cuts = cuts
        self._relays = relays
        self._views = views
        self._scope = scope
        self._lost = frozenset(lost)
        self._direct = direct
        self._waits = waits
        self._session = session
        self._job_from = job_from
        self._tell = tell
        self._sources: dict[str, SourceFacts] = {}
        self._tombstones: dict[str, Sequence[Tombstones]] = {}
        self._before_landing: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._whole: Mapping[str, int] = {}
        self._lock = threading.Lock()

    def run(self) -> Verification:
        """Compare both hops of all flows.

        Raises:
            ClusterError: a cluster does not answer.
        """
        aliases = {flow.source for cut in self._cuts.values() for flow in cut.flows.values()}
        self._sources = {
            alias: SourceFacts(self._context, alias, is_lost=alias in self._lost) for alias in sorted(aliases)
        }
        for alias in {flow.source for flow in self._flows}:
            carried = [flow for flow in self._flows if flow.source == alias]
            topics = {source.topic for source in self._relays[alias].landed}
            self._sources[alias].find_leaderless(t for t in topics if any(flow.carries(t) for flow in carried))
        self._tombstones = {target: read_tombstones(self._lake, target) for target in self._cuts}
        ranges = {flow.name: self._proofs.read(flow) for flow in self._flows}
        pieces = self._summarize_feeds()
        stands = [self._read_flow_at_cut(flow, ranges[flow.name], pieces[flow.target]) for flow in self._flows]
        self._whole = self._count_due(stands)
        for phase, whole in self._whole.items():
            self._tell(phase, 0, whole)
        landing = {
            alias: self._compare_landing(alias, stands) for alias in sorted({flow.source for flow in self._flows})
        }
        sending = {
            target: self._compare_sending(target, stands, pieces[target])
            for target in sorted({f.target for f in self._flows})
        }
        proofs = [proof for hop in (*landing.values(), *sending.values()) for proof in hop.proofs]
        reports = []
        for stand in stands:
            report, lost = self._report(stand, landing[stand.flow.source], sending[stand.flow.target])
            reports.append(report)
            proofs += [self._lost_proof(stand, one) for one in lost]
        for phase, whole in self._whole.items():
            self._tell(phase, whole, whole)
        return Verification(reports=tuple(reports), proofs=tuple(proofs))

    def _summarize_feeds(self) -> dict[str, list[FeedSummary]]:
        found = {}
        for target, cut in self._cuts.items():
            remotes = {
                flow.remote_topic(source.topic)
                for flow in self._flows
                if flow.target == target
                for source in self._relays[flow.source].landed
                if flow.carries(source.topic)
            }
            found[target] = summarize_feeds(cut, remotes) if remotes else []
        return found

    def _read_flow_at_cut(
        self, flow: FlowConfig, ranges: Sequence[ProvenRange], pieces: Sequence[FeedSummary]
    ) -> FlowAtCut:
        cut = self._cuts[flow.target]
        landed = {s: held for s, held in self._relays[flow.source].landed.items() if flow.carries(s.topic)}
        mine = [piece for piece in pieces if piece.key.flow == flow.name]
        kept = count_withheld(cut, flow.name)
        # A source partition may have left the relay altogether.
        known = {*landed, *(piece.key.source for piece in mine)}
        bounds = find_send_bounds(flow, self._lake, cut, known, mine, kept)
        ids = self._target_ids(flow, known)
        proven = KnownRanges.of(ranges, _SENDING_KINDS, sources=self._sources[flow.source].ids, targets=ids)
        unproven = {s: one.span - proven.proven.get(s, OffsetRanges()) for s, one in bounds.items()}
        due = {
            s: self._scope.of(flow.source, s, proven.unproven(s, one.span, self._scope)) for s, one in bounds.items()
        }
        directly = self._choose_source_feeds(flow, ranges, bounds, due, ids, find_first_offsets(mine, kept))
        for s, feed in directly.items():
            due[s] -= feed.due
            unproven[s] += feed.due
        return FlowAtCut(
            flow=flow,
            landed=landed,
            bounds=bounds,
            feeds=mine,
            withheld=kept,
            ranges=ranges,
            due={s: spans for s, spans in due.items() if spans},
            unproven=unproven,
            directly=directly,
        )

    def _choose_source_feeds(
        self,
        flow: FlowConfig,
        ranges: Sequence[ProvenRange],
        bounds: Mapping[SourcePartition, SendBounds],
        due: Mapping[SourcePartition, OffsetRanges],
        ids: Mapping[str, str],
        firsts: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, SourceFeed]:
        """Build feeds that read the source itself: offsets that left the relay, or with `direct` all unproven ones."""
        alias = flow.source
        facts = self._sources[alias]
        if not facts.is_asked:
            return {}
        erased, removed = facts.erased, facts.removed
        if self._direct:
            known = KnownRanges.of(ranges, [SOURCE_TARGET], sources=facts.ids, targets=ids)
            wanted = {
                s: self._scope.of(alias, s, known.unproven(s, one.span, self._scope)) for s, one in bounds.items()
            }
        else:
            expired = {s: removed.get(s, OffsetRanges()) - erased.get(s, OffsetRanges()) for s in due}
            wanted = {s: spans & OffsetRanges([(0, expired[s].end)]) for s, spans in due.items() if expired[s]}
        # Records that left the relay before the flow began were never its own.
        early = {s: removed.get(s, OffsetRanges()) & OffsetRanges([(0, firsts.get(s, UNBOUNDED))]) for s in wanted}
        wanted = {s: left for s, spans in wanted.items() if (left := spans - early[s])}
        if not wanted:
            return {}
        admin, landed = self._context.admin(alias), self._relays[alias].landed
        held = facts.available_ranges(wanted)
        for s in held.keys() & landed.keys():
            there = wanted[s] & OffsetRanges([held[s]])
            past = find_before_landing(
                s, landed[s].first, removed.get(s, OffsetRanges()), there, sent_from=firsts.get(s, UNBOUNDED)
            )
            wanted[s] -= past
            self._before_landing[flow.name] += past.size
        return build_source_feeds(
            flow,
            wanted,
            available=held,
            cut=self._cuts[flow.target],
            relay=self._relays[alias],
            erased=erased,
            fetching=self._runner_choice_at(admin).fetching or fetch_as_consumer,
            options=self._context.reader_options(alias),
        )

    def _target_ids(self, flow: FlowConfig, known: Iterable[SourcePartition]) -> dict[str, str]:
        remotes = {flow.remote_topic(topic) for topic in {s.topic for s in known}}
        states = self._context.admin(flow.target).describe(remotes)
        return {name: known_id(state.topic_id) for name, state in states.items()}

    def _count_due(self, stands: Sequence[FlowAtCut]) -> dict[str, int]:
        """Count the records of each hop, with proven ones, which the report counts, too."""
        landed = {(stand.flow.source, s): held.records for stand in stands for s, held in stand.landed.items()}
        return {_LANDING: sum(landed.values()), _SENDING: sum(sum(stand.sent.values()) for stand in stands)}

    def _report_progress(self, phase: str, records: int) -> None:
        with self._lock:
            self._done[phase] = min(self._whole[phase], self._done[phase] + records)
            self._tell(phase, self._done[phase], self._whole[phase])

    def _compare_landing(self, alias: str, stands: Sequence[FlowAtCut]) -> HopResult:
        mine = [stand for stand in stands if stand.flow.source == alias]
        # Proofs of this hop are the same for every flow from the source.
        facts = self._sources[alias]
        known = KnownRanges.of(mine[0].ranges, [SOURCE_RELAY], sources=facts.ids, targets={})
        side = SourceSide(
            alias=alias,
            relay=self._relays[alias],
            topics=frozenset(s.topic for stand in mine for s in stand.landed),
            known=known,
            recorded=facts.recorded,
            removed=facts.removed,
            options=self._context.reader_options(alias),
            default_cleanup=facts.default_cleanup,
            leaderless=facts.leaderless,
        )
        topics = topics_compared_by_relay(side) if self._direct else side.topics
        if self._context.config.cluster(alias).is_lake:
            hop = compare_dense_offsets(side, self._scope)
        elif alias in self._lost or not topics:
            hop = HopResult()
        else:
            admin, asked = self._context.admin(alias), replace(side, topics=topics)
            hop = compare_with_source(
                asked, admin, self._scope, self._runner_choice_at(admin), partial(self._report_progress, _LANDING)
            )
        hop.differences += self._relays.doubles(alias, side.topics)
        return hop

    def _compare_sending(self, target: str, stands: Sequence[FlowAtCut], pieces: Sequence[FeedSummary]) -> TargetResult:
        mine = [stand for stand in stands if stand.flow.target == target]
        side = TargetSide(
            alias=target,
            cut=self._cuts[target],
            relays=self._relays,
            views=self._views,
            summaries=pieces,
            due={FeedKey(stand.flow.name, s): spans for stand in mine for s, spans in stand.due.items()},
            begins={FeedKey(stand.flow.name, s): one.begins for stand in mine for s, one in stand.bounds.items()},
            chosen=frozenset(stand.flow.name for stand in mine),
            removed={alias: facts.removed for alias, facts in self._sources.items()},
            source_ids={alias: facts.ids for alias, facts in self._sources.items()},
            tombstones=self._tombstones[target],
            options=self._context.reader_options(target),
        )
        sources = {flow.source for flow in self._cuts[target].flows.values()}
        admin, more = self._context.admin(target), partial(self._report_progress, _SENDING)
        hop = compare_with_target(side, admin, self._scope, self._runner_choice(sources), more)
        directly = {FeedKey(stand.flow.name, s): feed for stand in mine for s, feed in stand.directly.items()}
        if directly:
            again = partial(self._read_available_ranges, directly.values())
            hop.join_direct(compare_with_sources(side, directly, admin, self._scope, tell=more, read_available=again))
        return hop

    def _read_available_ranges(self, feeds: Iterable[SourceFeed]) -> dict[tuple[str, SourcePartition], OffsetRange]:
        by_alias: dict[str, set[SourcePartition]] = {}
        for feed in feeds:
            by_alias.setdefault(feed.alias, set()).add(feed.source)
        return {
            (alias, source): span
            for alias, sources in by_alias.items()
            for source, span in self._sources[alias].available_ranges(sources).items()
        }

    def _runner_choice_at(self, source: ClusterAdmin) -> RunnerChoice:
        """Read a source that nobody ever consumed from by Spark, which leaves no trace there (law H)."""
        capacity = self._runner_choice([source.alias])
        if source.was_consumed():
            return capacity
        # Elsewhere nothing of a verification loads pyspark.
        from mirrorlake.verify.untouched import fetch_by_spark

        options = spark_options(self._context.config.cluster(source.alias))
        return replace(capacity, fetching=fetch_by_spark(self._lake.spark, options))

    def _runner_choice(self, sources: Iterable[str]) -> RunnerChoice:
        """Allow a job where its tasks may read these relays, as tasks that send do."""
        sources = set(sources)
        flows = [flow for flow in self._context.config.flows if flow.source in sources]
        may_read = all(self._relays[alias].has_files for alias in sources)
        is_allowed = may_read and all(flow.execution == "live" for flow in flows)
        return RunnerChoice(session=self._session if is_allowed else None, job_from=self._job_from)

    def _report(
        self, stand: FlowAtCut, landing: HopResult, sending: TargetResult
    ) -> tuple[VerifyReport, list[LostRecords]]:
        flow, relay, cut = stand.flow, self._relays[stand.flow.source], self._cuts[stand.flow.target]
        sent, facts = stand.sent, self._sources[flow.source]
        mapped = {s: sent[s] + (stand.withheld[s].records if s in stand.withheld else 0) for s in stand.bounds}
        lost, waiting = find_lost_and_pending(
            flow.name, relay, stand.bounds, cut, mapped, facts.removed, stand.unproven
        )
        lost += [one for s, feed in stand.directly.items() for one in list_lost(s, sorted(feed.unknown))]
        report = build_flow_report(
            stand,
            landing,
            sending,
            lost=lost,
            pending=wait_for_pending(relay, waiting, flow, self._context) if self._waits else waiting,
            before=count_proven_before(stand, cut, self._scope),
            leaderless=facts.leaderless,
            explained=count_explained(
                flow,
                facts.explained,
                self._tombstones[flow.target],
                before_landing=self._before_landing[flow.name],
            ),
        )
        return report, lost

    def _lost_proof(self, stand: FlowAtCut, lost: LostRecords) -> RangeProof:
        flow = stand.flow
        return RangeProof(
            kind=RELAY_TARGET,
            source=flow.source,
            flow=flow.name,
            partition=lost.source,
            first_upstream=lost.span.first,
            last_upstream=lost.span.end - 1,
            begins_at=stand.bounds[lost.source].begins,
            how="different",
            records=0,
            target_topic=flow.remote_topic(lost.source.topic),
            relay_version=self._relays[flow.source].version,
            source_topic_id=self._sources[flow.source].ids.get(lost.source.topic),
            upstream_end=stand.bounds[lost.source].position,
        )
