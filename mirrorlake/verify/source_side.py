"""Compare the first hop: the relay holds what the source returns to a `read_committed` consumer, record by record.

What the source no longer holds cannot be compared any more; it is said to be gone, once, and not asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import SOURCE_RELAY, KnownTopic, RangeProof
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.remotes import is_different_topic, known_id
from mirrorlake.model.verify import Difference
from mirrorlake.verify.comparison_results import HopResult, provable_ranges, range_passes
from mirrorlake.verify.feeds import FeedTarget, FetchedPart
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import OffsetRange, OffsetRanges
from mirrorlake.verify.relays import Relay
from mirrorlake.verify.runners import RunnerChoice
from mirrorlake.verify.scope import KnownRanges, Scope
from mirrorlake.verify.unit import ComparisonUnit, FeedSpec, UnitResult, group_by_shared_feed


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSide:
    """A source and its relay, with the topics to compare.

    `default_cleanup` is the policy of topics that set none themselves. Of `leaderless` partitions nothing is asked.
    """

    alias: str
    relay: Relay
    topics: frozenset[str]
    known: KnownRanges
    recorded: Mapping[str, KnownTopic]
    removed: Mapping[SourcePartition, OffsetRanges]
    options: Mapping[str, Any] = field(default_factory=dict)
    default_cleanup: str = ""
    leaderless: frozenset[TopicPartition] = frozenset()

    @property
    def ids(self) -> dict[str, str]:
        """The recorded ids of the topics."""
        return {name: topic.topic_id for name, topic in self.recorded.items()}


def compare_dense_offsets(side: SourceSide, scope: Scope) -> HopResult:
    """Check the relay of a lake cluster: it is the source itself, and its offsets are 0, 1, 2, ..."""
    hop = HopResult()
    for source, held in side.relay.landed.items():
        if source.topic not in side.topics:
            continue
        gone = side.removed.get(source, OffsetRanges()) & OffsetRanges([(0, held.last + 1)])
        if held.records + gone.size != held.last + 1:
            hop.differences.append(Difference.at(source, held.first, where="relay", problem="missing"))
        else:
            due = scope.of(side.alias, source, side.known.unproven(source, OffsetRanges([(0, held.last + 1)]), scope))
            hop.proofs += [
                _proof(side, source, span, held.first, records=span.end - span.first, how=_how(scope)) for span in due
            ]
    return hop


def compare_with_source(
    side: SourceSide, admin: ClusterAdmin, scope: Scope, capacity: RunnerChoice, tell: Callable[[int], None]
) -> HopResult:
    """Compare the due records of the relay with the source.

    Raises:
        ClusterError: the source does not answer.
    """
    landed = {
        source: held
        for source, held in side.relay.landed.items()
        if source.topic in side.topics and TopicPartition(source.topic, source.partition) not in side.leaderless
    }
    there = read_log_ranges(admin, side.ids, landed)
    due = {
        source: scope.of(side.alias, source, side.known.unproven(source, OffsetRanges([held.span]), scope))
        for source, held in landed.items()
    }
    held = {source: OffsetRanges([span]) for source, span in there.items()}
    hop = HopResult()
    for source, spans in due.items():
        gone = spans - held.get(source, OffsetRanges())
        hop.proofs += [
            _proof(side, source, span, landed[source].first, records=0, how="gone") for span in gone if scope.is_whole
        ]
    for chosen in range_passes({source: spans & held[source] for source, spans in due.items() if source in held}):
        workers = capacity.choose(chosen.values())
        units = _units(side, chosen, workers.max_partitions)
        results = workers.compare(units, relay_of=lambda _: side.relay, admin=admin, tell=tell)
        hop.add(results, where="relay")
        for result in results:
            for feed, read, doubts in zip(result.unit.feeds, result.read, result.suspects, strict=True):
                doubts.add(side.relay.find_doubles(feed.source, feed.span, read))
            hop.proofs += _proofs(side, result, due, landed, scope)
    return hop


def read_log_ranges(
    admin: ClusterAdmin, ids: Mapping[str, str], sources: Iterable[SourcePartition]
) -> dict[SourcePartition, OffsetRange]:
    """Return the ranges that a source still holds of some partitions in their newest generation; `ids` are recorded topic ids.

    Raises:
        ClusterError: the source does not answer.
    """
    sources = list(sources)
    states = admin.describe({source.topic for source in sources})
    newest: dict[TopicPartition, SourcePartition] = {}
    for source in sources:
        tp = TopicPartition(source.topic, source.partition)
        newest[tp] = max(source, newest.get(tp, source))
    # A topic that was created again holds other records than the landed ones.
    newest = {
        tp: source
        for tp, source in newest.items()
        if tp.topic in states
        and tp.partition < states[tp.topic].partitions
        and not is_different_topic(ids.get(tp.topic, ""), known_id(states[tp.topic].topic_id))
    }
    earliest, ends = admin.log_start_offsets(newest), admin.last_stable_offsets(newest)
    # A truncated log ends before the landed records.
    return {source: OffsetRange(earliest[tp], ends[tp]) for tp, source in newest.items()}


def _units(side: SourceSide, chosen: Mapping[SourcePartition, OffsetRange], together: int) -> list[ComparisonUnit]:
    order = sorted(chosen)
    units = []
    for numbers in group_by_shared_feed(
        ((frozenset([source]), number) for number, source in enumerate(order)), together
    ):
        sources = [order[number] for number in numbers]
        units.append(
            ComparisonUnit(
                alias=side.alias,
                options=side.options,
                partitions=tuple(TopicPartition(source.topic, source.partition) for source in sources),
                fetched=tuple(
                    FetchedPart(
                        span=chosen[source], compacts=compacts(side.recorded.get(source.topic), side.default_cleanup)
                    )
                    for source in sources
                ),
                feeds=tuple(
                    FeedSpec(
                        key=source,
                        source=source,
                        offsets=OffsetColumns.identity([(chosen[source], 0)]),
                        targets=(FeedTarget(target=number),),
                        removed=side.removed.get(source, OffsetRanges()),
                    )
                    for number, source in enumerate(sources)
                ),
                fed_is_source=False,
            )
        )
    return units


def compacts(topic: KnownTopic | None, default_cleanup: str) -> bool:
    """Return whether the log of a topic may be compacted; `default_cleanup` is the policy of topics that set none."""
    return topic is not None and topic.may_compact(default_cleanup)


def _proofs(
    side: SourceSide,
    result: UnitResult,
    due: Mapping[SourcePartition, OffsetRanges],
    landed: Mapping[SourcePartition, Any],
    scope: Scope,
) -> Iterable[RangeProof]:
    for number, feed in enumerate(result.unit.feeds):
        doubts = result.suspects[number]
        span = result.unit.fetched[number].span
        mine = due[feed.source] & OffsetRanges([span])
        proven = provable_ranges(mine, suspects=doubts.offsets, end=doubts.end, gone=OffsetRanges())
        digests = {one.feed: one for one in result.proven}
        whole = digests.get(number) if len(proven) == 1 and not doubts.offsets else None
        begins = landed[feed.source].first
        for part in proven:
            records = whole.records if whole else side.relay.count(feed.source, part)
            yield _proof(
                side,
                feed.source,
                part,
                begins,
                records=records,
                how=_how(scope),
                digest=whole.digest if whole else None,
            )
        for differing in doubts.ranges(span.end):
            yield _proof(side, feed.source, differing, begins, records=0, how="different")


def _how(scope: Scope) -> str:
    return "full" if scope.sample is None else "sampled"


def _proof(
    side: SourceSide,
    source: SourcePartition,
    span: OffsetRange,
    begins: int,
    *,
    records: int,
    how: str,
    digest: str | None = None,
) -> RangeProof:
    return RangeProof(
        kind=SOURCE_RELAY,
        source=side.alias,
        partition=source,
        first_upstream=span.first,
        last_upstream=span.end - 1,
        begins_at=begins,
        how=how,
        records=records,
        digest=digest,
        relay_version=side.relay.version,
        source_topic_id=side.ids.get(source.topic),
        upstream_end=side.relay.landed[source].last + 1,
    )
