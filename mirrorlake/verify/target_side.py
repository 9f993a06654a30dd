"""The second hop: a target holds what the relay's records became, each in the place that the offset map gives it.

Records that rules changed are compared with what the rules make of the relay's; of those that older rules changed, only the
presence is checked. Where a remote topic holds records that no flow wrote, they are neither extra nor verified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import RELAY_TARGET, RangeProof
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.remotes import known_id
from mirrorlake.model.verify import Difference
from mirrorlake.rules import View
from mirrorlake.verify.cut import RUN_COLUMNS, FixedCut, runs_within
from mirrorlake.verify.hops import HopResult, claims, compared, passes
from mirrorlake.verify.merge import FetchedPart, Way
from mirrorlake.verify.places import Places, joined_places
from mirrorlake.verify.relays import Relays
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.spans import OffsetSpan, Spans
from mirrorlake.verify.unit import Compared, FeedWork, Unit, bundles

_EVER = 2**62
# To read so many proven records once more costs less than another pass.
_NEAR = 50_000


class FeedKey(NamedTuple):
    """A feed of a target: the flow, and its source partition."""

    flow: str
    source: SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The runs of one flow between two partitions: how many records, and the first on both ends; `end` is downstream."""

    key: FeedKey
    target: TopicPartition
    records: int
    first_upstream: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSide:
    """A target and the flows into it; `due` is what each feed of the `chosen` flows has to prove, from `begins` on."""

    alias: str
    cut: FixedCut
    relays: Relays
    views: Mapping[str, View]
    pieces: Sequence[Piece]
    due: Mapping[FeedKey, Spans]
    begins: Mapping[FeedKey, int]
    chosen: frozenset[str]
    removed: Mapping[str, Mapping[SourcePartition, Spans]]
    source_ids: Mapping[str, Mapping[str, str]]
    options: Mapping[str, Any] = field(default_factory=dict)

    def source(self, flow: str) -> str:
        """Return the alias of a flow's source."""
        return self.cut.flows[flow].source


@dataclass(slots=True)
class TargetResult(HopResult):
    """What the second hop says, and how many due records of each feed were found equal (`verified`)."""

    verified: Counter[FeedKey] = field(default_factory=Counter)


def pieces_of(cut: FixedCut, remotes: Iterable[str]) -> list[Piece]:
    """Sum up the runs into some remote topics."""
    rows = cut.maps.ask(
        "SELECT flow, source_topic, generation, source_partition, target_topic, target_partition, "
        "sum(record_count) AS records, min(first_upstream) AS first_upstream, min(first_downstream) AS first, "
        "max(first_downstream + record_count) AS end_at FROM {runs} WHERE array_contains(:remotes, target_topic) "
        "GROUP BY flow, source_topic, generation, source_partition, target_topic, target_partition",
        remotes=sorted(remotes),
    )
    return [
        Piece(
            key=FeedKey(row.flow, SourcePartition(row.source_topic, row.generation, row.source_partition)),
            target=TopicPartition(row.target_topic, row.target_partition),
            records=int(row.records),
            first_upstream=int(row.first_upstream),
            first=int(row.first),
            end=int(row.end_at),
        )
        for row in rows
    ]


def against_target(side: TargetSide, admin: ClusterAdmin, scope: Scope, tell: Callable[[int], None]) -> TargetResult:
    """Compare what is due of the chosen flows with the target.

    Raises:
        ClusterError: the target does not answer.
    """
    hop = TargetResult()
    mine = {piece.target for piece in side.pieces if piece.key.flow in side.chosen}
    states = admin.describe({tp.topic for tp in mine})
    hop.differences += [
        Difference.at(tp, -1, where="target", problem="missing") for tp in sorted(mine) if tp.topic not in states
    ]
    there = sorted(tp for tp in mine if tp.topic in states and tp.partition < states[tp.topic].partitions)
    earliest = admin.earliest(there)
    ends = {tp: side.cut.ends.get(tp, end) for tp, end in _run_ends(side).items() if tp in earliest}
    held = {tp: OffsetSpan(earliest[tp], ends[tp]) for tp in there}
    places = _due_places(side)
    ids = {name: known_id(state.topic_id) for name, state in states.items()}
    compacting = _compacting(admin, states)
    for chosen in passes(_ranges(side, places, held, scope)):
        units = _units(side, chosen, compacting)
        rows = _Rows(side)
        results = compared(units, rows=rows, admin=admin, tell=tell)
        hop.add(results, where="target")
        for result in results:
            _count(hop, result, places)
            hop.proofs += _proofs(side, result, places, held, ids, scope)
    if scope.is_whole:
        hop.proofs += _without_records(side, places, held, ids)
    return hop


