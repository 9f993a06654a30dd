"""Judge a snapshot: the status of each partition, and the verdict on each hop, by this snapshot and the samples before it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, MirrorlakeError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import Lake, Subject, proven_until
from mirrorlake.model.control import ControlState, Pause
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import merged_positions
from mirrorlake.model.remotes import LostTopic
from mirrorlake.render import format_duration, format_time
from mirrorlake.republish import inspect_remote_topics
from mirrorlake.status.ages import OpenTransaction
from mirrorlake.status.hops import HopVerdict, LagVerdict
from mirrorlake.status.objectives import judge_objectives, measured_rto
from mirrorlake.status.snapshot import FlowPosition, HopKey, PositionSnapshot
from mirrorlake.status.status import CAUGHT_UP, TOPIC_LOST, FlowStatus, PartitionStatus, Status
from mirrorlake.status.verdict import (
    CatchUp,
    Judgement,
    LagSample,
    RetentionRisk,
    Verdict,
    age_ms,
    catch_up,
    judge,
    retention_risk,
    worst,
)

log = logging.getLogger(__name__)

# Retention is not read for records that came a moment ago.
_RECENT_MS = 60_000
_AT_LEAST = {"parked": Verdict.STOP, TOPIC_LOST: Verdict.STALL, "expiring": Verdict.WARNING, "blocked": Verdict.WARNING}

Windows = Mapping[HopKey, Sequence[LagSample]]
"""The newest samples of each hop before a snapshot, oldest first."""
TransactionFinder = Callable[[str, Mapping[TopicPartition, int]], Mapping[TopicPartition, OpenTransaction]]
"""Find the hanging transactions of a source by alias, from the last stable offsets of its partitions."""


class Retention:
    """Read `retention.ms` of topics, each once: None where age deletes nothing; a topic whose settings may not be read is absent.

    A lake cluster deletes nothing, nor does a topic that is only compacted.
    """

    def __init__(self, context: Context) -> None:
        self._config = context.config
        self._admin: Callable[[str], ClusterAdmin] = context.admin
        self._known: dict[tuple[str, str], int | None] = {}

    def __call__(self, places: Collection[tuple[str, str]]) -> dict[tuple[str, str], int | None]:
        """Return the retention by cluster and topic, in one request a cluster."""
        asked: dict[str, set[str]] = {}
        for alias, topic in places:
            if self._config.cluster(alias).is_lake:
                self._known[alias, topic] = None
            elif (alias, topic) not in self._known:
                asked.setdefault(alias, set()).add(topic)
        for alias, names in asked.items():
            self._ask(alias, names)
        return {place: self._known[place] for place in places if place in self._known}

    def _ask(self, alias: str, names: Collection[str]) -> None:
        refused: dict[str, MirrorlakeError] = {}
        try:
            settings = self._admin(alias).effective_configs_each(names, refused=refused)
        except MirrorlakeError as error:
            # Verdicts matter most when a cluster is unreachable, so they must not depend on its settings.
            settings, refused = {}, {alias: error}
        for name, why in refused.items():
            log.info("lag.retention_not_known what=%s why=%s", name, why.cause)
        for topic, values in settings.items():
            deletes = "delete" in (values.get("cleanup.policy") or "delete")
            bound = int(values.get("retention.ms") or -1)
            self._known[alias, topic] = None if bound < 0 or not deletes else bound


RetentionLookup = Callable[[Collection[tuple[str, str]]], Mapping[tuple[str, str], int | None]]


# -- status --------------------------------------------------------------------------------------------------------------


def read_status(
    flows: Sequence[FlowConfig],
    snapshot: PositionSnapshot,
    samples: Mapping[HopKey, LagSample],
    *,
    lake: Lake,
    target: Callable[[str], ClusterAdmin],
    state: ControlState,
    retention_of: RetentionLookup,
    windows: Callable[[], Windows] = dict,
    find_transactions: TransactionFinder = lambda _alias, _stable: {},
) -> Status:
    """Return the status of each flow at one snapshot; `samples` are its hops.

    A flow gets only an error and its time if its source or target did not answer.
    """
    silent, remotes = _read_remotes(flows, snapshot, target)
    answering = [flow for flow in flows if flow.name not in silent]
    positions = {flow.name: snapshot.positions_of(flow) for flow in answering}
    names = {flow.name for flow in answering}
    waits = any(
        place.hop == "republished" and one.waiting != 0 and place.flow in names for place, one in samples.items()
    )
    judged = _Judged(
        at=snapshot.observed_at,
        samples=samples,
        windows=windows() if waits else {},
        risks=_risks_of_landing(samples, snapshot, retention_of),
        transactions={
            alias: _find_hanging(alias, answering, positions, find_transactions)
            for alias in {flow.source for flow in answering}
        },
    )
    rto = measured_rto(lake, answering)
    found = {name: _unknown_status(*silent[name], state, at=snapshot.observed_at, lake=lake) for name in silent}
    for flow in answering:
        landed, topics = snapshot.landed[flow.source].reached, {tp.topic for tp in positions[flow.name]}
        held = [one.shared_by(topics, flow.remote_topic) for one in remotes[flow.name]]
        lost = {topic: one.cause for one in held for topic in one.topics}
        paused, proven = state.covering(flow.name, flow.source, flow.target), proven_until(lake, flow)
        rested = _rested(flow, judged, lake)
        rows = [
            judged.partition(
                flow,
                row,
                lost=lost.get(tp.topic),
                pause=paused(tp.topic),
                is_landed=row.source in landed,
                rested=rested,
                proven_until=proven.get(row.source),
            )
            for tp, row in sorted(positions[flow.name].items(), key=lambda item: (item[0].topic, item[0].partition))
        ]
        parked = state.of_flow(flow.name, flow.source)
        status = FlowStatus(
            flow=flow.name, partitions=tuple(rows), observed_at=snapshot.observed_at, held=tuple(held), parked=parked
        )
        objectives = judge_objectives([flow], {flow.name: status.time_lag_ms}, rto)
        found[flow.name] = replace(status, objectives=objectives[0] if objectives else None)
    return Status(flows=tuple(found[flow.name] for flow in flows), observed_at=snapshot.observed_at)


def _republished(flow: FlowConfig, source: SourcePartition) -> HopKey:
    return HopKey(
        flow=flow.name,
        source=flow.source,
        topic=source.topic,
        generation=source.generation,
        partition=source.partition,
        hop="republished",
        cluster=flow.target,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What a snapshot tells of all flows, and the samples before it."""

    at: datetime
    samples: Mapping[HopKey, LagSample]
    windows: Windows
    risks: Mapping[tuple[str, SourcePartition], RetentionRisk]
    transactions: Mapping[str, Mapping[TopicPartition, OpenTransaction]]

    def partition(
        self,
        flow: FlowConfig,
        row: FlowPosition,
        *,
        lost: str | None,
        pause: Pause | None,
        is_landed: bool,
        rested: datetime | None,
        proven_until: int | None,
    ) -> PartitionStatus:
        hop = _republished(flow, row.source)
        sample, earlier = self.samples[hop], self.windows.get(hop, ())
        risk = self.risks.get((flow.source, row.source))
        transaction = self.transactions[flow.source].get(TopicPartition(row.source.topic, row.source.partition))
        waits = bool(sample.offset_lag)
        state, why = _state(lost, risk, pause, transaction, waits=waits, is_landed=is_landed, at=self.at)
        if sample.waiting == 0:
            # Nothing waits, so the first sample suffices for the rates.
            earlier = earlier[:1]
        # Another sampler may have written newer samples; this snapshot is the last of the window.
        window = [*(one for one in earlier if one.observed_at < self.at), sample]
        since = None if pause is None else pause.since
        judged = judge_partition(window, state=state, known_reason=why, since=since, rested=rested, now=self.at)
        in_per_s, out_per_s = rates(window)
        return PartitionStatus(
            topic=row.source.topic,
            partition=row.source.partition,
            source_end=row.end,
            landed=row.landed,
            republished=row.republished,
            offset_lag=max(0, row.end - row.republished),
            time_lag_ms=sample.time_lag_ms,
            verdict=judged.verdict.name,
            state=state,
            reason=judged.reason,
            since=judged.since,
            in_per_s=in_per_s,
            out_per_s=out_per_s,
            eta_ms=catch_up(window).eta_ms,
            proven_until=proven_until,
            expires_in_ms=None if risk is None else risk.soonest_ms,
            expires_why=None if risk is None or risk.soonest_ms is None else risk.reason,
            blocked_offsets=0 if transaction is None else transaction.offsets,
            blocked_ms=None if transaction is None else age_ms(transaction.since, self.at),
        )


