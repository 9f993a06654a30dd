"""Judge a snapshot: each hop by this snapshot and the samples before it, and the status of each partition by its hops."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, MirrorlakeError
from mirrorlake.lake import Lake, PositionKey, Subject, proven_until
from mirrorlake.model.control import ControlState, Pause
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.remotes import LostTopic
from mirrorlake.render import format_duration, format_time
from mirrorlake.republish import inspect_remote_topics
from mirrorlake.status.ages import HANGS_MS, OpenTransactions, find_open_transactions
from mirrorlake.status.history import Windows
from mirrorlake.status.hops import HopVerdict, LagVerdict
from mirrorlake.status.snapshot import PositionSnapshot
from mirrorlake.status.status import FlowStatus, Objective, PartitionStatus, Status, grouped
from mirrorlake.status.verdict import (
    NEVER,
    HopKey,
    Judgement,
    LagSample,
    RetentionRisk,
    Verdict,
    age_ms,
    catch_up,
    judge,
    rates,
    retention_risk,
    worst,
)
from mirrorlake.tables import read_tables

log = logging.getLogger(__name__)

# Retention is not read for records that came a moment ago and are landed in the next.
_RECENT_MS = 60_000
_AT_LEAST = {"topic_lost": Verdict.STALL, "expiring": Verdict.WARNING, "blocked": Verdict.WARNING}

WindowReader = Callable[[Collection[HopKey] | None], Windows]
"""Read the windows of hops, of all for None; of others the first sample suffices, for their rates."""
_Judged = HopVerdict | Judgement
_Hops = dict[HopKey, HopVerdict]
Topic = tuple[str, str]
"""A topic with the alias of its cluster before it."""


def read_retention(context: Context, topics: Collection[Topic]) -> dict[Topic, int | None]:
    """Read `retention.ms` of topics, in one request a cluster: None where age deletes nothing; a topic that may not be read is absent.

    A lake cluster deletes nothing, nor does a topic that is only compacted.
    """
    found: dict[Topic, int | None] = {}
    for alias, several in grouped(topics, lambda topic: topic[0]).items():
        if context.config.cluster(alias).is_lake:
            found |= dict.fromkeys(several)
            continue
        refused: dict[str, MirrorlakeError] = {}
        try:
            settings = context.admin(alias).effective_configs_each({name for _, name in several}, refused=refused)
        except MirrorlakeError as error:
            # Verdicts matter most when a cluster is unreachable, so they must not depend on its settings.
            settings, refused = {}, {alias: error}
        for name, why in refused.items():
            log.info("lag.retention_not_known what=%s why=%s", name, why.cause)
        for name, values in settings.items():
            deletes = "delete" in (values.get("cleanup.policy") or "delete")
            bound = int(values.get("retention.ms") or -1)
            found[alias, name] = None if bound < 0 or not deletes else bound
    return found


@dataclass(frozen=True)
class SnapshotJudge:
    """Judge one snapshot: each hop of the flows by the samples before it, each partition by its hops and by what else is known.

    `samples` are the hops of the snapshot. A flow gets only an error and its time if its source or target did not answer. The samples
    before are asked for where records wait, or somebody is away. Only the newest generation of a partition counts: positions of
    an older one end where the topic was deleted.
    """

    context: Context
    flows: Sequence[FlowConfig]
    snapshot: PositionSnapshot
    samples: Mapping[HopKey, LagSample]
    read_windows: WindowReader

    def judge(self) -> LagVerdict:
        silent, remotes = self._ask_targets()
        waiting = [key for key, one in self.samples.items() if one.waiting != 0]
        earlier = self.read_windows(None if silent else waiting) if waiting or silent else {}
        windows = {key: (earlier.get(key, ()), last) for key, last in self.samples.items()}
        # Of a cluster that does not answer, only the samples before are known.
        away = [key for key in earlier.keys() - windows.keys() if key.flow in silent and key.hop != "consumed"]
        windows |= {key: (earlier[key][:-1], earlier[key][-1]) for key in away}
        # A truncation begins another generation of one partition.
        by_age = sorted((*windows, *earlier), key=lambda key: key.generation)
        newest = {(key.flow, key.topic, key.partition): key.generation for key in by_age}
        of_flow: dict[str, dict[HopKey, HopVerdict]] = {flow.name: {} for flow in self.flows}
        for key, (before, last) in windows.items():
            if key.generation == newest[key.flow, key.topic, key.partition]:
                of_flow[key.flow][key] = self._hop(key, before, last)
        found: dict[str, FlowStatus] = {}
        answering = [flow for flow in self.flows if flow.name not in silent]
        rto, hanging = measured_rto(self.context.lake, answering), self._find_hanging(answering, of_flow)
        for flow in self.flows:
            hops, parked = of_flow[flow.name], self._control.of_flow(flow.name, flow.source)
            status = FlowStatus(flow=flow.name, partitions=(), observed_at=self.snapshot.observed_at, parked=parked)
            if flow.name in silent:
                status = self._unknown_status(status, flow, *silent[flow.name])
                hops |= {key: _away(hop, status.unknown or "") for key, hop in hops.items() if key.hop != "consumed"}
            else:
                status = self._status(status, flow, hops, remotes[flow.name], hanging[flow.source])
                status = replace(status, objectives=judge_objectives(flow, status.time_lag_ms, rto.get(flow.name)))
            found[flow.name] = status
        every = sorted((hop for hops in of_flow.values() for hop in hops.values()), key=lambda hop: hop.urgency)
        # A table belongs to the mirror: the status of one flow lacks it.
        is_whole = tuple(self.flows) == tuple(self.context.config.flows)
        tables = read_tables(self.context, landed=self.snapshot.landed, state=self._control).tables if is_whole else ()
        at = self.snapshot.observed_at
        return LagVerdict(hops=tuple(every), status=Status(flows=tuple(found.values()), observed_at=at, tables=tables))

    @cached_property
    def _control(self) -> ControlState:
        return self.context.control().state()

    # -- hops --------------------------------------------------------------------------------------------------------------

    def _hop(self, key: HopKey, before: Sequence[LagSample], last: LagSample) -> HopVerdict:
        """Judge one hop by its samples; the last is of now."""
        at = self.snapshot.observed_at
        # Where nothing waits, the first sample suffices for the rates. Another sampler may have written newer ones than this.
        window = [one for one in (before[:1] if last.waiting == 0 else before) if one.observed_at < at]
        window.append(last)
        found = judge(window, is_group=key.hop == "consumed")
        if key.hop == "landed" and (pause := self._control.of_cluster(key.source)) is not None:
            found = found._replace(verdict=Verdict.PAUSED, reason=f"{pause}; {found.reason}")
        topic, risk = self._read_from(key), None
        if last.waiting == 0 or topic is None or topic in self._limits:
            kept_ms = self._limits.get(topic) if topic else None
            risk = retention_risk(window, now=at, retention_ms=kept_ms, log_start=self._log_start(key))
        return HopVerdict(
            key=key,
            **found._asdict(),
            last=last,
            samples=len(before) + 1,
            eta_ms=catch_up(window),
            rates=rates(window),
            retention=risk,
        )

    def _read_from(self, key: HopKey) -> Topic | None:
        """Return the topic that a hop reads; the hop `republished` reads the relay, which keeps what is not sent."""
        if key.hop == "republished":
            return None
        flow = self._by_name[key.flow]
        return (flow.source, key.topic) if key.cluster == flow.source else (flow.target, flow.remote_topic(key.topic))

    @cached_property
    def _by_name(self) -> dict[str, FlowConfig]:
        return {flow.name: flow for flow in self.flows}

    @cached_property
    def _limits(self) -> dict[Topic, int | None]:
        """The retention of each topic in which records wait for a hop; a topic of which it is not known is absent."""
        recent, asked = set[Topic](), set[Topic]()
        for key, one in self.samples.items():
            if one.waiting != 0 and (topic := self._read_from(key)) is not None:
                is_recent = key.hop == "landed" and one.time_lag_ms is not None and one.time_lag_ms <= _RECENT_MS
                (recent if is_recent else asked).add(topic)
        return dict.fromkeys(recent - asked) | read_retention(self.context, asked)

    def _log_start(self, key: HopKey) -> int | None:
        """Return the first offset on the source, None where nothing was landed: what went before that was never wanted."""
        landed = self.snapshot.landed.get(key.source)
        if key.cluster != key.source or landed is None or key.source_partition not in landed.reached:
            return None
        place = key.topic, key.generation, key.partition
        return self.snapshot.positions.get(PositionKey(key.source, None, *place, "earliest", None))

    # -- status ------------------------------------------------------------------------------------------------------------

    def _status(
        self, status: FlowStatus, flow: FlowConfig, hops: _Hops, remotes: Sequence[LostTopic], hanging: OpenTransactions
    ) -> FlowStatus:
        """Return the status of a flow that answered; the verdicts of its hops `republished` become those of its partitions."""
        at = self.snapshot.observed_at
        of_flow = [key for key in hops if key.hop == "republished"]
        sent = [key for key in of_flow if hops[key].last.end_position is not None]
        # They have no row: a warning was logged, and `doctor` names them.
        leaderless = sorted(TopicPartition(key.topic, key.partition) for key in {*of_flow} - {*sent})
        landed, topics = self.snapshot.landed[flow.source].reached, {key.topic for key in sent}
        held = [one.shared_by(topics, flow.remote_topic) for one in remotes]
        lost = {topic: one.cause for one in held for topic in one.topics}
        paused = self._control.covering(flow.name, flow.source, flow.target)
        proven = proven_until(self.context.lake, flow)
        # Where records wait and nothing was sampled of late: nobody runs the mirror, so it does not warm up.
        is_young = any(hops[key].last.waiting != 0 for key in sent) and all(hops[key].samples == 1 for key in sent)
        rested = self._last_answer(("flow", flow.name)) if is_young else None
        rows = []
        for key in sorted(sent, key=lambda one: (one.topic, one.partition)):
            hop, source = hops[key], key.source_partition
            to_land = hops[key._replace(hop="landed", cluster=flow.source)]
            # Where nothing waits to be landed, the source deletes nothing that is missed.
            left = to_land.retention if to_land.last.waiting != 0 else None
            transaction = hanging.get(TopicPartition(key.topic, key.partition))
            pause = paused(key.topic)
            blocked = None if transaction is None else transaction.describe(at)
            known, why = _state(hop.last.offset_lag or 0, left, lost.get(key.topic), pause, blocked, source in landed)
            judged = judge_state(hop, known, why, since=None if pause is None else pause.since, rested=rested)
            if judged is not hop:
                hops[key] = replace(hop, verdict=judged.verdict, reason=judged.reason, since=judged.since)
            in_per_s, out_per_s = hop.rates
            soonest_ms = None if left is None else left.soonest_ms
            rows.append(
                PartitionStatus(
                    topic=key.topic,
                    partition=key.partition,
                    source_end=hop.last.end_position or 0,
                    landed=to_land.last.position,
                    republished=hop.last.position,
                    offset_lag=hop.last.offset_lag or 0,
                    time_lag_ms=hop.last.time_lag_ms,
                    verdict=judged.verdict.name,
                    state=known,
                    reason=judged.reason,
                    since=judged.since,
                    in_per_s=in_per_s,
                    out_per_s=out_per_s,
                    eta_ms=None if hop.eta_ms == NEVER else hop.eta_ms,
                    proven_until=proven.get(source),
                    expires_in_ms=soonest_ms,
                    expires_why=None if left is None or soonest_ms is None else left.reason,
                    blocked_offsets=0 if transaction is None else transaction.offsets,
                    blocked_ms=None if transaction is None else age_ms(transaction.since, at),
                )
            )
        return replace(status, partitions=tuple(rows), held=tuple(held), leaderless=tuple(leaderless))

    def _ask_targets(self) -> tuple[dict[str, tuple[Subject, ClusterError]], dict[str, Sequence[LostTopic]]]:
        """Return the flows of which somebody did not answer, and the lost remote topics of the others."""
        silent: dict[str, tuple[Subject, ClusterError]] = {}
        remotes: dict[str, Sequence[LostTopic]] = {}
        for flow in self.flows:
            subjects: list[Subject] = [("cluster", flow.source), ("relay", flow.source), ("flow", flow.name)]
            if (subject := next((one for one in subjects if one in self.snapshot.errors), None)) is not None:
                silent[flow.name] = subject, self.snapshot.errors[subject]
                continue
            try:
                sent = self.snapshot.sent[flow.name]
                remotes[flow.name], _ = inspect_remote_topics(flow, self.context.admin(flow.target), sent)
            except ClusterError as error:
                # The target answered for the snapshot, and stopped answering since.
                silent[flow.name] = ("flow", flow.name), error
        return silent, remotes

    def _unknown_status(
        self, status: FlowStatus, flow: FlowConfig, subject: Subject, error: ClusterError
    ) -> FlowStatus:
        """Return the status of a flow whose source, relay or target (`subject`) did not answer."""
        since = self._last_answer(subject)
        pause = self._control.of_stream(flow.name, flow.target) or self._control.of_cluster(flow.source)
        why = [str(pause)] if pause else []
        why.append(error.cause if since is None else f"{error.cause}; its last answer was at {format_time(since)}")
        away = flow.target if subject[0] == "flow" else flow.source
        return replace(status, unknown="; ".join(why), away=away, answered_at=since)

    def _last_answer(self, subject: Subject) -> datetime | None:
        text = "SELECT max(observed_at) AS at FROM {samples} WHERE subject = :kind AND name = :name AND error IS NULL"
        rows = self.context.lake.query(text, missing_ok=True, kind=subject[0], name=subject[1])
        return rows[0].at if rows else None

    def _find_hanging(self, flows: Sequence[FlowConfig], hops: Mapping[str, _Hops]) -> dict[str, OpenTransactions]:
        """Return the hanging transactions of each source: a lake cluster has none."""
        context = self.context
        ends: dict[str, dict[TopicPartition, int]] = {flow.source: {} for flow in flows}
        for flow in flows:
            for key, hop in hops[flow.name].items():
                if key.hop == "republished" and hop.last.end_position is not None:
                    ends[flow.source][TopicPartition(key.topic, key.partition)] = hop.last.end_position
        found: dict[str, OpenTransactions] = {}
        for alias, stable in ends.items():
            found[alias] = {}
            if not stable or context.config.cluster(alias).is_lake:
                continue
            try:
                several = find_open_transactions(context, alias, stable)
                found[alias] = {tp: one for tp, one in several.items() if age_ms(one.since, context.now()) >= HANGS_MS}
            except MirrorlakeError as error:
                log.info("status.transactions_not_known source=%s why=%s", alias, error.cause)
        return found


def _away(hop: HopVerdict, why: str) -> HopVerdict:
    # Earlier figures do not describe the present.
    last = LagSample(hop.last.observed_at, hop.last.position)
    return replace(hop, verdict=Verdict.CLUSTER_AWAY, reason=why, last=last, eta_ms=None, retention=None, since=None)


def _state(
    lag: int, left: RetentionRisk | None, lost: str | None, pause: Pause | None, blocked: str | None, is_landed: bool
) -> tuple[str, str]:
    """Return the state of a partition, one of `STATES`, and its reason."""
    if lost is not None:
        return "topic_lost", lost
    if left is not None and left.is_soon:
        return "expiring", f"not landed, deleted by the source in {format_duration(left.soonest_ms)}"
    if pause is not None:
        return "paused", str(pause)
    if blocked is not None:
        return "blocked", blocked
    if lag == 0:
        return "caught_up", ""
    return ("behind", "") if is_landed else ("not_started", "nothing was landed yet")


def judge_state(
    found: _Judged, state: str, known: str = "", *, since: datetime | None = None, rested: datetime | None = None
) -> _Judged:
    """Return the verdict of samples with a `state`: a bad one makes it worse, and what is `known` of it comes first.

    A paused partition is PAUSED, `since` its pause, whatever its samples say. `rested` is the last sample before the window if
    sampling rested since: its mirror does not warm up, nobody runs it.
    """
    if state in ("caught_up", "behind") and not known and rested is None:
        return found
    judged, begun = found.verdict, found.since
    reason = f"{known}; {found.reason}" if known else found.reason
    if rested is not None and judged is Verdict.WARMING_UP:
        judged, begun, reason = Verdict.UNKNOWN, None, f"{reason}; the last earlier sample is of {format_time(rested)}"
    if state == "blocked" and judged is Verdict.OK:
        reason = known
    if state == "paused":
        return Judgement(verdict=Verdict.PAUSED, reason=reason, since=since)
    verdict = worst([judged, _AT_LEAST.get(state, judged)])
    return Judgement(verdict=verdict, reason=reason, since=begun if verdict is judged else None)


# -- objectives ----------------------------------------------------------------------------------------------------------


def judge_objectives(flow: FlowConfig, rpo_ms: int | None, rto: Objective | None) -> tuple[Objective, ...]:
    """Return the objectives of a flow, with its present RPO and the last RTO."""
    rpo = flow.objectives.rpo
    measured_s = None if rpo_ms is None else rpo_ms / 1000
    lost = None if rpo is None else Objective(name="RPO", wanted_s=rpo.total_seconds(), measured_s=measured_s)
    return tuple(one for one in (lost, rto) if one is not None)


def measured_rto(lake: Lake, flows: Iterable[FlowConfig]) -> dict[str, Objective]:
    """Return the RTO of flows that have an objective for it, measured by their last failover or drill in `audit`."""
    found = {
        flow.name: Objective(name="RTO", wanted_s=flow.objectives.rto.total_seconds(), measured_s=None)
        for flow in flows
        if flow.objectives.rto is not None
    }
    for row in lake.query(_LAST_RTO, missing_ok=True, names=sorted(found)) if found else ():
        with suppress(ValueError, AttributeError):
            seconds = json.loads(row.after).get("rto_s")
            if isinstance(seconds, int | float):
                known = found[row.flow]
                found[row.flow] = replace(known, measured_s=seconds, measured_at=row.at, measured_by=row.command)
    return found


_LAST_RTO = """
    SELECT flow, command, after, at FROM {audit}
    WHERE array_contains(:names, flow) AND command IN ('drill', 'failover') AND after LIKE '%rto_s%' ORDER BY at
"""
