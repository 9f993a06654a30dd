"""What lag means: a verdict on a window of samples by rule, without thresholds.

The rules are Burrow's (core/internal/evaluator/caching.go), in Burrow's order, over *samples* instead of commits:

    1  there is no lag now                                   OK        whatever was earlier
    2  nobody has reported for longer than the window spans  STOP      unless the end that is known is reached
    3  a position went back, and has not come back           REWIND    one sample alone proves nothing
    4  there was no lag at some moment of the window         OK        a spike, or an idle topic that woke up
       but nothing has moved for as long as a mirror takes   WARNING   on the hops of the mirror itself
    5  no position of the window differs from the others     STALL
    6  what waits passes in as long as a mirror takes        OK        a mirror in pace always has some records under way
    7  the lag never became less                             WARNING   it moves, but too slowly
    8  else                                                  OK

What a mirror changes: the end is looked at together with the position, so a topic at rest has lag 0 and is OK however long
it rests, also where only transaction markers or filtered records follow. A sample is seen from outside, so a group that
died looks like one that stands still (STALL), and STOP says that the looking itself has ended: the mirror that samples is
gone, or the group's positions are. A window that cannot tell is UNKNOWN with the reason, and never OK.

What a flow is, its status says (`lag/reading.py`): every view shows that verdict. Groups have verdicts of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mirrorlake.lag.forecast import FEWEST_SAMPLES, PACE_S, CatchUp, RetentionRisk, is_in_pace
from mirrorlake.lag.moment import Sample, total
from mirrorlake.lag.objectives import FlowObjectives, objectives_table
from mirrorlake.render import Sheet, Shown, badge, plural, table

if TYPE_CHECKING:
    from mirrorlake.lag.status import Status

# Burrow's `intervals`: the verdict is on the newest so many samples of a hop.
WINDOW_SAMPLES = 10

HOPS = ("landed", "republished", "consumed")


class Verdict(IntEnum):
    """What a window of samples says; the numbers are Burrow's, which keeps 0 for not found. Its 3, an error, is a pause here."""

    UNKNOWN = 0
    OK = 1
    WARNING = 2
    PAUSED = 3
    STOP = 4
    STALL = 5
    REWIND = 6