def judge_partition(
    window: Sequence[LagSample],
    *,
    state: str,
    known_reason: str = "",
    since: datetime | None = None,
    rested: datetime | None = None,
    now: datetime,
) -> Judgement:
    """Judge the samples of a partition; a bad `state` makes the verdict worse, and `known_reason` comes first.

    A paused partition is PAUSED, `since` its pause, whatever its samples say. `rested` is the last sample before the window if
    sampling rested since: its mirror does not warm up, nobody runs it.
    """
    found = judge(window, now=now)
    if rested is not None and found.verdict is Verdict.WARMING_UP:
        reason = f"{found.reason}; the last earlier sample is of {format_time(rested)}"
        found = Judgement(verdict=Verdict.UNKNOWN, reason=reason)
    reason = f"{known_reason}; {found.reason}" if known_reason else found.reason
    if state == "blocked" and found.verdict is Verdict.OK:
        reason = known_reason
    if state == "paused":
        return Judgement(verdict=Verdict.PAUSED, reason=reason, since=since)
    verdict = worst([found.verdict, _AT_LEAST.get(state, found.verdict)])
    return Judgement(verdict=verdict, reason=reason, since=found.since if verdict is found.verdict else None)


def rates(window: Sequence[LagSample]) -> tuple[float | None, float | None]:
    """Return offsets a second of source end and position over a window; None where it does not tell, or something went back."""
    first, last = window[0], window[-1]
    span_s = (last.observed_at - first.observed_at).total_seconds()
    if span_s <= 0 or first.end_position is None or last.end_position is None:
        return None, None
    came, went = last.end_position - first.end_position, last.position - first.position
    return (None, None) if min(came, went) < 0 else (came / span_s, went / span_s)


