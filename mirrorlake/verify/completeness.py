"""Find landed records that a flow's ledger skipped (lost), and those not yet sent (pending).

Law E (accounted for): every landed record is republished, withheld, or named here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.lake import FixedRelay, Lake, remote_names
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import merged_positions
from mirrorlake.model.ranges import OffsetRange, Ranges
from mirrorlake.model.verify import Difference
from mirrorlake.republish import read_lanes
from mirrorlake.verify.content import Offsets
from mirrorlake.verify.cut import FixedCut, read_processed_offsets
from mirrorlake.verify.target_end import FeedSummary

# A running flow commits every few seconds; without a commit for this long it is idle.
_IDLE_MS = 20_000
_CATCH_UP_TIMEOUT_S = 60.0
_MAX_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecords:
    """Landed records of one source partition that the flow has not sent: their count, first and last offset."""

    records: int
    first: int
    last: int


class LostRecords(NamedTuple):
    source: SourcePartition
    span: OffsetRange
    difference: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBounds:
    """The offsets of one source partition that a flow has to send: from `begins`; sent up to `position`."""

    begins: int
    position: int

    @property
    def span(self) -> Ranges:
        return Ranges([(self.begins, self.position)])


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldCount:
    """The count of records of a source partition that a flow withheld, and the first offset."""

    records: int
    first: int


def find_send_bounds(
    flow: FlowConfig,
    lake: Lake,
    cut: FixedCut,
    landed: Iterable[SourcePartition],
    mine: Iterable[FeedSummary],
    kept: Mapping[SourcePartition, WithheldCount],
) -> dict[SourcePartition, SendBounds]:
    """Return the range to send of each source partition that the flow has to send.

    A flow with a later `start` owes nothing before its first record. Records before a takeover were sent by another mirror,
    unless an earlier mapped range shows that the takeover never happened. Records before the position at which an empty remote
    topic was accepted were in the deleted topic.
    """
    firsts = _find_first_offsets(mine, kept)
    positions = cut.maps.positions[flow.name]
    taken_over = {**_read_takeover_offsets(lake, flow), **cut.maps.begins.get(flow.name, {})}
    found = {}
    for s in landed:
        begins = taken_over.get(s, 0)
        if flow.start.kind == "earliest":
            begins = min(begins, firsts.get(s, begins))
        elif s in positions:
            begins = firsts.get(s, positions[s])
        else:
            continue
        found[s] = SendBounds(begins=begins, position=positions.get(s, 0))
    return found


def _find_first_offsets(
    mine: Iterable[FeedSummary], kept: Mapping[SourcePartition, WithheldCount]
) -> dict[SourcePartition, int]:
    firsts = {s: one.first for s, one in kept.items()}
    for piece in mine:
        s = piece.key.source
        firsts[s] = min(firsts.get(s, piece.first_upstream), piece.first_upstream)
    return firsts


def _read_takeover_offsets(lake: Lake, flow: FlowConfig) -> dict[SourcePartition, int]:
    taken = (
        "SELECT topic, generation, partition, max(position) AS begins FROM {positions} "
        "WHERE flow = :flow AND kind = 'taken_over' AND target_topic = <topic> GROUP BY topic, generation, partition"
    )
    rows = lake.query(remote_names(taken, flow), flow=flow.name)
    return {SourcePartition(row.topic, row.generation, row.partition): int(row.begins) for row in rows}


def count_withheld(cut: FixedCut, flow: str) -> dict[SourcePartition, WithheldCount]:
    rows = cut.maps.ask(
        "SELECT source_topic, generation, source_partition, sum(record_count) AS records, min(first_upstream) AS first "
        "FROM {fates} WHERE flow = :flow AND kind <> 'sent' GROUP BY source_topic, generation, source_partition",
        flow=flow,
    )
    return {
        SourcePartition(row.source_topic, row.generation, row.source_partition): WithheldCount(
            records=int(row.records), first=int(row.first)
        )
        for row in rows
    }


def find_lost_and_pending(
    flow: str,
    relay: FixedRelay,
    bounds: Mapping[SourcePartition, SendBounds],
    cut: FixedCut,
    mapped: Mapping[SourcePartition, int],
    removed: Mapping[SourcePartition, Ranges],
    due: Mapping[SourcePartition, Ranges],
) -> tuple[list[LostRecords], dict[SourcePartition, PendingRecords]]:
    """Find landed records that the ledger skipped, and those not yet sent.

    Only partitions in `bounds` have to be sent. `mapped` counts records sent or withheld, `removed` are offsets that left the
    relay, `due` offsets not proven yet. File statistics show whether any are lost; only then are offsets read.
    """
    lost: list[LostRecords] = []
    waiting: dict[SourcePartition, PendingRecords] = {}
    for source, one in bounds.items():
        gone = removed.get(source, Ranges()) & one.span
        done = relay.count(source, OffsetRange(one.begins, one.position))
        if gone:
            # Counts prove nothing if records left the relay; proven offsets need no check.
            lost += _find_lost(flow, source, relay, due.get(source, Ranges()) & one.span, cut, gone)
        elif done != mapped.get(source, 0):
            lost += _find_lost(flow, source, relay, one.span, cut, gone)
        left = _find_pending(relay, source, one.position)
        if left is not None:
            waiting[source] = left
    return lost, waiting


def _find_pending(relay: FixedRelay, source: SourcePartition, position: int) -> PendingRecords | None:
    held = relay.landed.get(source)
    if held is None or held.last < position:
        return None
    span = OffsetRange(position, held.last + 1)
    first = relay.offsets(source, span)[0]
    return PendingRecords(records=relay.count(source, span), first=int(first), last=held.last)


def _find_lost(
    flow: str, source: SourcePartition, relay: FixedRelay, among: Ranges, cut: FixedCut, gone: Ranges
) -> list[LostRecords]:
    if not among:
        return []
    held = np.unique(relay.offsets(source, OffsetRange(among.first, among.end)))
    processed = read_processed_offsets(flow, source, cut)
    unknown = np.flatnonzero(among.contains(held) & ~processed.find(held)[1])
    stretches = np.split(unknown, np.flatnonzero(np.diff(unknown) > 1) + 1)
    found = [_lost(source, held[stretch], where="target") for stretch in stretches if len(stretch)]
    for span in (Ranges(processed.upstream_spans()) & among) - gone:
        low, high = np.searchsorted(held, span)
        if high - low != span.end - span.first:
            absent = np.setdiff1d(np.arange(span.first, span.end), held[low:high])
            found.append(_lost(source, absent, where="relay"))
    return found[:_MAX_SHOWN]


def _lost(source: SourcePartition, offsets: Offsets, *, where: str) -> LostRecords:
    span = OffsetRange(int(offsets[0]), int(offsets[-1]) + 1)
    difference = Difference.at(source, span.first, where=where, problem="missing", records=len(offsets))
    return LostRecords(source, span, difference)


def wait_for_pending(
    relay: FixedRelay, waiting: Mapping[SourcePartition, PendingRecords], flow: FlowConfig, context: Context
) -> dict[SourcePartition, PendingRecords]:
    """Wait while a running flow sends its pending records, and return those that are still pending."""
    if not waiting:
        return {}
    reached: dict[SourcePartition, int] = {}

    def is_over() -> bool:
        last = read_lanes(ledger, context.admin(flow.target), flow.ledger_topic)
        reached.update(merged_positions(last, flow.remote_topic).positions)
        newest = max((record.committed_at_ms for record in last.values() if record), default=0)
        has_come = all(reached.get(source, 0) > one.last for source, one in waiting.items())
        return has_come or time.time() * 1000 - newest > _IDLE_MS

    with context.ledger(flow) as ledger, suppress(RetryError):
        Retrying(
            retry=retry_if_result(lambda over: not over),
            stop=stop_after_delay(_CATCH_UP_TIMEOUT_S),
            wait=wait_fixed(0.25),
        )(is_over)
    left = {source: one for source, one in waiting.items() if reached.get(source, 0) <= one.last}
    for source in list(left):
        if reached.get(source, 0) > left[source].first:
            now = _find_pending(relay, source, reached[source])
            if now is not None:
                left[source] = now
    return left
