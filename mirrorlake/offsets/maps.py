"""The present offset map of flows: the table `offset_map`, and the newer records of the ledgers.

The ledger is the truth and the table its copy: while a republisher runs, or after one was killed, the newest
mapped ranges are in the ledger only. Later appends are not included. Ranges into deleted remote topics are left out
(law A).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin, Committed, describe_with_leaders, list_partitions, wait_until
from mirrorlake.lake import (
    OFFSET_MAP,
    IncarnationFilter,
    KnownTopic,
    Lake,
    LakeQuery,
    Row,
    SourceTopics,
    arrow_table,
    load_incarnation_filter,
    to_rows,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import LedgerRecord, merged_positions
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.remotes import BEGUN_AGAIN, LostTopic
from mirrorlake.model.withheld import SENT
from mirrorlake.republish import LedgerCopy, fate_rows, inspect_remote_topics, read_lanes

log = logging.getLogger(__name__)

# A commit takes milliseconds; a transaction whose sender died stays open until its time-out, a minute.
_STABLE_TIMEOUT_S = 10.0

Positions = Mapping[tuple[str, SourcePartition], Committed]
"""The commits of readers on one source, by reader and source partition."""

PositionsByFlow = Mapping[str, Positions]
"""The commits of readers on the sources of related flows, by flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedFlows:
    """A flow and those that share its remote topics, itself first; `topics` are each flow's source topics.

    If the flow writes hop headers, `hops` are all flows that do.
    """

    flows: tuple[FlowConfig, ...]
    topics: Mapping[str, Mapping[str, KnownTopic]]
    hops: tuple[FlowConfig, ...] = ()

    @property
    def flow(self) -> FlowConfig:
        return self.flows[0]

    @property
    def back(self) -> tuple[FlowConfig, ...]:
        """The flows that lead from the target to the source and write hop headers."""
        there, home = self.flow.target, self.flow.source
        return tuple(each for each in self.hops if (each.source, each.target) == (there, home))

    def way_back(self, topic: str) -> FlowConfig | None:
        """Return the flow that brings the remote topic of a topic back to the source."""
        remote = self.flow.remote_topic(topic)
        return next((each for each in self.back if each.carries(remote)), None)

    def shared_remotes(self) -> set[str]:
        """Return the first flow's remote topics with partitions that more than one source partition may feed."""
        mine = {self.flow.remote_topic(topic) for topic in self.topics[self.flow.name]}
        if self.flow.placement.kind != "keep" or self.back:
            return mine
        feeding = Counter(each.remote_topic(topic) for each in self.flows for topic in self.topics[each.name])
        return {remote for remote in mine if feeding[remote] > 1}


def related_flows(context: Context, flow: FlowConfig) -> RelatedFlows:
    """Return the flows that share a remote topic with a flow, and those that lead back to its source."""
    known: dict[str, dict[str, KnownTopic]] = {}

    def topics_of(one: FlowConfig) -> dict[str, KnownTopic]:
        if one.source not in known:
            known[one.source] = SourceTopics(context.lake, one.source).load()
        return {name: topic for name, topic in known[one.source].items() if one.carries(name)}

    all_flows, topics = context.config.flows, {flow.name: topics_of(flow)}
    mine = {flow.remote_topic(topic) for topic in topics[flow.name]}
    beside = (other for other in all_flows if other.target == flow.target and other.name != flow.name)
    sharing = [other for other in beside if mine & {other.remote_topic(topic) for topic in topics_of(other)}]
    hops = tuple(other for other in all_flows if other.adds_hops) if flow.adds_hops else ()
    related = RelatedFlows(flows=(flow, *sharing), topics=topics, hops=hops)
    return replace(related, topics=topics | {other.name: topics_of(other) for other in (*sharing, *related.back)})


def stable_ends(target: ClusterAdmin, remotes: Iterable[str], flows: Iterable[FlowConfig]) -> dict[TopicPartition, int]:
    """Return the downstream offsets up to which the flows' ledgers know every record of remote topics.

    Call this before reading the ledgers. A record below the last stable offset was committed, and so was the ledger
    record of its transaction, whose own marker may come a moment later and is waited for. A partition without a leader is
    left out. The result is {} if a transaction stays open, or if a flow delivers at least once: its unfinished sends
    cannot be distinguished.
    """
    flows, (states, leaderless) = list(flows), describe_with_leaders(target, remotes)
    led = {*list_partitions(states)} - leaderless
    if not led or any(flow.delivery != "exactly_once" for flow in flows):
        return {}
    stable = target.last_stable_offsets(led)
    ledgers = list_partitions(target.describe(flow.ledger_topic for flow in flows))
    written = target.high_watermarks(ledgers)

    def is_decided() -> bool:
        committed = target.last_stable_offsets(ledgers)
        return all(committed[lane] >= end for lane, end in written.items())

    if not wait_until(is_decided, timeout_s=_STABLE_TIMEOUT_S, interval_s=0.05):
        log.info("ledger.open_transaction flows=%s", ",".join(flow.name for flow in flows))
        return {}
    return stable