def _state(
    lost: str | None,
    risk: RetentionRisk | None,
    pause: Pause | None,
    transaction: OpenTransaction | None,
    *,
    waits: bool,
    is_landed: bool,
    at: datetime,
) -> tuple[str, str]:
    """Return the state of a partition, one of `STATES`, and its reason."""
    if lost is not None:
        return TOPIC_LOST, lost
    if risk is not None and risk.is_soon:
        return "expiring", f"not landed, deleted by the source in {format_duration(risk.soonest_ms)}"
    if pause is not None:
        return "paused", str(pause)
    if transaction is not None:
        return "blocked", transaction.describe(at)
    if not waits:
        return CAUGHT_UP, ""
    return ("behind", "") if is_landed else ("not_started", "nothing was landed yet")


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
        try:
            sent = merged_positions(snapshot.lanes[flow.name], flow.remote_topic)
            remotes[flow.name], _ = inspect_remote_topics(flow, target(flow.target), sent)
        except ClusterError as error:
            # The target answered for the snapshot, and stopped answering since.
            silent[flow.name] = flow, ("flow", flow.name), error
    return silent, remotes


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


def _rested(flow: FlowConfig, judged: _Judged, lake: Lake) -> datetime | None:
    """Return the last sample of a flow whose records wait and whose window has none: nobody samples it any more."""
    mine = [one for place, one in judged.samples.items() if (place.flow, place.hop) == (flow.name, "republished")]
    has_samples = any(place.flow == flow.name for place in judged.windows)
    waits = any(one.waiting != 0 for one in mine)
    return _last_answer(("flow", flow.name), lake) if waits and not has_samples else None


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


# -- retention -----------------------------------------------------------------------------------------------------------


def _log_starts(snapshot: PositionSnapshot) -> dict[tuple[str, SourcePartition], int]:
    """Return the first offset of each source partition of which something was landed: what went before that was never wanted."""
    return {
        (key.source, source): offset
        for key, offset in snapshot.positions.items()
        if key.kind == "earliest" and (source := key.source_partition) in snapshot.landed[key.source].reached
    }


def _risks_of_landing(
    samples: Mapping[HopKey, LagSample], snapshot: PositionSnapshot, retention_of: RetentionLookup
) -> dict[tuple[str, SourcePartition], RetentionRisk]:
    """Forecast by source partition when its first record that is not landed is deleted."""
    starts, waiting = _log_starts(snapshot), dict[tuple[str, SourcePartition], LagSample]()
    for place, sample in samples.items():
        if place.hop == "landed" and sample.waiting != 0:
            waiting[place.source, place.source_partition] = sample
    old = {
        (alias, source.topic)
        for (alias, source), sample in waiting.items()
        if sample.time_lag_ms is None or sample.time_lag_ms > _RECENT_MS
    }
    limits = retention_of(old) if old else {}
    found = {
        (alias, source): retention_risk(
            [sample],
            now=snapshot.observed_at,
            retention_ms=limits.get((alias, source.topic)),
            log_start=starts.get((alias, source)),
        )
        for (alias, source), sample in waiting.items()
    }
    return {place: risk for place, risk in found.items() if risk.by != "none"}