def _run_ends(side: TargetSide) -> dict[TopicPartition, int]:
    """Find where the last record of any flow ends, by target partition."""
    found: dict[TopicPartition, int] = {}
    for piece in side.pieces:
        found[piece.target] = max(found.get(piece.target, 0), piece.end)
    return found


class _Rows:
    """Read the relay's rows of feeds, by the sources of their flows."""

    def __init__(self, side: TargetSide) -> None:
        self._side = side

    def __call__(self, feed: FeedWork) -> Any:
        return self._side.relays[self._side.source(feed.key.flow)].rows(feed.source, feed.span)


@dataclass(frozen=True, slots=True)
class _DuePlaces:
    """The places of what is due of a feed; labels are numbers of `targets`."""

    places: Places
    targets: tuple[TopicPartition, ...]

    def on(self, tp: TopicPartition) -> Places:
        """Keep those on one target partition."""
        if tp not in self.targets:
            return Places.unchanged(())
        return self.places.where(self.places.labels == self.targets.index(tp))


def _due_places(side: TargetSide) -> dict[FeedKey, _DuePlaces]:
    found = runs_within(side.cut, ((key.flow, key.source, spans) for key, spans in side.due.items()))
    if found is None:
        return {}
    places = {}
    for key, runs in by_feed(found):
        targets = tuple(sorted({TopicPartition(*pair) for pair in _pairs(runs)}))
        numbers = {target: number for number, target in enumerate(targets)}
        labels = np.array([numbers[TopicPartition(*pair)] for pair in _pairs(runs)], np.int64)
        places[key] = _DuePlaces(Places.of_runs(runs, labels).upstream_within(side.due[key]), targets)
    return places


def _pairs(runs: pa.Table) -> Iterable[tuple[str, int]]:
    return zip(runs.column("target_topic").to_pylist(), runs.column("target_partition").to_pylist(), strict=True)


def by_feed(runs: pa.Table) -> Iterable[tuple[FeedKey, pa.Table]]:
    """Split runs by flow and source partition."""
    names = ("flow", "source_topic", "generation", "source_partition")
    columns = [runs.column(name).to_pylist() for name in names]
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*columns, strict=True)):
        rows.setdefault(key, []).append(row)
    for (flow, *source), at in rows.items():
        yield FeedKey(flow, SourcePartition(*source)), runs.take(pa.array(at))


def _compacting(admin: ClusterAdmin, topics: Iterable[str]) -> frozenset[str]:
    """List the remote topics that are compacted; none where their settings may not be read."""
    with suppress(ClusterError):
        return frozenset(
            name for name, settings in admin.configs(topics).items() if "compact" in settings.get("cleanup.policy", "")
        )
    return frozenset()


def _ranges(
    side: TargetSide, places: Mapping[FeedKey, _DuePlaces], held: Mapping[TopicPartition, OffsetSpan], scope: Scope
) -> dict[TopicPartition, Spans]:
    """Choose which downstream offsets are fetched: around all that is due, up to the next records that are proven."""
    near: dict[TopicPartition, list[OffsetSpan]] = {tp: [] for tp in held}
    for due in places.values():
        for tp in due.targets:
            if tp in held:
                near[tp] += _stretched(due.on(tp).downstream_within(*held[tp]))
    wanted = {tp: Spans(_joined(spans)) for tp, spans in near.items()}
    run_ends = _run_ends(side)
    bounds = _neighbours(side, {tp: spans for tp, spans in wanted.items() if spans})
    ranges = {}
    for tp, spans in wanted.items():
        found = []
        for span in spans:
            before, after = bounds[tp, span]
            found.append((max(held[tp].first, before), min(held[tp].end, after)))
        if scope.is_whole and (not spans or bounds[tp, tuple(spans)[-1]][1] < _EVER):
            # Past the last record of the flows nothing may stand, whatever is proven before.
            found.append((max(held[tp].first, run_ends[tp]), held[tp].end))
        ranges[tp] = Spans(found)
    return ranges