Copied = Mapping[tuple[str, int], int]
"""The `seq` of the newest ledger record that the table has, by flow and lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMaps:
    """What became of the records of some flows, and their positions.

    `positions` is the next upstream offset to republish of each source partition, by flow. `lost_topics` are remote
    topics that were lost and wait for a choice. `begins` is, by flow, the first upstream offset in a remote topic
    that was lost before.

    The other fields select the rows that count: `copied` is the newest ledger record of the table when it was read,
    `newer` are later rows from the ledgers, `current` is a condition in SQL.
    """

    lake: Lake
    positions: Mapping[str, Mapping[SourcePartition, int]]
    lost_topics: tuple[LostTopic, ...] = ()
    begins: Mapping[str, Mapping[SourcePartition, int]] = field(default_factory=dict)
    copied: Copied = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    newer: tuple[Row, ...] = ()
    current: str = "true"

    def ask(self, text: str, *, tables: Mapping[str, pa.Table] = MappingProxyType({}), **values: Any) -> list[Any]:
        return to_rows(self.table(text, tables=tables, **values))

    def table(self, text: str, *, tables: Mapping[str, pa.Table] = MappingProxyType({}), **values: Any) -> pa.Table:
        """Query these maps, and more `tables`.

        `{fates}` stands for rows of `offset_map` with `source`, the alias of the flow's source cluster; `{runs}` for
        those of sent records.
        """
        text = text.replace("{runs}", f"(SELECT * FROM {{fates}} WHERE kind = '{SENT}')")  # noqa: S608
        rows = (
            f"SELECT {_COLUMNS} FROM {{offset_map}} JOIN {{copied}} USING (flow, lane) WHERE ledger_seq <= seq "  # noqa: S608
            f"UNION ALL SELECT {_COLUMNS} FROM {{newer}}"
        )
        fates = f"(SELECT {_COLUMNS}, source FROM ({rows}) JOIN {{known_flows}} USING (flow) WHERE {self.current})"  # noqa: S608
        text = text.replace("{fates}", fates)
        # A running flow may append the newer rows to the table before the query runs.
        copied = [{"flow": flow, "lane": lane, "seq": seq} for (flow, lane), seq in self.copied.items()]
        flows = [{"flow": flow, "source": source} for flow, source in self.sources.items()]
        own = {
            "copied": pa.Table.from_pylist(copied, _COPIED),
            "newer": arrow_table(OFFSET_MAP, self.newer),
            "known_flows": pa.Table.from_pylist(flows, _FLOWS),
        }
        return self.lake.query_table(LakeQuery(text, tables={**own, **tables}, values=values))

    def resume_blocker(self, flow: str, source: SourcePartition, offset: int, republished_from: int | None) -> str:
        """Return why a reader at `offset` cannot resume in a remote topic that was lost, or "" if none was lost (law A).

        `republished_from` is the first upstream offset in the present topic, or None if the topic has no record yet.
        """
        for one in self.lost_topics:
            if one.flow == flow and source.topic in one.topics:
                return one.cause
        begins = self.begins.get(flow, {}).get(source, 0)
        if republished_from is not None or offset >= begins:
            return ""
        return f"records between {offset} and {begins} were in an earlier remote topic, which was deleted"


_COPIED = pa.schema({"flow": pa.string(), "lane": pa.int32(), "seq": pa.int64()})
_FLOWS = pa.schema({"flow": pa.string(), "source": pa.string()})
_COLUMNS = ", ".join(OFFSET_MAP.columns)


def to_mapped_range(row: Any) -> MappedRange:
    return MappedRange(
        source=SourcePartition(row.source_topic, row.generation, row.source_partition),
        target=TopicPartition(row.target_topic, row.target_partition),
        first_upstream=row.first_upstream,
        last_upstream=row.last_upstream,
        first_downstream=row.first_downstream,
        count=row.record_count,
        holes=tuple((hole["first"], hole["length"]) for hole in row.holes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LedgerTail:
    """The end of a flow's ledger; `newer` are rows that the table lacks, `is_trimmed` if some before them are gone."""

    positions: Mapping[SourcePartition, int]
    lost: Sequence[LostTopic] = ()
    newer: Sequence[Row] = ()
    is_trimmed: bool = False