# -- hops ----------------------------------------------------------------------------------------------------------------


def judge_hops(
    flows: Sequence[FlowConfig],
    snapshot: PositionSnapshot,
    seen: Mapping[HopKey, LagSample],
    status: Status,
    *,
    windows: Windows,
    state: ControlState,
    retention_of: RetentionLookup,
) -> LagVerdict:
    """Judge each hop that a snapshot has `seen`, worst first; the hop `republished` has the verdict of the status.

    Only the newest generation of a partition is judged: positions of an older one end where the topic was deleted.
    """
    by_name, starts, statuses = {flow.name: flow for flow in flows}, _log_starts(snapshot), dict(status)
    # A truncation begins another generation of one partition.
    lives: dict[tuple[str, str, int], int] = {}
    for place in [*seen, *windows]:
        of = place.flow, place.topic, place.partition
        lives[of] = max(place.generation, lives.get(of, 0))
    rows = {(flow.flow, row.topic, row.partition): row for flow in status.flows for row in flow.partitions}

    def read_from(place: HopKey) -> tuple[str, str] | None:
        """Return the topic that a hop reads; the hop `republished` reads the relay, which keeps what is not sent."""
        flow = by_name[place.flow]
        if place.hop == "republished":
            return None
        return (
            (flow.source, place.topic)
            if place.cluster == flow.source
            else (flow.target, flow.remote_topic(place.topic))
        )

    waiting = {topic for place, one in seen.items() if one.waiting != 0 and (topic := read_from(place))}
    limits = retention_of(waiting) if waiting else {}

    def judged(place: HopKey, window: Sequence[LagSample]) -> HopVerdict:
        if (unknown := statuses[place.flow].unknown) and place.hop != "consumed":
            # Earlier figures do not describe the present.
            last = replace(window[-1], end_position=None, offset_lag=None, waiting_since=None, time_lag_ms=None)
            return HopVerdict(
                key=place,
                verdict=Verdict.CLUSTER_AWAY,
                reason=unknown,
                last=last,
                samples=len(window),
                catch_up=CatchUp(eta_ms=None, reason=unknown),
                retention=None,
            )
        found, forecast = judge(window, now=snapshot.observed_at, is_group=place.hop == "consumed"), catch_up(window)
        verdict, reason, row = found.verdict, found.reason, rows.get((place.flow, place.topic, place.partition))
        if place.hop == "landed" and (pause := state.of_cluster(place.source)) is not None:
            verdict, reason = Verdict.PAUSED, f"{pause}; {reason}"
        elif place.hop == "republished" and row is not None:
            verdict, reason, forecast = Verdict[row.verdict], row.reason, replace(forecast, eta_ms=row.eta_ms)
        topic = read_from(place)
        risk = None
        if window[-1].waiting == 0 or topic is None or topic in limits:
            risk = retention_risk(
                window,
                now=snapshot.observed_at,
                retention_ms=limits.get(topic) if topic else None,
                log_start=starts.get((place.source, place.source_partition)) if place.cluster == place.source else None,
            )
        return HopVerdict(
            key=place,
            verdict=verdict,
            reason=reason,
            last=window[-1],
            samples=len(window),
            catch_up=forecast,
            retention=risk,
        )

    # Of a cluster that does not answer, only the samples before are known.
    silent = {
        place: window
        for place, window in windows.items()
        if place.flow in statuses and statuses[place.flow].unknown and place not in seen and place.hop != "consumed"
    }
    found = {
        place: [*(one for one in windows.get(place, ()) if one.observed_at < snapshot.observed_at), last]
        for place, last in seen.items()
    }
    hops = [
        judged(place, window)
        for place, window in {**silent, **found}.items()
        if window and place.generation == lives[place.flow, place.topic, place.partition]
    ]
    objectives = tuple(flow.objectives for flow in status.flows if flow.objectives is not None)
    return LagVerdict(hops=tuple(hops), objectives=objectives, status=status).worst_first()