def _stretched(places: Places) -> Iterable[OffsetSpan]:
    """Join places that adjoin on the target, so that ranges are few."""
    order = np.argsort(places.downstream, kind="stable")
    first, lengths = places.downstream[order], places.lengths[order]
    if not len(first):
        return ()
    breaks = np.flatnonzero(first[1:] > (first + lengths)[:-1] + _NEAR) + 1
    starts, ends = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(first)]]) - 1
    return [
        OffsetSpan(int(first[start]), int(first[end] + lengths[end])) for start, end in zip(starts, ends, strict=True)
    ]


def _joined(spans: Iterable[OffsetSpan]) -> Iterable[OffsetSpan]:
    found: list[OffsetSpan] = []
    for span in sorted(spans):
        if found and span.first <= found[-1].end + _NEAR:
            found[-1] = OffsetSpan(found[-1].first, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _neighbours(
    side: TargetSide, wanted: Mapping[TopicPartition, Spans]
) -> dict[tuple[TopicPartition, OffsetSpan], tuple[int, int]]:
    """Find, for each range, where the records before it end and where those after it begin."""
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "first": span.first, "end_at": span.end}
        for tp, spans in wanted.items()
        for span in spans
    ]
    if not rows:
        return {}
    kinds = [("topic", pa.string()), ("partition", pa.int32()), ("first", pa.int64()), ("end_at", pa.int64())]
    found = side.cut.maps.ask(
        "SELECT w.topic, w.partition, w.first, w.end_at, "
        "max(CASE WHEN r.first_downstream < w.first "
        "THEN least(r.first_downstream + r.record_count, w.first) END) AS before, "
        "min(CASE WHEN r.first_downstream + r.record_count > w.end_at "
        "THEN greatest(r.first_downstream, w.end_at) END) AS after "
        "FROM {wanted} AS w JOIN {runs} AS r ON r.target_topic = w.topic AND r.target_partition = w.partition "
        "GROUP BY w.topic, w.partition, w.first, w.end_at",
        tables={"wanted": pa.Table.from_pylist(rows, schema=pa.schema(kinds))},
    )
    return {
        (TopicPartition(row.topic, row.partition), OffsetSpan(row.first, row.end_at)): (
            int(row.first if row.before is None else row.before),
            int(_EVER if row.after is None else row.after),
        )
        for row in found
    }


def _units(side: TargetSide, chosen: Mapping[TopicPartition, OffsetSpan], compacting: frozenset[str]) -> list[Unit]:
    order = sorted(tp for tp, span in chosen.items() if span.first < span.end)
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "first": chosen[tp].first, "end_at": chosen[tp].end}
        for tp in order
    ]
    kinds = [("topic", pa.string()), ("partition", pa.int32()), ("first", pa.int64()), ("end_at", pa.int64())]
    found = side.cut.maps.table(
        f"SELECT {RUN_COLUMNS} FROM {{runs}} AS r JOIN {{wanted}} AS w ON r.target_topic = w.topic "  # noqa: S608
        "AND r.target_partition = w.partition WHERE r.first_downstream < w.end_at "
        "AND r.first_downstream + r.record_count > w.first",
        tables={"wanted": pa.Table.from_pylist(rows, schema=pa.schema(kinds))},
    )
    feeds = dict(by_feed(found))
    of_target: dict[TopicPartition, set[FeedKey]] = {tp: set() for tp in order}
    for key, runs in feeds.items():
        for pair in set(_pairs(runs)):
            of_target[TopicPartition(*pair)].add(key)
    own = _with_own_records(side)
    units = []
    for numbers in bundles((frozenset(of_target[tp]) or frozenset([tp]), number) for number, tp in enumerate(order)):
        partitions = [order[number] for number in numbers]
        keys = sorted({key for tp in partitions for key in of_target[tp]})
        units.append(
            Unit(
                alias=side.alias,
                options=side.options,
                partitions=tuple(partitions),
                fetched=tuple(
                    FetchedPart(span=chosen[tp], own=own.get(tp.topic), compacts=tp.topic in compacting)
                    for tp in partitions
                ),
                feeds=tuple(_feed(side, key, feeds[key], partitions, chosen) for key in keys),
                fed_is_source=True,
            )
        )
    return units