def load_offset_maps(context: Context, flows: Iterable[FlowConfig], by_table: Sequence[FlowConfig] = ()) -> OffsetMaps:
    """Read the table and the ledgers of flows, and of flows `by_table` the table alone; the ledgers in parallel."""
    lake, flows = context.lake, list(flows)
    # Before the rows, which may then be newer than these positions, never older (law A).
    known = [_LedgerTail(positions=LedgerCopy(lake, flow).positions()) for flow in by_table]
    copied = _read_copied(lake)
    tails = _read_ledgers(copied, flows, context)
    # A ledger is trimmed as soon as the table has its records: they may have moved since it was read.
    if any(tail.is_trimmed for tail in tails) and (now_copied := _read_copied(lake)) != copied:
        copied, tails = now_copied, _read_ledgers(now_copied, flows, context)
    flows, tails = [*flows, *by_table], tails + known
    lost, sources = [one for tail in tails for one in tail.lost], {flow.name: flow.source for flow in flows}
    current = replace(load_incarnation_filter(lake, flows), lost=tuple(lost))
    return OffsetMaps(
        lake=lake,
        positions={flow.name: tail.positions for flow, tail in zip(flows, tails, strict=True)},
        lost_topics=current.lost,
        begins=_read_beginnings(lake, current) if current else {},
        copied={(flow, lane): seq for (flow, lane), seq in copied.items() if flow in sources},
        sources=sources,
        newer=tuple(row for tail in tails for row in tail.newer),
        current=current.current_sql(),
    )


def load_related_maps(context: Context, related: RelatedFlows, lost: Collection[str] = ()) -> OffsetMaps:
    """Read the maps that decide the positions of readers on a flow's remote topics.

    If the flow's source is in `lost` or does not answer, the table alone is safe for the way back: records that only
    its ledgers know count as unread (law A).
    """
    flows, flow = with_redrives(context, related.flows), related.flow
    if flow.source not in lost:
        try:
            return load_offset_maps(context, [*flows, *related.back])
        except ClusterError as error:
            if not related.back or error.facts.get("alias") == flow.target:
                raise
    return load_offset_maps(context, flows, related.back)


def with_redrives(context: Context, flows: Sequence[FlowConfig]) -> list[FlowConfig]:
    """Return flows of one target, and their redrives that have sent something: as the table has it, or a ledger.

    The table may lack what a redrive that was killed has sent, and a lake that was made again what old ones have.
    """
    again = {flow.redrive_name: flow.redrive() for flow in flows}
    text = "SELECT DISTINCT flow FROM {offset_map} WHERE array_contains(:names, flow)"
    known = {row.flow for row in context.lake.query(text, names=[*again], missing_ok=True)}
    ledgers = context.admin(flows[0].target).describe(one.ledger_topic for one in again.values())
    return [*flows, *(one for name, one in again.items() if name in known or one.ledger_topic in ledgers)]


def _read_beginnings(lake: Lake, current: IncarnationFilter) -> dict[str, dict[SourcePartition, int]]:
    """Return the first offsets in remote topics that were lost, by flow, as chosen last."""
    rows = lake.query(
        "SELECT flow, topic, generation, partition, max_by(position, observed_at) AS begins FROM {positions} "  # noqa: S608
        f"WHERE kind = :kind AND array_contains(:flows, flow) AND {current.named_sql('topic')} "
        "GROUP BY flow, topic, generation, partition",
        kind=BEGUN_AGAIN,
        flows=[flow.name for flow in current.flows],
    )
    found: dict[str, dict[SourcePartition, int]] = {}
    for row in rows:
        found.setdefault(row.flow, {})[SourcePartition(row.topic, row.generation, row.partition)] = int(row.begins)
    return found


def _read_copied(lake: Lake) -> Copied:
    rows = lake.query("SELECT flow, lane, max(ledger_seq) AS seq FROM {offset_map} GROUP BY flow, lane")
    return {(row.flow, row.lane): int(row.seq) for row in rows}


def _read_ledgers(copied: Copied, flows: Sequence[FlowConfig], context: Context) -> list[_LedgerTail]:
    # Opened before the threads start: clients of one cluster are shared, and threads would open them twice.
    admins = [context.admin(flow.target) for flow in flows]
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(partial(_read_ledger, copied, context), flows, admins))


def _read_ledger(copied: Copied, context: Context, flow: FlowConfig, target: ClusterAdmin) -> _LedgerTail:
    newer, is_trimmed = list[LedgerRecord](), False
    with closing(context.ledger(flow)) as reader:
        last = read_lanes(reader, target, flow.ledger_topic)
        for lane, newest in last.items():
            before = copied.get((flow.name, lane), -1)
            if newest is not None and newest.seq > before:
                records = [record for _, record in reader.since(lane, 0)]
                is_trimmed |= bool(records) and records[0].seq > before + 1
                newer += (record for record in records if record.seq > before)
    sent = merged_positions(last, flow.remote_topic)
    lost, _ = inspect_remote_topics(flow, target, sent)
    return _LedgerTail(positions=sent.positions, lost=lost, newer=fate_rows(flow.name, newer), is_trimmed=is_trimmed)
