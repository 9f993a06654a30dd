"""Verify: source, relay and target hold the same records, by count and by content; every difference is named.

What is compared is a fixed cut (`verify/cut.py`), so flows may go on running. Records that rules changed on their way are
compared with what the rules make of the relay's; of those that older rules changed, only their presence is checked.

Law E (accounted for): what was not compared is never called equal. Landed records that a flow has not republished are
differences of their own, and so are records that the relay holds twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.loops.hops import HOP_KEY
from mirrorlake.model.verify import MOST_DIFFERENCES, Difference, PartitionProof, VerifyReport
from mirrorlake.offsets import Clusters
from mirrorlake.progress import Tell, silent
from mirrorlake.verify.compare import Side, compare, held_by
from mirrorlake.verify.cut import SOURCE_KEY, FixedCut, LandedCount, Relays
from mirrorlake.verify.due import Bounds, owed, still_waiting
from mirrorlake.verify.expected import Views, expected_records

_PLACE = ["topic", "partition"]
# Downstream offsets `first..end - 1` of each target partition; None where its topic does not exist.
Spans = Mapping[TopicPartition, tuple[int, int] | None]


def verify_flow(
    flow: FlowConfig,
    *,
    lake: Lake,
    clusters: Clusters,
    cut: FixedCut,
    relays: Relays,
    views: Views,
    lost: Collection[str] = (),
    tell: Tell = silent,
) -> VerifyReport:
    """Compare the three places where a record of the flow stands; a source in `lost` is not asked.

    What the source no longer holds is compared between relay and target only; of a lake cluster the relay itself is the source,
    and its offsets are dense. `cut` is of every flow into this target, `relays` are of their sources and were taken after it.

    Raises:
        ClusterError: a cluster does not answer.
    """
    landed = {s: held for s, held in relays.landed(flow.source).items() if flow.carries(s.topic)}
    carried = sorted({s.topic for s in landed})
    relay = relays.records(flow.source).where(F.col("topic").isin(carried))
    remotes = {flow.remote_topic(topic) for topic in carried}
    pieces = _pieces(cut.maps.runs_frame().where(F.col("target_topic").isin(sorted(remotes))))
    mine = [piece for piece in pieces if piece.flow == flow.name]
    kept = _kept(cut.maps.withheld_frame().where(F.col("flow") == flow.name))
    at_source, at_target = sum(one.records for one in landed.values()), sum(piece.records for piece in mine)
    whole, phase = at_source + at_target, f"verify {flow.name}"
    tell(phase, 0, whole)
    differences = relays.doubles(flow.source, carried)
    if clusters.config.cluster(flow.source).is_lake:
        differences += _not_dense(landed)
    elif flow.source not in lost:
        differences += _against_source(lake, Side.of(flow.source, clusters), relay, landed)
    tell(phase, at_source, whole)
    target = Side.of(flow.target, clusters)
    spans = _spans(target, cut, pieces)
    differences += _against_target(lake, target, spans, cut, pieces, relays=relays, views=views)
    sent: Counter[SourcePartition] = Counter()
    places: dict[SourcePartition, set[tuple[str, int]]] = {s: {(s.topic, s.partition)} for s in landed}
    for piece in mine:
        sent[piece.source] += piece.records
        places.setdefault(piece.source, set()).add((piece.target.topic, piece.target.partition))
    mapped = {s: sent[s] + kept.get(s, (0, 0))[0] for s in landed}
    unsent, waiting = owed(relay, _bounds(flow, lake, cut, landed, mine, kept), mapped)
    differences += unsent
    left = still_waiting(relay, waiting, flow, clusters)
    differences += [
        Difference.at(s, one.first, where="relay", problem="not_republished", records=one.records)
        for s, one in left.items()
    ]
    tell(phase, whole, whole)
    compared = _compared(cut, spans, mine, flow.name)
    wrong = {(d.topic, d.partition) for d in differences if d.problem != "not_republished"}
    proofs = tuple(
        PartitionProof(
            topic=s.topic,
            generation=s.generation,
            partition=s.partition,
            landed=one.records,
            republished=sent[s],
            withheld=(withheld := kept.get(s, (0, 0))[0]),
            verified=0 if places[s] & wrong else compared[s],
            not_republished=(owing := left[s].records if s in left else 0),
            not_compared=max(0, one.records - withheld - compared[s] - owing),
        )
        for s, one in sorted(landed.items())
    )
    found = sorted(set(differences), key=lambda d: (d.where, d.topic, d.partition, d.offset))[:MOST_DIFFERENCES]
    return VerifyReport(flow=flow.name, equal=not found, partitions=proofs, differences=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """The runs of one flow between two partitions: how many records, and the first on both ends; `end` is downstream."""

    flow: str
    source: SourcePartition
    target: TopicPartition
    records: int
    first_upstream: int
    first: int
    end: int


def _pieces(runs: DataFrame) -> list[_Piece]:
    rows = runs.groupBy(
        "flow", "source_topic", "generation", "source_partition", "target_topic", "target_partition"
    ).agg(
        F.sum("record_count").alias("records"),
        F.min("first_upstream").alias("first_upstream"),
        F.min("first_downstream").alias("first"),
        F.max(F.col("first_downstream") + F.col("record_count")).alias("end"),
    )
    return [
        _Piece(
            flow=row.flow,
            source=SourcePartition(row.source_topic, row.generation, row.source_partition),
            target=TopicPartition(row.target_topic, row.target_partition),
            records=row.records,
            first_upstream=row.first_upstream,
            first=row["first"],
            end=row.end,
        )
        for row in rows.collect()
    ]


def _kept(withheld: DataFrame) -> dict[SourcePartition, tuple[int, int]]:
    """Count the withheld records of each source partition, and find the first offset."""
    rows = withheld.groupBy(*SOURCE_KEY).agg(
        F.sum("record_count").alias("records"), F.min("first_offset").alias("first")
    )
    return {
        SourcePartition(row.topic, row.generation, row.partition): (row.records, row["first"]) for row in rows.collect()
    }


def _against_source(
    lake: Lake, source: Side, relay: DataFrame, landed: Mapping[SourcePartition, LandedCount]
) -> list[Difference]:
    newest: dict[TopicPartition, SourcePartition] = {}
    for key in landed:
        tp = TopicPartition(key.topic, key.partition)
        if tp not in newest or newest[tp].generation < key.generation:
            newest[tp] = key
    existing = source.admin.describe({tp.topic for tp in newest})
    newest = {tp: key for tp, key in newest.items() if tp.topic in existing}
    earliest, ends = source.admin.earliest(newest), source.admin.latest(newest)
    # A log that went back ends before what was landed: of the rest only relay and target are left to compare.
    ranges = {
        tp: (max(earliest[tp], landed[key].first), min(landed[key].last + 1, ends[tp])) for tp, key in newest.items()
    }
    held = held_by(lake, source, ranges)
    if held is None:
        return []
    rows = [(tp.topic, newest[tp].generation, tp.partition, low, end) for tp, (low, end) in ranges.items() if low < end]
    spans = lake.spark.createDataFrame(rows, "topic string, generation int, partition int, low bigint, end bigint")
    mine = relay.join(F.broadcast(spans), SOURCE_KEY).where("offset >= low and offset < end").drop("low", "end")
    held = held.join(F.broadcast(spans.select(*SOURCE_KEY)), _PLACE)
    return compare(held, mine, keys=SOURCE_KEY, where="relay")


def _not_dense(landed: Mapping[SourcePartition, LandedCount]) -> list[Difference]:
    """Name the published partitions whose offsets are not 0, 1, 2, ..."""
    return [
        Difference.at(key, held.first, where="relay", problem="missing")
        for key, held in landed.items()
        if held.records != held.last + 1
    ]


def _spans(target: Side, cut: FixedCut, pieces: Iterable[_Piece]) -> Spans:
    firsts: dict[TopicPartition, int] = {}
    mapped: dict[TopicPartition, int] = {}
    for piece in pieces:
        firsts[piece.target] = min(firsts.get(piece.target, piece.first), piece.first)
        mapped[piece.target] = max(mapped.get(piece.target, piece.end), piece.end)
    existing = target.admin.describe({tp.topic for tp in firsts})
    earliest = target.admin.earliest([tp for tp in firsts if tp.topic in existing])
    return {
        tp: (max(earliest[tp], first), cut.ends.get(tp, mapped[tp])) if tp.topic in existing else None
        for tp, first in firsts.items()
    }


def _against_target(
    lake: Lake,
    target: Side,
    spans: Spans,
    cut: FixedCut,
    pieces: Iterable[_Piece],
    *,
    relays: Relays,
    views: Views,
) -> list[Difference]:
    gone = [Difference.at(tp, -1, where="target", problem="missing") for tp, span in spans.items() if span is None]
    ranges = {tp: span for tp, span in spans.items() if span is not None and span[0] < span[1]}
    held = held_by(lake, target, ranges)
    runs = cut.maps.runs_frame().where(F.col("target_topic").isin(sorted({tp.topic for tp in ranges})))
    expected = None if held is None else expected_records(relays, runs, views)
    if held is None or expected is None:
        return gone
    bounds = F.broadcast(
        lake.spark.createDataFrame(
            [(tp.topic, tp.partition, low, end) for tp, (low, end) in ranges.items()],
            "topic string, partition int, low bigint, end bigint",
        )
    )

    def within(frame: DataFrame) -> DataFrame:
        return frame.join(bounds, _PLACE).where("offset >= low and offset < end").drop("low", "end")

    place = [*_PLACE, "offset"]
    wanted = within(expected.records)
    placed = None if expected.placed is None else within(expected.placed)
    shared = _with_own_records(cut, pieces)
    if shared:
        known = wanted.select(*place) if placed is None else wanted.select(*place).unionByName(placed.select(*place))
        is_ours = _by_a_flow(shared)
        held = held.where(is_ours).unionByName(
            held.where(~is_ours).join(known, place, "left_semi").select(*held.columns)
        )
    if placed is not None:
        lost = placed.join(held, place, "left_anti").orderBy(*place).limit(MOST_DIFFERENCES)
        gone += [Difference.at(row, row.offset, where="target", problem="missing") for row in lost.collect()]
        held = held.join(placed, place, "left_anti")
    return gone + compare(wanted, held, keys=_PLACE, where="target")


def _with_own_records(cut: FixedCut, pieces: Iterable[_Piece]) -> dict[str, list[str]]:
    """Find the remote topics that the target itself may write to, each with the aliases that its flows come from.

    Every record that such a flow writes says so in its last hop (`model/loops/hops.py`); one without is not the flow's.
    """
    writers: dict[str, set[str]] = {}
    for piece in pieces:
        writers.setdefault(piece.target.topic, set()).add(piece.flow)
    return {
        topic: sorted({cut.flows[name].source for name in names})
        for topic, names in writers.items()
        if all(cut.flows[name].adds_hops for name in names)
    }


def _by_a_flow(shared: Mapping[str, Iterable[str]]) -> Column:
    """Tell whether a record is a flow's: its topic is nobody else's, or its last hop names a source of its flows."""
    hops = F.filter("headers", lambda header: header["key"] == HOP_KEY)
    alias = F.split_part(F.try_element_at(hops, F.lit(-1))["value"].cast("string"), F.lit("/"), F.lit(1))
    is_ours = ~F.col("topic").isin(sorted(shared))
    for topic, aliases in sorted(shared.items()):
        is_ours |= (F.col("topic") == topic) & F.coalesce(alias.isin(list(aliases)), F.lit(False))
    return is_ours


def _compared(cut: FixedCut, spans: Spans, mine: Iterable[_Piece], flow: str) -> Counter[SourcePartition]:
    """Count the records of each source partition that were compared on the target: what it still holds, up to the cut."""
    bounds = {tp: span or (0, 0) for tp, span in spans.items()}
    counts: Counter[SourcePartition] = Counter()
    clipped = []
    for piece in mine:
        low, end = bounds[piece.target]
        if low <= piece.first and piece.end <= end:
            counts[piece.source] += piece.records
        else:
            s, target = piece.source, piece.target
            clipped.append((s.topic, s.generation, s.partition, target.topic, target.partition, low, end))
    if not clipped:
        return counts
    keys = ["source_topic", "generation", "source_partition", "target_topic", "target_partition"]
    frame = cut.maps.lake.spark.createDataFrame(
        clipped,
        "source_topic string, generation int, source_partition int, target_topic string, target_partition int, "
        "low bigint, end bigint",
    )
    upto = F.least(F.col("first_downstream") + F.col("record_count"), "end")
    held = F.greatest(F.lit(0), upto - F.greatest("first_downstream", "low"))
    runs = cut.maps.runs_frame().where(F.col("flow") == flow).join(F.broadcast(frame), keys)
    for row in runs.groupBy(*keys[:3]).agg(F.sum(held).alias("records")).collect():
        counts[SourcePartition(row.source_topic, row.generation, row.source_partition)] += row.records
    return counts


def _bounds(
    flow: FlowConfig,
    lake: Lake,
    cut: FixedCut,
    landed: Iterable[SourcePartition],
    mine: Iterable[_Piece],
    kept: Mapping[SourcePartition, tuple[int, int]],
) -> dict[SourcePartition, Bounds]:
    """Find where the flow stands in each source partition that it owes something of.

    A flow whose `start` leaves the past out owes nothing before its first record. What precedes a takeover was sent by
    another mirror, unless a run before it says that the takeover never came about. What precedes the place at which a remote
    topic was accepted empty stood in a topic that was deleted.
    """
    firsts = {s: first for s, (_, first) in kept.items()}
    for piece in mine:
        firsts[piece.source] = min(firsts.get(piece.source, piece.first_upstream), piece.first_upstream)
    positions = cut.maps.positions[flow.name]
    taken_over = {**_taken_over(lake, flow.name), **cut.maps.begins.get(flow.name, {})}
    found = {}
    for s in landed:
        begins = taken_over.get(s, 0)
        if flow.start.kind == "earliest":
            begins = min(begins, firsts.get(s, begins))
        elif s in positions:
            begins = firsts.get(s, positions[s])
        else:
            continue
        found[s] = Bounds(begins=begins, position=positions.get(s, 0))
    return found


def _taken_over(lake: Lake, flow: str) -> dict[SourcePartition, int]:
    rows = lake.ask(
        "SELECT topic, generation, partition, max(position) AS begins FROM {positions} "
        "WHERE flow = :flow AND kind = 'taken_over' GROUP BY topic, generation, partition",
        flow=flow,
    )
    return {SourcePartition(row.topic, row.generation, row.partition): int(row.begins) for row in rows}