def _feed(
    side: TargetSide,
    key: FeedKey,
    runs: pa.Table,
    partitions: Sequence[TopicPartition],
    chosen: Mapping[TopicPartition, OffsetSpan],
) -> FeedWork:
    numbers = {tp: number for number, tp in enumerate(partitions)}
    versions = runs.column("view").to_pylist()
    ways = [(numbers[TopicPartition(*pair)], version) for pair, version in zip(_pairs(runs), versions, strict=True)]
    distinct = sorted(set(ways), key=lambda way: (way[0], way[1] or ""))
    number_of = {way: number for number, way in enumerate(distinct)}
    labels = np.array([number_of[way] for way in ways], np.int64)
    whole = Places.of_runs(runs, labels)
    target_of = np.array([target for target, _ in distinct])[whole.labels]
    places = joined_places(
        whole.where(target_of == number).downstream_within(*chosen[tp]) for tp, number in numbers.items()
    )
    view = side.views.get(key.flow)
    alias = side.source(key.flow)
    return FeedWork(
        key=key,
        source=key.source,
        places=places,
        ways=tuple(
            Way(target=target, version=version, view=view if version and view and view.version == version else None)
            for target, version in distinct
        ),
        removed=side.removed.get(alias, {}).get(key.source, Spans()),
    )


def _with_own_records(side: TargetSide) -> dict[str, frozenset[str]]:
    """Find the remote topics that the target itself may write to, each with the aliases that its flows come from.

    Every record that such a flow writes says so in its last hop (`model/loops/hops.py`); one without is not the flow's.
    """
    writers: dict[str, set[str]] = {}
    for piece in side.pieces:
        writers.setdefault(piece.target.topic, set()).add(piece.key.flow)
    flows: Mapping[str, FlowConfig] = side.cut.flows
    return {
        topic: frozenset(flows[name].source for name in names)
        for topic, names in writers.items()
        if all(flows[name].adds_hops for name in names)
    }


def _count(hop: TargetResult, result: Compared, places: Mapping[FeedKey, _DuePlaces]) -> None:
    """Count the due records that were found equal; what was read once more beside them is left out."""
    spans = dict(zip(result.unit.partitions, (one.span for one in result.unit.fetched), strict=True))
    for number, feed in enumerate(result.unit.feeds):
        if feed.key in places:
            due = sum(places[feed.key].on(tp).downstream_within(*span).records for tp, span in spans.items())
            hop.verified[feed.key] += max(0, result.matched[number] - (feed.places.records - due))