# What one look cannot tell may be wrong: UNKNOWN is worse than OK.
SEVERITY = (
    Verdict.REWIND,
    Verdict.STALL,
    Verdict.STOP,
    Verdict.WARNING,
    Verdict.UNKNOWN,
    Verdict.PAUSED,
    Verdict.OK,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the first of `SEVERITY` that holds somewhere; UNKNOWN of none.

    >>> worst([Verdict.OK, Verdict.UNKNOWN]).name, worst([Verdict.OK, Verdict.PAUSED]).name, worst([]).name
    ('UNKNOWN', 'PAUSED', 'UNKNOWN')
    """
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict, and the rule in words with its numbers."""

    verdict: Verdict
    reason: str


def judge(window: Sequence[Sample], *, now: datetime, is_group: bool = False) -> Judgement:
    """Judge the samples of one hop of one partition (one generation, one group), oldest first.

    Samples whose lag is not known count for movement only, as in Burrow. A group (`is_group`) reads when it likes; the mirror
    itself is expected to move.

    Example:
        >>> from datetime import timedelta, timezone
        >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
        >>> looks = [
        ...     Sample(observed_at=noon + timedelta(minutes=m), position=100, end_position=150 + m, offset_lag=50 + m)
        ...     for m in range(5)
        ... ]
        >>> judge(looks, now=noon + timedelta(minutes=5)).verdict.name
        'STALL'
    """
    verdict, reason = _rule(sorted(window, key=lambda sample: sample.observed_at), now, is_group)
    return Judgement(verdict=verdict, reason=reason)


def _rule(samples: Sequence[Sample], now: datetime, is_group: bool) -> tuple[Verdict, str]:
    if not samples:
        return Verdict.UNKNOWN, "nothing was sampled yet"
    samples = _without_step_back_of_one_sample(samples)
    last = samples[-1]
    lag, silent_s, span_s = last.waiting, (now - last.observed_at).total_seconds(), _seconds(samples[0], last)
    is_old = silent_s > span_s
    if lag is None:
        return Verdict.UNKNOWN, "the end was not known at the last sample"
    if lag == 0:
        if len(samples) >= FEWEST_SAMPLES and is_old:
            why = f"nothing waited {silent_s:.0f} s ago, and nobody has looked since; the window spans {span_s:.0f} s"
            return Verdict.UNKNOWN, why
        return Verdict.OK, "nothing waits"
    if len(samples) < FEWEST_SAMPLES:
        return Verdict.UNKNOWN, f"{len(samples)} of at least {FEWEST_SAMPLES} samples, and {lag} records wait"
    if is_old:
        why = f"no position was reported for {silent_s:.0f} s, the window spans {span_s:.0f} s; {lag} records wait"
        return Verdict.STOP, why
    if (fell := _rewound(samples)) is not None:
        before, after = fell
        return Verdict.REWIND, f"the position went back, {before} to {after}, and has not come back"
    lags = [waiting for sample in samples if (waiting := sample.waiting) is not None]
    if 0 in lags:
        if not is_group and (still := _standstill(samples)) is not None:
            return still
        return Verdict.OK, "nothing waited at some moment of the window"
    if all(sample.position == last.position for sample in samples):
        return Verdict.STALL, f"the position stood at {last.position} for {span_s:.0f} s; {lag} records wait"
    if is_in_pace(samples):
        return Verdict.OK, f"in pace: {lag} records are under way"
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return Verdict.WARNING, f"the position moves, but the lag never became less: {lags[0]} to {lags[-1]} records"
    return Verdict.OK, f"catching up: {lag} records wait"


def _seconds(first: Sample, last: Sample) -> float:
    return (last.observed_at - first.observed_at).total_seconds()


def _without_step_back_of_one_sample(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Leave the last position where it was if it went back in the last sample only.

    Two samplers that look at one moment see positions in either order, and markers at the end of a partition count as passed
    until a record follows them: the next sample tells.
    """
    if len(samples) < 2 or samples[-1].position >= samples[-2].position:
        return samples
    return [*samples[:-1], replace(samples[-1], position=samples[-2].position)]


def _standstill(samples: Sequence[Sample]) -> tuple[Verdict, str] | None:
    """Judge a position that has not moved since a moment at which nothing waited; None where that may be a spike."""
    last = samples[-1]
    since = next(index for index in range(len(samples) - 1, -1, -1) if samples[index].waiting == 0)
    after = samples[since + 1 :]
    if last.time_lag_ms is None or last.time_lag_ms <= PACE_S * 1000:
        return None
    if any(one.position != samples[since].position for one in after) or _seconds(samples[since], last) < PACE_S:
        return None
    waits = f"{last.offset_lag} records wait, the oldest for {last.time_lag_ms / 1000:.0f} s"
    verdict = Verdict.STALL if len(after) >= FEWEST_SAMPLES else Verdict.WARNING
    return verdict, f"the position stood at {last.position} since records came; {waits}"


def _rewound(samples: Sequence[Sample]) -> tuple[int, int] | None:
    """Find the positions before and after the first step back that was not made up for.

    A rebalance makes a group commit what it had before and go on: Burrow does not hold that against it.
    """
    for index, (before, after) in enumerate(pairwise(samples), start=1):
        if after.position < before.position:
            back = any(sample.position >= before.position for sample in samples[index:])
            return None if back else (before.position, after.position)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HopPlace:
    """One hop of one source partition: `group_id` where it is consumed, `cluster` where the position is held."""

    flow: str
    source: str
    topic: str
    generation: int
    partition: int
    hop: str
    group_id: str | None = None
    cluster: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} {self.hop}{f' by {self.group_id}' if self.group_id else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HopVerdict:
    """The verdict on one hop, by its last so many `samples`; `retention` is None where its topic's retention is not known."""

    place: HopPlace
    verdict: Verdict
    reason: str
    last: Sample
    samples: int
    catch_up: CatchUp
    retention: RetentionRisk | None

    @property
    def at_risk(self) -> bool:
        """Whether retention deletes first what has not passed."""
        return self.retention is not None and self.retention.at_risk

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document; times in milliseconds, lags in offsets."""
        last, risk = self.last, self.retention
        return {
            **asdict(self.place),
            "verdict": self.verdict.name,
            "reason": self.reason,
            "position": last.position,
            "end_position": last.end_position,
            "offset_lag": last.offset_lag,
            "time_lag_ms": last.time_lag_ms,
            "observed_at": last.observed_at.isoformat(),
            "samples": self.samples,
            "eta_ms": self.catch_up.eta_ms,
            "eta_reason": self.catch_up.reason,
            "retention_risk": None if risk is None else risk.at_risk,
            "retention_left_ms": None if risk is None else risk.left_ms,
            "retention_soonest_ms": None if risk is None else risk.soonest_ms,
            "retention_reason": None if risk is None else risk.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LagVerdict(Shown):
    """The verdicts of a mirror or of one flow; the worst counts.

    `status` is the look that flows are judged by; without it, by the samples of their own hops. Groups never count for a flow.

    Example:
        >>> LagVerdict(hops=()).verdict.name
        'UNKNOWN'
    """

    hops: tuple[HopVerdict, ...]
    objectives: tuple[FlowObjectives, ...] = ()
    status: Status | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of a flow."""
        return worst(self.flows.values())

    @property
    def complete(self) -> float:
        """The share of hops of which something is known, 0 to 1; 1 of none (Burrow's `complete`)."""
        known = sum(hop.verdict is not Verdict.UNKNOWN for hop in self.hops)
        return known / len(self.hops) if self.hops else 1.0

    @property
    def flows(self) -> Mapping[str, Verdict]:
        """The verdict of each flow: that of its status, or the worst of its own hops."""
        if self.status is not None:
            return {one.flow: Verdict[one.verdict] for one in self.status.flows}
        own = [hop for hop in self.hops if hop.place.hop != "consumed"]
        names = sorted({hop.place.flow for hop in self.hops})
        return {name: worst(hop.verdict for hop in own if hop.place.flow == name) for name in names}

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why the verdict of each flow is what it is; empty without a status."""
        return {} if self.status is None else {one.flow: one.reason for one in self.status.flows}

    @property
    def groups(self) -> Mapping[str, Verdict]:
        """The worst verdict of each group."""
        read = [(hop.place.group_id or "", hop.verdict) for hop in self.hops if hop.place.hop == "consumed"]
        return {
            name: worst(verdict for group, verdict in read if group == name) for name in sorted({g for g, _ in read})
        }

    @property
    def at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops that retention overtakes, the nearest first."""
        found = [hop for hop in self.hops if hop.at_risk]
        return tuple(sorted(found, key=lambda hop: (hop.retention and hop.retention.left_ms) or 0))

    @property
    def is_fine(self) -> bool:
        """Whether no flow and no group is worse than OK, retention overtakes nothing, and no objective is missed.

        Samples that cannot tell yet are no finding; a cluster that does not answer is one.
        """
        found = {*self.flows.values(), *(hop.verdict for hop in self.hops)}
        is_known = self.status is None or self.status.is_whole
        missed = any(one.missed for one in self.objectives)
        return is_known and found <= {Verdict.OK, Verdict.UNKNOWN} and not self.at_risk and not missed

    @property
    def rpo_ms(self) -> dict[str, int | None]:
        """The age of the oldest record that would be lost with the source, by flow; None where it is not known."""
        if self.status is not None:
            return {one.flow: one.time_lag_ms for one in self.status.flows}
        return {
            flow: total(hop.last for hop in hops).time_lag_ms
            for flow in self.flows
            if (hops := self.of(flow, "republished"))
        }

    def worst_first(self) -> LagVerdict:
        """Return it with its hops in order: the worst first."""
        return replace(self, hops=tuple(sorted(self.hops, key=_urgency)))

    def at_risk_words(self, flow: str | None = None) -> str:
        """Count what retention overtakes, of all flows or of one: partitions before they are landed, and groups.

        >>> LagVerdict(hops=()).at_risk_words()
        '0 partitions'
        """
        places = [hop.place for hop in self.at_risk if flow in (None, hop.place.flow)]
        parts = {(p.source, p.topic, p.partition) for p in places if p.hop != "consumed"}
        groups = {(p.cluster, p.group_id) for p in places if p.hop == "consumed"}
        said = [plural(len(parts), "partition")] if parts or not groups else []
        return ", ".join([*said, *([plural(len(groups), "group")] if groups else [])])

    def of(self, flow: str, hop: str) -> list[HopVerdict]:
        """List the verdicts on one hop of a flow."""
        return [one for one in self.hops if (one.place.flow, one.place.hop) == (flow, hop)]

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document."""
        return {
            "verdict": self.verdict.name,
            "complete": self.complete,
            "flows": {name: verdict.name for name, verdict in self.flows.items()},
            "reasons": dict(self.reasons),
            "objectives": {one.flow: one.as_dict() for one in self.objectives},
            "hops": [hop.as_dict() for hop in self.hops],
        }

    def sheet(self) -> Sheet:
        """List the worst first."""
        if not self.hops and self.status is None:
            return Sheet(title="lag", badge=badge("UNKNOWN"), facts=("nothing was sampled yet",))
        missed = [f"{one.flow} misses its {' and '.join(one.missed)}" for one in self.objectives if one.missed]
        facts = [f"{name} {verdict.name}" for name, verdict in self.flows.items()]
        facts += [f"group {name} {verdict.name}" for name, verdict in self.groups.items() if verdict > Verdict.OK]
        if self.complete < 1:
            facts.append(f"{self.complete:.0%} of {len(self.hops)} hops are known")
        if self.at_risk:
            facts.append(f"retention overtakes {self.at_risk_words()}")
        return Sheet(
            title="lag",
            badge=badge(self.verdict.name),
            facts=(*facts, *missed),
            parts=(
                *(f"{flow}: {why}" for flow, why in self.reasons.items() if self.flows[flow] is not Verdict.OK),
                *([objectives_table(self.objectives)] if self.objectives else []),
                table("", _COLUMNS, [_row(hop) for hop in self.hops], least=("offset lag", "time lag")),
            ),
        )


def _urgency(hop: HopVerdict) -> tuple[Any, ...]:
    place = hop.place
    return (
        SEVERITY.index(hop.verdict),
        not hop.at_risk,
        place.flow,
        place.topic,
        place.partition,
        HOPS.index(place.hop),
        place.group_id or "",
    )


_COLUMNS = ["flow", "partition", "hop", "verdict", "offset lag", "time lag", "catches up in", "deleted in", "why"]


def _row(hop: HopVerdict) -> Sequence[object]:
    place, risk, why = hop.place, hop.retention, [hop.reason]
    if hop.catch_up.eta_ms is None and hop.verdict > Verdict.OK:
        why.append(hop.catch_up.reason)
    if risk is not None and risk.at_risk:
        why.append(risk.reason)
    return (
        place.flow,
        f"{place.topic}-{place.partition}",
        f"{place.hop} by {place.group_id}" if place.group_id else place.hop,
        badge(hop.verdict.name),
        hop.last.offset_lag,
        _span(hop.last.time_lag_ms),
        # Nothing to catch up is no forecast.
        _span(hop.catch_up.eta_ms or None),
        _span(risk.left_ms if risk is not None and risk.at_risk else None),
        "; ".join(why),
    )


def _span(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)
