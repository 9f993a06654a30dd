"""Compare the due records of one hop: feeds of the one end with the partitions that the other end holds.

All hops are compared so: source and relay, relay and target, source and target. What differs between them is where the rows of a feed
come from, and the offset map: between a source and its relay each record has the same offset (`source_hop.py`), on a target it has
the one that the ledger says (`target_hop.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import COLUMNS, FixedRelay, RangeProof
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ranges import UNBOUNDED, OffsetRange, Ranges
from mirrorlake.model.verify import Difference
from mirrorlake.verify.feeds import Feed, FeedKey, FetchedPart
from mirrorlake.verify.offset_columns import join_columns
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.stream_comparison import EqualRecords, Mismatch
from mirrorlake.verify.unit import ComparisonUnit, UnitResult, compare_unit, group_by_shared_feed

# What left a feed is told by this many ranges, because each one splits the proofs; more are joined over the fewest other records.
_MAX_LEFT = 16
# Python code uses one core; decompression, digests and Parquet decoding run beside it.
_THREADS = 2
# Partitions of one consumer: more cost memory, fewer cost connections.
_MAX_PARTITIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DueFeed:
    """The due offsets of a feed, which have records at the offsets of `feed`.

    `gone` are offsets that an end no longer holds, which is explained elsewhere; past `end` nothing is proven. `proof` is a row of
    `proofs` that lacks its range and result.
    """

    due: Ranges
    feed: Feed
    gone: Ranges
    proof: RangeProof
    end: int = UNBOUNDED

    def prove(self, span: OffsetRange, *, how: str, **found: Any) -> RangeProof:
        return replace(self.proof, first_upstream=span.first, last_upstream=span.end - 1, how=how, **found)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopEnds:
    """One hop: what is due, and how to read both ends.

    `ranges` are the offsets to fetch, by partition, `ends` of target partitions at the cut. `relay` is None on a target.
    `differences` are those that are known without a comparison.
    """

    admin: ClusterAdmin
    options: Mapping[str, Any]
    due: Mapping[FeedKey, DueFeed]
    ranges: Mapping[TopicPartition, Ranges]
    parts: Callable[[TopicPartition, OffsetRange], FetchedPart]
    feeds_into: Callable[[Mapping[TopicPartition, OffsetRange]], Sequence[Feed]]
    fed_by: Callable[[FeedKey], FixedRelay]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    relay: FixedRelay | None = None
    differences: Sequence[Difference] = ()


@dataclass(slots=True)
class HopResult:
    """The result of one hop: differences, proofs, and by feed how many due records were found equal."""

    differences: list[Difference] = field(default_factory=list)
    proofs: list[RangeProof] = field(default_factory=list)
    verified: Counter[FeedKey] = field(default_factory=Counter)


def compare_hop(hop: HopEnds, scope: Scope, tell: Callable[[int], None]) -> HopResult:
    found = HopResult(differences=list(hop.differences))
    for chosen in range_passes(hop.ranges):
        units = _units(hop, chosen)
        results = _compare_units(hop, units, tell)
        found.differences += _name_differences(results, where="relay" if hop.relay else "target")
        for unit, result in zip(units, results, strict=True):
            found.verified += _count_verified(hop, result)
            found.proofs += _build_proofs(hop, unit, result)
    if scope.is_whole:
        found.proofs += _proofs_without_records(hop)
    return found


def range_passes(spans: Mapping[Any, Ranges]) -> Iterable[dict[Any, OffsetRange]]:
    """Yield the first range of each key, then the second of those that have one, and so on."""
    for number in range(max(map(len, spans.values()), default=0)):
        yield {key: tuple(several)[number] for key, several in spans.items() if number < len(several)}


def _units(hop: HopEnds, chosen: Mapping[TopicPartition, OffsetRange]) -> list[ComparisonUnit]:
    feeds = {feed.key: feed for feed in hop.feeds_into(chosen)}
    leading: dict[TopicPartition, set[FeedKey]] = {tp: set() for tp in sorted(chosen)}
    for key, feed in feeds.items():
        for tp in {way.tp for way in feed.targets} & leading.keys():
            leading[tp].add(key)
    units = []
    for partitions in group_by_shared_feed(leading, _MAX_PARTITIONS):
        spans = {tp: chosen[tp] for tp in partitions}
        units.append(
            ComparisonUnit(
                alias=hop.admin.alias,
                options=hop.options,
                fetched={tp: hop.parts(tp, span) for tp, span in spans.items()},
                feeds=tuple(feeds[key].within(spans) for key in sorted({key for tp in spans for key in leading[tp]})),
                fed_is_source=hop.relay is None,
            )
        )
    return units


def _compare_units(hop: HopEnds, units: Iterable[ComparisonUnit], tell: Callable[[int], None]) -> list[UnitResult]:
    compare = partial(
        compare_unit,
        rows=lambda feed: hop.fed_by(feed.key).rows(feed.source, Ranges([feed.span]), (*COLUMNS, "timestamp_type")),
        earliest=hop.admin.log_start_offsets,
        latest=hop.admin.last_stable_offsets,
        tell=tell,
    )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="verify") as pool:
        return list(pool.map(compare, units))


def _name_differences(results: Sequence[UnitResult], *, where: str) -> list[Difference]:
    def sides(found: Mismatch) -> tuple[Any, Any]:
        return (found.fed, found.fetched) if where == "target" else (found.fetched, found.fed)

    contents = {sides(found)[0] for one in results for found in one.mismatches} - {None}
    differences = []
    for one in results:
        for found in one.mismatches:
            wanted, held = sides(found)
            if held is None:
                problem = "missing"
            elif wanted is None:
                is_copy = (found.tp, found.offset) in one.copies and held not in contents
                problem = "doubled" if is_copy else "extra"
            else:
                problem = "out_of_order" if held in contents else "altered"
            differences.append(Difference.at(found.tp, found.offset, where=where, problem=problem))
    return differences


def _count_verified(hop: HopEnds, result: UnitResult) -> Counter[FeedKey]:
    """Count the due records that were found equal, without proven records that were read again."""
    verified: Counter[FeedKey] = Counter()
    for feed, found in zip(result.unit.feeds, result.by_feed, strict=True):
        if feed.key in hop.due:
            due = hop.due[feed.key].feed.within(result.unit.spans).offsets.records
            verified[feed.key] += max(0, found.matched - (feed.offsets.records - due))
    return verified


def _build_proofs(hop: HopEnds, asked: ComparisonUnit, result: UnitResult) -> Iterable[RangeProof]:
    """Yield the proofs and differences of each feed of one unit.

    What left the cluster since it was `asked` for was not compared, so it is not proven (law E).
    """
    now = result.unit.spans
    left = {tp: OffsetRange(one.first, now[tp].first) for tp, one in asked.spans.items() if one.first < now[tp].first}
    for number, (feed, found) in enumerate(zip(result.unit.feeds, result.by_feed, strict=True)):
        one, doubts = hop.due.get(feed.key), found.suspects
        if one is None or not len(feed.offsets) or not len(one.feed.offsets):
            continue
        if hop.relay:
            doubts.add(hop.relay.find_doubles(feed.source, feed.span, found.read))
        proven = provable_ranges(
            one.due & Ranges([_grown(one.due, feed.span)]),
            suspects=doubts.offsets,
            end=min(doubts.end, one.end),
            gone=one.gone | upstream_of(one.feed, left),
        )
        equal = {label: records for (of_feed, label), records in result.proven.items() if of_feed == number}
        is_whole = (
            len(proven) == 1
            and not doubts.offsets
            and doubts.end == UNBOUNDED
            and feed.offsets.upstream_within(proven).records == feed.offsets.records
        )
        for part in proven:
            if not equal:
                yield one.prove(part, how="full")
            for label, records in equal.items():
                way = feed.targets[label]
                yield one.prove(
                    part,
                    how="full" if way.is_comparable else "present",
                    **_describe(hop, feed, label, part, records if is_whole else None),
                )
        for differing in doubts.ranges(feed.span.end):
            yield one.prove(differing, how="different")


def _describe(hop: HopEnds, feed: Feed, label: int, part: OffsetRange, whole: EqualRecords | None) -> dict[str, Any]:
    """Return the columns of a proof that say what was compared; `whole` are the records if the range has all equal ones."""
    way, columns = feed.targets[label], dict[str, Any]()
    if whole:
        columns |= {"records": whole.records, "digest": whole.digest}
    elif hop.relay:
        columns["records"] = hop.relay.count(feed.source, part)
    else:
        mine = feed.offsets.where(feed.offsets.labels == label)
        columns["records"] = mine.upstream_within(Ranges([part])).records
    if hop.relay is None:
        columns |= {"target_topic": way.tp.topic, "target_partition": way.tp.partition, "view": way.version}
        columns["downstream_end"] = hop.ends.get(way.tp)
        if whole:
            columns |= {"first_downstream": whole.first, "last_downstream": whole.last}
    return columns


def provable_ranges(due: Ranges, *, suspects: Iterable[int] = (), end: int, gone: Ranges) -> Ranges:
    """Return the due offsets that are proven equal: the compared range minus `suspects` and `gone`."""
    if not due:
        return due
    hull = Ranges([(due.first, min(due.end, end))])
    return hull - gone - Ranges.of(suspects)


def _grown(due: Ranges, span: OffsetRange) -> OffsetRange:
    """Extend a range by adjoining due offsets that have no record at the other end."""
    touched = [one for one in due if one.first < span.end and one.end > span.first]
    return OffsetRange(touched[0].first, touched[-1].end) if touched else OffsetRange(0, 0)


def upstream_of(feed: Feed, spans: Mapping[TopicPartition, OffsetRange]) -> Ranges:
    """Return the upstream offsets of a feed's records in ranges of fetched partitions, with the gaps that hold no other record.

    Where many ranges alternate with other records, some of these are among the returned offsets.
    """
    inside = join_columns(feed.to(tp).downstream_within(*span) for tp, span in spans.items())
    if not len(inside):
        return Ranges()
    first, end = inside.upstream, np.maximum.accumulate(inside.upstream + inside.lengths)
    others = feed.offsets.records_before(first[1:]) - feed.offsets.records_before(end[:-1])
    breaks = np.flatnonzero(others > 0)
    if len(breaks) >= _MAX_LEFT:
        breaks = np.sort(breaks[np.argsort(others[breaks], kind="stable")[1 - _MAX_LEFT :]])
    begins, ends = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(first) - 1]])
    return Ranges.from_columns(first[begins], end[ends])


def _proofs_without_records(hop: HopEnds) -> Iterable[RangeProof]:
    """Yield proofs of due offsets without a record at the other end, and of offsets that left an end."""
    for one in hop.due.values():
        for span in one.gone & one.due & Ranges([(0, one.end)]):
            yield one.prove(span, how="gone")
        for span in one.due:
            rest = Ranges([span])
            if one.feed.offsets.upstream_within(rest).records:
                # No comparison comes to what lies beside records that all left an end.
                rest -= one.gone
            if not one.feed.offsets.upstream_within(rest).records:
                for part in rest:
                    yield one.prove(part, how="full")