def _proofs(
    side: TargetSide,
    result: Compared,
    places: Mapping[FeedKey, _DuePlaces],
    held: Mapping[TopicPartition, OffsetSpan],
    ids: Mapping[str, str],
    scope: Scope,
) -> Iterable[RangeProof]:
    for number, feed in enumerate(result.unit.feeds):
        if feed.key not in side.due or not len(feed.places):
            continue
        doubts, span = result.doubts[number], feed.span
        gone, beyond = _not_held(places[feed.key], held)
        mine = side.due[feed.key] & Spans([_grown(side.due[feed.key], span)])
        proven = claims(mine, doubts=doubts.offsets, end=min(doubts.end, beyond), gone=gone + feed.removed)
        ways = [one for one in result.proven if one.feed == number]
        is_whole = len(proven) == 1 and not doubts.offsets and doubts.end == _EVER
        for part in proven:
            if not ways:
                yield _proof(side, feed.key, part, ids, how="full" if scope.sample is None else "sampled")
            for one in ways:
                inside = feed.places.where(
                    np.array([(w.target, w.version) == (one.target, one.version) for w in feed.ways])[
                        feed.places.labels
                    ]
                ).upstream_within(Spans([part]))
                how = "sampled" if scope.sample is not None else "full" if one.is_comparable else "present"
                yield _proof(
                    side,
                    feed.key,
                    part,
                    ids,
                    how=how,
                    records=one.records if is_whole else inside.records,
                    topic=result.unit.partitions[one.target].topic,
                    partition=result.unit.partitions[one.target].partition,
                    first=one.first if is_whole else None,
                    last=one.last if is_whole else None,
                    digest=one.digest if is_whole and one.is_comparable else None,
                    view=one.version,
                )
        for differing in doubts.spans(span.end):
            yield _proof(side, feed.key, differing, ids, how="different")


def _grown(due: Spans, span: OffsetSpan) -> OffsetSpan:
    """Take what is due around a range, too: offsets without a record of their own on the target."""
    touched = [one for one in due if one.first < span.end and one.end > span.first]
    return (
        OffsetSpan(min(one.first for one in touched), max(one.end for one in touched)) if touched else OffsetSpan(0, 0)
    )


def _not_held(due: _DuePlaces, held: Mapping[TopicPartition, OffsetSpan]) -> tuple[Spans, int]:
    """Find what has left the target, as upstream offsets, and the first one past the cut."""
    gone: list[tuple[int, int]] = []
    beyond = _EVER
    for tp in due.targets:
        if tp not in held:
            # The topic is missing: that is a difference, and nothing of it is proven.
            beyond = min(beyond, int(due.on(tp).upstream[0]))
            continue
        span = held[tp]
        left = due.on(tp).downstream_within(0, span.first)
        if len(left):
            gone.append((int(left.upstream[0]), int((left.upstream + left.lengths).max())))
        late = due.on(tp).downstream_within(span.end, _EVER)
        if len(late):
            beyond = min(beyond, int(late.upstream[0]))
    return Spans(gone), beyond


def _without_records(
    side: TargetSide,
    places: Mapping[FeedKey, _DuePlaces],
    held: Mapping[TopicPartition, OffsetSpan],
    ids: Mapping[str, str],
) -> Iterable[RangeProof]:
    """Say of due offsets that hold no record for the target that they are done, and of those that left it that they are gone."""
    for key, due in side.due.items():
        removed = side.removed.get(side.source(key.flow), {}).get(key.source, Spans())
        if key not in places:
            for span in due:
                yield _proof(side, key, span, ids, how="full")
            continue
        gone, beyond = _not_held(places[key], held)
        for span in (gone + removed) & due & Spans([(0, beyond)]):
            yield _proof(side, key, span, ids, how="gone")
        spans = places[key].places
        for span in due:
            if not spans.upstream_within(Spans([span])).records:
                yield _proof(side, key, span, ids, how="full")


def _proof(
    side: TargetSide,
    key: FeedKey,
    span: OffsetSpan,
    ids: Mapping[str, str],
    *,
    how: str,
    records: int = 0,
    topic: str = "",
    partition: int | None = None,
    first: int | None = None,
    last: int | None = None,
    digest: str | None = None,
    view: str | None = None,
) -> RangeProof:
    alias = side.source(key.flow)
    topic = topic or side.cut.flows[key.flow].remote_topic(key.source.topic)
    return RangeProof(
        kind=RELAY_TARGET,
        source=alias,
        flow=key.flow,
        partition=key.source,
        first_upstream=span.first,
        last_upstream=span.end - 1,
        begins_at=side.begins[key],
        how=how,
        records=records,
        digest=digest,
        target_topic=topic,
        target_partition=partition,
        first_downstream=first,
        last_downstream=last,
        view=view,
        relay_version=side.relays[alias].version,
        source_topic_id=side.source_ids[alias].get(key.source.topic),
        target_topic_id=ids.get(topic),
    )
