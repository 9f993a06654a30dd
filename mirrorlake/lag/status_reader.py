"""Read the status of flows from one snapshot of all positions, and the newest samples where records wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError, MirrorlakeError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lag.forecast import Earliest, Expiry, next_expiry
from mirrorlake.lag.hanging_transactions import OpenTransaction
from mirrorlake.lag.hop_verdicts import HopKey
from mirrorlake.lag.judge import RetentionLookup, read_earliest
from mirrorlake.lag.objectives import judge_objectives, measured_rto
from mirrorlake.lag.partition_status import CAUGHT_UP, TOPIC_LOST, PartitionStatus, compute_rates, judge_partition
from mirrorlake.lag.snapshot import PositionSnapshot
from mirrorlake.lag.status import FlowStatus, Status
from mirrorlake.lag.time_lag import FlowPosition, LagSample, Readers, age_ms, read_next_timestamps, read_time_lags
from mirrorlake.lake import Lake, Subject, from_micros, proven_until
from mirrorlake.model.control import ControlState, Pause
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import merged_positions
from mirrorlake.model.remotes import LostTopic
from mirrorlake.render import format_duration, format_time
from mirrorlake.republish import inspect_remote_topics

log = logging.getLogger(__name__)

_RECENT_MS = 60_000

Windows = Mapping[tuple[str, SourcePartition], Sequence[LagSample]]
"""The newest samples of the hop `republished`, oldest first, by flow and partition."""

TransactionFinder = Callable[[str, Mapping[TopicPartition, int]], Mapping[TopicPartition, OpenTransaction]]
"""Find the hanging transactions of a source by alias, from the last stable offsets of its partitions."""


def read_status(
    flows: Sequence[FlowConfig],
    snapshot: PositionSnapshot,
    *,
    lake: Lake,
    target: Callable[[str], ClusterAdmin],
    readers: Readers,
    state: ControlState,
    retention_of: RetentionLookup | None = None,
    windows: Callable[[], Windows] = dict,
    find_transactions: TransactionFinder = lambda _alias, _stable: {},
) -> Status:
    """Return the status of each flow at one snapshot.

    A flow gets only an error and its time if its source or target did not answer.
    """
    silent, remotes = _read_remotes(flows, snapshot, target)
    every, flows = flows, [flow for flow in flows if flow.name not in silent]
    at, positions = snapshot.observed_at, {flow.name: snapshot.positions_of(flow) for flow in flows}
    lags, unlanded = _read_ages(flows, snapshot, positions, lake=lake, readers=readers)
    sampled = windows() if any(lag != 0 for lag in lags.values()) else {}
    stamps, sources = {**unlanded}, {flow.name: flow.source for flow in flows}
    for (name, source), lag in lags.items():
        # Records that are not landed are no older than landed ones that wait, so the source need not be read.
        place = sources[name], source
        if lag is not None and place not in stamps:
            stamps[place] = int(at.timestamp() * 1000) - lag
    known = _Readings(
        at=at,
        lags=lags,
        unlanded=unlanded,
        sampled=sampled,
        expiries=_forecast_expiries(
            _find_unlanded(flows, positions, stamps, at=at), lake=lake, retention_of=retention_of, at=at
        ),
        transactions={
            alias: _find_hanging(alias, flows, positions, find_transactions)
            for alias in {flow.source for flow in flows}
        },
    )
    rested = {flow.name: _rested(flow, known, lake) for flow in flows}
    rto = measured_rto(lake, flows)
    found = {name: _unknown_status(*silent[name], state, at=at, lake=lake) for name in silent}
    for flow in flows:
        landed, topics = snapshot.landed[flow.source].reached, {tp.topic for tp in positions[flow.name]}
        held = [one.shared_by(topics, flow.remote_topic) for one in remotes[flow.name]]
        lost = {topic: one.cause for one in held for topic in one.topics}
        paused = state.covering(flow.name, flow.source, flow.target)
        proven = proven_until(lake, flow)
        rows = [
            _partition_status(
                flow,
                row,
                known,
                lost=lost.get(tp.topic),
                pause=paused(tp.topic),
                is_landed=row.source in landed,
                rested=rested[flow.name],
                proven_until=proven.get(row.source),
            )
            for tp, row in sorted(positions[flow.name].items(), key=lambda item: (item[0].topic, item[0].partition))
        ]
        parked = state.of_flow(flow.name, flow.source)
        status = FlowStatus(flow=flow.name, partitions=tuple(rows), observed_at=at, held=tuple(held), parked=parked)
        objectives = judge_objectives([flow], {flow.name: status.time_lag_ms}, rto)
        found[flow.name] = replace(status, objectives=objectives[0] if objectives else None)
    return Status(flows=tuple(found[flow.name] for flow in every), observed_at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Readings:
    at: datetime
    lags: Mapping[tuple[str, SourcePartition], int | None]
    unlanded: Mapping[tuple[str, SourcePartition], int | None]
    sampled: Windows
    expiries: Mapping[tuple[str, SourcePartition], Expiry]
    transactions: Mapping[str, Mapping[TopicPartition, OpenTransaction]]


def _read_remotes(
    flows: Sequence[FlowConfig], snapshot: PositionSnapshot, target: Callable[[str], ClusterAdmin]
) -> tuple[dict[str, tuple[FlowConfig, Subject, ClusterError]], dict[str, Sequence[LostTopic]]]:
    """Return the flows of which somebody did not answer, and the lost remote topics of the others."""
    silent: dict[str, tuple[FlowConfig, Subject, ClusterError]] = {}
    remotes: dict[str, Sequence[LostTopic]] = {}
    for flow in flows:
        subjects = (("cluster", flow.source), ("relay", flow.source), ("flow", flow.name))
        if (subject := next((one for one in subjects if one in snapshot.errors), None)) is not None:
            silent[flow.name] = flow, subject, snapshot.errors[subject]
            continue
        last = snapshot.lanes[flow.name]
        try:
            admin = target(flow.target)
            remotes[flow.name], _ = inspect_remote_topics(flow, admin, merged_positions(last, flow.remote_topic))
        except ClusterError as error:
            # The target answered for the snapshot, and stopped answering since.
            silent[flow.name] = flow, ("flow", flow.name), error
    return silent, remotes


def _read_ages(
    flows: Sequence[FlowConfig],
    snapshot: PositionSnapshot,
    positions: Mapping[str, Mapping[TopicPartition, FlowPosition]],
    *,
    lake: Lake,
    readers: Readers,
) -> tuple[dict[tuple[str, SourcePartition], int | None], dict[tuple[str, SourcePartition], int | None]]:
    """Return the time lags by flow, and the timestamps of the next records to land where the relay cannot tell, by alias."""
    lags: dict[tuple[str, SourcePartition], int | None] = {}
    for flow in flows:
        rows, landed = positions[flow.name].values(), snapshot.landed[flow.source].reached
        found = read_time_lags(lake, flow.source, flow.name, rows, landed=landed, now=snapshot.observed_at)
        lags |= {(flow.name, source): lag for source, lag in found.items()}
    ends = {
        (flow.source, row.source): row.landed
        for flow in flows
        for row in positions[flow.name].values()
        if lags[flow.name, row.source] is None
    }
    return lags, read_next_timestamps(readers, ends)


def _partition_status(
    flow: FlowConfig,
    row: FlowPosition,
    known: _Readings,
    *,
    lost: str | None,
    pause: Pause | None,
    is_landed: bool,
    rested: datetime | None,
    proven_until: int | None,
) -> PartitionStatus:
    at, topic, partition = known.at, row.source.topic, row.source.partition
    offset_lag, time_lag = max(0, row.end - row.republished), known.lags[flow.name, row.source]
    if time_lag is None and (flow.source, row.source) in known.unlanded:
        time_lag = age_ms(known.unlanded[flow.source, row.source], at)
    expiry = known.expiries.get((flow.source, row.source))
    transaction = known.transactions[flow.source].get(TopicPartition(topic, partition))
    state, why = _judge_state(
        lost=lost,
        expiry=expiry,
        pause=pause,
        transaction=transaction,
        waits=offset_lag > 0,
        is_landed=is_landed,
        at=at,
    )
    sample = LagSample(
        observed_at=at, position=row.republished, end_position=row.end, offset_lag=offset_lag, time_lag_ms=time_lag
    )
    earlier = known.sampled.get((flow.name, row.source), ())
    if sample.waiting == 0:
        # Nothing waits, so the first sample suffices for the rates.
        earlier = earlier[:1]
    # Another sampler may have written newer samples; this snapshot is the last of the window.
    window = [*(one for one in earlier if one.observed_at < at), sample]
    since = None if pause is None else pause.since
    judged = judge_partition(window, state=state, known_reason=why, since=since, rested=rested, now=at)
    rates = compute_rates(window)
    return PartitionStatus(
        topic=topic,
        partition=partition,
        source_end=row.end,
        landed=row.landed,
        republished=row.republished,
        offset_lag=offset_lag,
        time_lag_ms=time_lag,
        verdict=judged.verdict.name,
        state=state,
        reason=judged.reason,
        since=judged.since,
        in_per_s=rates.in_per_s,
        out_per_s=rates.out_per_s,
        eta_ms=rates.eta_ms,
        proven_until=proven_until,
        expires_in_ms=None if expiry is None else expiry.in_ms,
        expires_why=None if expiry is None else expiry.reason,
        blocked_offsets=0 if transaction is None else transaction.offsets,
        blocked_ms=None if transaction is None else age_ms(transaction.since_ms, at),
    )


def _judge_state(
    *,
    lost: str | None,
    expiry: Expiry | None,
    pause: Pause | None,
    transaction: OpenTransaction | None,
    waits: bool,
    is_landed: bool,
    at: datetime,
) -> tuple[str, str]:
    """Return the state of a partition, one of `STATES`, and its reason."""
    if lost is not None:
        return TOPIC_LOST, lost
    if expiry is not None and expiry.is_soon:
        return "expiring", f"not landed, deleted by the source in {format_duration(expiry.in_ms)}"
    if pause is not None:
        return "paused", str(pause)
    if transaction is not None:
        return "blocked", transaction.describe(at)
    if not waits:
        return CAUGHT_UP, ""
    return ("behind", "") if is_landed else ("not_started", "nothing was landed yet")


def _unknown_status(
    flow: FlowConfig, subject: Subject, error: ClusterError, state: ControlState, *, at: datetime, lake: Lake
) -> FlowStatus:
    """Return the status of a flow whose source, relay or target (`subject`) did not answer."""
    since = _last_answer(subject, lake)
    pause = state.of_stream(flow.name, flow.target) or state.of_cluster(flow.source)
    why = [str(pause)] if pause else []
    why.append(error.cause if since is None else f"{error.cause}; its last answer was at {format_time(since)}")
    return FlowStatus(
        flow=flow.name,
        partitions=(),
        observed_at=at,
        parked=state.of_flow(flow.name, flow.source),
        unknown="; ".join(why),
        away=flow.target if subject[0] == "flow" else flow.source,
        answered_at=since,
    )


def _rested(flow: FlowConfig, known: _Readings, lake: Lake) -> datetime | None:
    """Return the last sample of a flow whose records wait and whose window has none: nobody samples it any more."""
    is_young = any(lag != 0 for (name, _), lag in known.lags.items() if name == flow.name)
    has_samples = any(name == flow.name for name, _ in known.sampled)
    return _last_answer(("flow", flow.name), lake) if is_young and not has_samples else None


def _last_answer(subject: Subject, lake: Lake) -> datetime | None:
    rows = lake.query_rows(_ANSWERED, missing_ok=True, subject=subject[0], name=subject[1])
    return rows[0].answered_at if rows else None


_ANSWERED = """
    SELECT max(observed_at) AS answered_at FROM {samples} WHERE subject = :subject AND name = :name AND error IS NULL
