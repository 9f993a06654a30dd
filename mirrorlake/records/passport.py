"""Build the passport of a record: its source coordinates, its file in the relay, and its outcome in every flow.

Law E (accounted for): every upstream offset is landed or explained, every landed record is republished or explained. The
passport says so in words, and says if the law is broken. It uses no Spark if the lake is a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mirrorlake.config import closest
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.lake import GAPS, landed_positions, load_incarnation_filter, remote_names
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import LEFT
from mirrorlake.model.withheld import FILTERED, QUARANTINED, SENT
from mirrorlake.offsets import OffsetMaps, load_offset_maps, to_mapped_range
from mirrorlake.records.landed_log import explain, read_landed
from mirrorlake.records.record import BrowsedRecord, LandedIn, Missing, Origin, Outcome, Passport, in_words

# Longer than most mapped ranges, and short beside a day of a busy partition.
_NEAR = 1_000_000


@dataclass(frozen=True, slots=True)
class _Fates:
    """A source of rows of `offset_map`: how to ask it, and the SQL of the rows."""

    ask: Callable[..., list[Any]]
    rows: str


class Registry:
    def __init__(self, context: Context) -> None:
        self.lake = context.lake
        self.flows = context.config.flows
        self._context = context

    def passport(self, cluster: str, where: TopicPartition, offset: int, *, generation: int | None = None) -> Passport:
        """Return the passport of the record at an offset of a source topic or a remote topic.

        `generation` is that of a source topic; None for the newest with this offset.
        """
        if self._is_source(cluster, where.topic):
            return self._of_source(cluster, where, offset, generation)
        for first in self._origins(cluster, where, offset):
            upstream = first.source.tp
            return self._of_source(first.cluster, upstream, first.offset, first.source.generation)
        into = [flow.name for flow in self.flows if flow.target == cluster]
        remotes = {
            flow.remote_topic(source.topic)
            for flow in self.flows
            if flow.target == cluster
            for source in self._reached(flow.source)
        }
        why = (
            f"none of {', '.join(into)} wrote it: another writer's record, a transaction's marker, or not known yet"
            if into
            else "no flow leads here"
        )
        return Passport(
            cluster=cluster,
            source=None,
            offset=offset,
            words=f"{cluster} {where}@{offset} is not a mirrored record: {why}{_meant(where.topic, remotes)}",
        )

    def _is_source(self, cluster: str, topic: str) -> bool:
        flows = [flow for flow in self.flows if flow.source == cluster]
        if any(flow.carries(topic) for flow in flows):
            return True
        # Records of an earlier selection stay in the relay and have passports.
        return bool(flows) and any(source.topic == topic for source in self._reached(cluster))

    def _reached(self, alias: str) -> Iterable[SourcePartition]:
        if not self.lake.exists(self.lake.relay_location(alias)):
            return ()
        return landed_positions(self.lake, alias).reached

    def _origins(self, cluster: str, where: TopicPartition, offset: int) -> tuple[Origin, ...]:
        flows = [flow for flow in self.flows if flow.target == cluster]
        if not flows:
            return ()
        found = tuple(
            _standing(flows, self._recorded(load_incarnation_filter(self.lake, flows).current_sql("")), where, offset)
        )
        # Only the ledgers may hold the newest mapped ranges.
        if not found and (known := self._known(flows)) is not None:
            found = tuple(_standing(flows, _Fates(known.ask, "{fates}"), where, offset))
        return found

    def _recorded(self, which: str) -> _Fates:
        return _Fates(self.lake.query, f"(SELECT * FROM {{offset_map}} WHERE {which})")  # noqa: S608  conditions of this lake

    def _known(self, flows: Sequence[FlowConfig]) -> OffsetMaps | None:
        try:
            return load_offset_maps(self._context, flows)
        except ClusterError:
            # Without the target's ledgers the tables are still valid, but may lack the newest outcomes.
            return None

    def _of_source(self, alias: str, where: TopicPartition, offset: int, generation: int | None) -> Passport:
        record, source = self._landed(alias, where, offset, generation)
        missing = None if record is not None else self._why_missing(alias, source, offset)
        flows = [flow for flow in self.flows if flow.source == alias]
        outcomes = tuple(self._outcomes(flows, source, offset, record, missing))
        return Passport(
            cluster=alias,
            source=source,
            offset=offset,
            words=in_words(alias, source, offset, missing, outcomes)
            + ("" if record is not None else _meant(where.topic, {one.topic for one in self._reached(alias)})),
            record=record,
            landed=None
            if record is None
            else LandedIn(file=self.lake.file_of(alias, source, offset), landed_at_ms=record.landed_at_ms or -1),
            missing=missing,
            outcomes=outcomes,
            came_from=self._origins(alias, where, offset),
        )

    def _landed(
        self, alias: str, where: TopicPartition, offset: int, generation: int | None
    ) -> tuple[BrowsedRecord | None, SourcePartition]:
        mine = [s for s in self._reached(alias) if (s.topic, s.partition) == (where.topic, where.partition)]
        lives = [generation] if generation is not None else sorted({1, *(source.generation for source in mine)})
        # The newest generation with this offset counts.
        for life in reversed(lives if mine else []):
            source = SourcePartition(where.topic, life, where.partition)
            for record in read_landed(self.lake, alias, source, Ranges.of([offset])):
                return record, source
        return None, SourcePartition(where.topic, max(lives), where.partition)

    def _why_missing(self, alias: str, source: SourcePartition, offset: int) -> Missing:
        if not self.lake.exists(self.lake.meta_location(GAPS)):
            return Missing(first=offset, last=offset, kind="not_landed")
        [found] = explain(self.lake, alias, source, Ranges.of([offset]))
        if found.kind == "unexplained" and self.lake.exists(self.lake.relay_location(alias)):
            landed = landed_positions(self.lake, alias)
            if offset >= landed.reached.get(source, 0):
                return Missing(first=offset, last=offset, kind="not_landed")
        return found

    def _outcomes(
        self,
        flows: Sequence[FlowConfig],
        source: SourcePartition,
        offset: int,
        record: BrowsedRecord | None,
        missing: Missing | None,
    ) -> Iterable[Outcome]:
        has_left = missing is not None and missing.kind in LEFT.values()
        if record is None and not has_left:
            for flow in flows:
                if flow.carries(source.topic):
                    words = (
                        "there was nothing to send" if missing and missing.kind != "not_landed" else "not landed yet"
                    )
                    yield Outcome(flow=flow.name, target=flow.target, status="not_landed", words=words)
            return
        known: OffsetMaps | None = None
        lives = load_incarnation_filter(self.lake, flows)
        found = _recorded_outcomes(flows, self._recorded(lives.current_sql()), source, offset)
        missing_in = [flow for flow in flows if flow.name not in found and flow.carries(source.topic)]
        if missing_in and (known := self._known(missing_in)) is not None:
            found |= _recorded_outcomes(missing_in, _Fates(known.ask, "{fates}"), source, offset)
        if (fallen := lives.stale_sql()) is not None:
            sent = self._recorded(f"kind = 'sent' AND {fallen}")
            for name, one in _recorded_outcomes(flows, sent, source, offset).items():
                words = f"{one.words}, in an earlier life of the topic that was deleted"
                found.setdefault(name, replace(one, status="in_a_deleted_topic", words=words))
        for each in flows:
            yield found.get(each.name) or self._not_recorded(each, source, offset, record, known)

    def _not_recorded(
        self,
        flow: FlowConfig,
        source: SourcePartition,
        offset: int,
        record: BrowsedRecord | None,
        known: OffsetMaps | None,
    ) -> Outcome:
        def outcome(status: Any, words: str) -> Outcome:
            return Outcome(flow=flow.name, target=flow.target, status=status, words=words)

        if flow.denies(source.topic):
            return outcome("not_carried", f"not carried: {source.topic} never leaves {flow.source}")
        if not flow.carries(source.topic):
            return outcome("not_carried", f"not carried: the flow does not take {source.topic}")
        if record is None:
            return outcome("left_the_relay", "not sent: it left the relay before the flow came to it")
        if flow.start.timestamp_ms is not None and record.timestamp_ms < flow.start.timestamp_ms:
            return outcome("not_carried", "not carried: it is older than the flow's start")
        if self.lake.query(remote_names(_TAKEN_OVER, flow), flow=flow.name, offset=offset, **asdict(source)):
            return outcome("not_carried", "not carried: it lies before the place where the flow took over")
        if known is None:
            return outcome("not_yet", f"not yet republished, as far as the lake knows: {flow.target} does not answer")
        position = known.positions.get(flow.name, {}).get(source, 0)
        if offset >= position:
            return outcome("not_yet", f"not yet republished: the flow goes on at offset {position}")
        return outcome(
            "unexplained",
            f"NOT accounted for: the flow is at offset {position} and never recorded it; mirrorlake verify",
        )


def _meant(topic: str, known: Collection[str]) -> str:
    """Return a hint with the closest known topic, or ""."""
    meant = "" if topic in known else closest(topic, known).rstrip()
    return f"; {meant}" if meant else ""


def _names(flows: Sequence[FlowConfig]) -> dict[str, FlowConfig]:
    return {name: flow for flow in flows for name in (flow.name, flow.redrive_name)}


def _standing(flows: Sequence[FlowConfig], fates: _Fates, where: TopicPartition, offset: int) -> Iterator[Origin]:
    names, values = _names(flows), {"offset": offset, "topic": where.topic, "partition": where.partition}
    text = f"SELECT * FROM {fates.rows} WHERE {_ON_TARGET}"  # noqa: S608  conditions of this lake
    # Ranges further back (a month of them) are read only if none begins near the offset.
    near = f"{text} AND first_downstream >= {offset - _NEAR} LIMIT 1"
    for row in fates.ask(near, names=[*names], **values) or fates.ask(f"{text} LIMIT 1", names=[*names], **values):
        flow, run = names[row.flow], to_mapped_range(row)
        yield Origin(flow=flow.name, cluster=flow.source, source=run.source, offset=run.upstream_of(offset))


def _recorded_outcomes(
    flows: Sequence[FlowConfig], fates: _Fates, source: SourcePartition, offset: int
) -> dict[str, Outcome]:
    """Return the newest outcome of a record by flow (or its redrive); omit flows that recorded none."""
    names, found = _names(flows), {}
    text = f"SELECT *, unix_micros(committed_at) AS at_us FROM {fates.rows} WHERE {_AT}"  # noqa: S608  conditions of this lake
    rows = fates.ask(text, names=[*names], offset=offset, **asdict(source))
    rows = [row for row in rows if not Ranges.from_structs(row.holes).contains(offset)]
    # A sent record wins, then a redrive that filtered it, then the newest row.
    for row in sorted(rows, key=lambda row: (_WEIGHT[row.kind], row.at_us)):
        flow, outcome = names[row.flow], _recorded(names[row.flow], row)
        if row.kind == SENT:
            place = TopicPartition(row.target_topic, row.target_partition)
            downstream = to_mapped_range(row).downstream_of(offset)
            again = ", sent again from the quarantine" if row.flow == flow.redrive_name else ""
            words = f"{flow.target} {place}@{downstream}{again}"
            found[flow.name] = replace(outcome, words=words, place=place, offset=downstream)
        else:
            why = f", because {row.reason}" if row.reason else ""
            found[flow.name] = replace(
                outcome,
                status=row.kind,
                words=f"{row.kind} by the rule {row.rule}{why}",
                rule=row.rule,
                rule_version=row.rule_version,
                reason=row.reason or None,
            )
    return found


_WEIGHT = {QUARANTINED: 0, FILTERED: 1, SENT: 2}


def _recorded(flow: FlowConfig, row: Any) -> Outcome:
    return Outcome(
        flow=flow.name,
        target=flow.target,
        status="republished",
        words="",
        lane=row.lane,
        ledger_seq=row.ledger_seq,
        committed_at_ms=row.at_us // 1000,
        redriven=row.flow == flow.redrive_name,
    )


_MINE = "topic = :topic AND generation = :generation AND partition = :partition"
_TAKEN_OVER = f"""
    SELECT 1 AS one FROM {{positions}}
    WHERE flow = :flow AND kind = 'taken_over' AND target_topic = <topic> AND {_MINE} AND position > :offset LIMIT 1
"""  # noqa: S608 - no value enters the text
_ON_TARGET = (
    "kind = 'sent' AND array_contains(:names, flow) AND target_topic = :topic AND target_partition = :partition "
    "AND first_downstream <= :offset AND first_downstream + record_count > :offset"
)
_AT = (
    "array_contains(:names, flow) AND source_topic = :topic AND generation = :generation AND source_partition = :partition "
    "AND first_upstream <= :offset AND last_upstream >= :offset"
)