"""


def _find_hanging(
    alias: str,
    flows: Iterable[FlowConfig],
    positions: Mapping[str, Mapping[TopicPartition, FlowPosition]],
    find_transactions: TransactionFinder,
) -> Mapping[TopicPartition, OpenTransaction]:
    ends = {tp: row.end for flow in flows if flow.source == alias for tp, row in positions[flow.name].items()}
    try:
        return find_transactions(alias, ends) if ends else {}
    except MirrorlakeError as error:
        log.info("status.transactions_not_known source=%s why=%s", alias, error.cause)
        return {}


@dataclass(frozen=True, slots=True)
class _Unlanded:
    """A source partition with records that are not landed; `is_recent` if they came a moment ago."""

    sample: LagSample
    hop: HopKey
    is_recent: bool


def _find_unlanded(
    flows: Iterable[FlowConfig],
    positions: Mapping[str, Mapping[TopicPartition, FlowPosition]],
    stamps: Mapping[tuple[str, SourcePartition], int | None],
    *,
    at: datetime,
) -> dict[tuple[str, SourcePartition], _Unlanded]:
    """Return the source partitions with records that are not landed, by source; each once, however many flows carry it."""
    waiting = {
        (flow.source, row.source): (row, flow.name)
        for flow in flows
        for row in positions[flow.name].values()
        if row.landed < row.end
    }
    found = {}
    for (alias, source), (row, flow) in waiting.items():
        stamp = stamps.get((alias, source))
        if stamp is None and (alias, source) in stamps:
            # Nothing but markers of transactions follows.
            continue
        sample = LagSample(
            observed_at=at,
            position=row.landed,
            end_position=row.end,
            offset_lag=row.end - row.landed,
            waiting_since=None if stamp is None else from_micros(stamp * 1000),
        )
        hop = HopKey(
            flow=flow,
            source=alias,
            topic=source.topic,
            generation=source.generation,
            partition=source.partition,
            hop="landed",
            cluster=alias,
        )
        is_recent = stamp is not None and age_ms(stamp, at) <= _RECENT_MS
        found[alias, source] = _Unlanded(sample, hop, is_recent)
    return found


def _forecast_expiries(
    unlanded: Mapping[tuple[str, SourcePartition], _Unlanded],
    *,
    lake: Lake,
    retention_of: RetentionLookup | None,
    at: datetime,
) -> dict[tuple[str, SourcePartition], Expiry]:
    """Forecast by source partition when its first record that is not landed is deleted."""
    if retention_of is None or not unlanded:
        return {}
    # Retention is not read for records that came a moment ago.
    old = [one.hop for one in unlanded.values() if not one.is_recent]
    limits = retention_of(old) if old else {}
    earliest, found = read_earliest(lake, (source.topic for _, source in unlanded)), {}
    for key, one in unlanded.items():
        starts = earliest.get(key, [])
        if starts:
            # Only changes are written, so the last start of the log still holds.
            starts = [*starts, Earliest(observed_at=at, offset=starts[-1].offset)]
        expiry = next_expiry(one.sample, now=at, retention_ms=limits.get(one.hop), earliest=starts)
        if expiry is not None:
            found[key] = expiry
    return found
