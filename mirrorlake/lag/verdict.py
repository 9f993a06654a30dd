"""What lag means: a verdict on a window of samples by rule, without thresholds.

The rules are Burrow's (core/internal/evaluator/caching.go), in Burrow's order, over *samples* instead of commits:

    1  there is no lag now                                   OK        whatever was earlier
    2  nobody has reported for longer than the window spans  STOP      unless the end that is known is reached
    3  a position went back, and has not come back           REWIND
    4  there was no lag at some moment of the window         OK        a spike, or an idle topic that woke up
    5  no position of the window differs from the others     STALL
    6  the lag never became less                             WARNING   it moves, but too slowly
    7  else                                                  OK

What a mirror changes: the end is looked at together with the position, so a topic at rest has lag 0 and is OK however long
it rests, also where only transaction markers or filtered records follow. A sample is seen from outside, so a group that
died looks like one that stands still (STALL), and STOP says that the looking itself has ended: the mirror that samples is
gone, or the group's positions are. A window that cannot tell is UNKNOWN with the reason, and never OK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise
from typing import Any

from mirrorlake.lag.forecast import FEWEST_SAMPLES, CatchUp, RetentionRisk
from mirrorlake.lag.moment import Sample, total
from mirrorlake.lag.objectives import FlowObjectives, objectives_table
from mirrorlake.model.control import ControlState
from mirrorlake.render import Sheet, Shown, badge, table

# Burrow's `intervals`: the verdict is on the newest so many samples of a hop.
WINDOW_SAMPLES = 10

HOPS = ("landed", "republished", "consumed")


class Verdict(IntEnum):
    """What a window of samples says, worst last; the numbers are Burrow's, which keeps 0 for not found and 3 for an error.

    >>> max(Verdict.OK, Verdict.STALL).name
    'STALL'
    """

    UNKNOWN = 0
    OK = 1
    WARNING = 2
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict, and the rule in words with its numbers."""

    verdict: Verdict
    reason: str


def judge(window: Sequence[Sample], *, now: datetime) -> Judgement:
    """Judge the samples of one hop of one partition (one generation, one group), oldest first.

    Samples whose lag is not known count for movement only, as in Burrow.

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
    verdict, reason = _rule(sorted(window, key=lambda sample: sample.observed_at), now)
    return Judgement(verdict=verdict, reason=reason)


def _rule(samples: Sequence[Sample], now: datetime) -> tuple[Verdict, str]:
    if not samples:
        return Verdict.UNKNOWN, "nothing was sampled yet"
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
        return Verdict.OK, "nothing waited at some moment of the window"
    if all(sample.position == last.position for sample in samples):
        return Verdict.STALL, f"the position stood at {last.position} for {span_s:.0f} s; {lag} records wait"
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return Verdict.WARNING, f"the position moves, but the lag never became less: {lags[0]} to {lags[-1]} records"
    return Verdict.OK, f"catching up: {lag} records wait"


def _seconds(first: Sample, last: Sample) -> float:
    return (last.observed_at - first.observed_at).total_seconds()


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


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; UNKNOWN only where nothing is known at all.

    A partition that is new does not hide what is known of the others: `LagVerdict.complete` says how many were judged.

    >>> worst([Verdict.UNKNOWN, Verdict.OK]).name, worst([]).name
    ('OK', 'UNKNOWN')
    """
    return max(verdicts, default=Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagVerdict(Shown):
    """The verdicts of a mirror or of one flow; the worst counts.

    Example:
        >>> LagVerdict(hops=()).verdict.name
        'UNKNOWN'
    """

    hops: tuple[HopVerdict, ...]
    objectives: tuple[FlowObjectives, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all hops."""
        return worst(hop.verdict for hop in self.hops)

    @property
    def complete(self) -> float:
        """The share of hops of which something is known, 0 to 1; 1 of none (Burrow's `complete`)."""
        known = sum(hop.verdict is not Verdict.UNKNOWN for hop in self.hops)
        return known / len(self.hops) if self.hops else 1.0

    @property
    def flows(self) -> Mapping[str, Verdict]:
        """The worst verdict of each flow."""
        names = sorted({hop.place.flow for hop in self.hops})
        return {name: worst(hop.verdict for hop in self.hops if hop.place.flow == name) for name in names}

    @property
    def at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops that retention overtakes, the nearest first."""
        found = [hop for hop in self.hops if hop.at_risk]
        return tuple(sorted(found, key=lambda hop: (hop.retention and hop.retention.left_ms) or 0))

    @property
    def is_fine(self) -> bool:
        """Whether no hop is worse than OK, retention overtakes none, and no objective is missed."""
        return self.verdict <= Verdict.OK and not self.at_risk and not any(one.missed for one in self.objectives)

    @property
    def rpo_ms(self) -> dict[str, int | None]:
        """The age of the oldest record that would be lost with the source, by flow; None where it is not known."""
        return {
            flow: total(hop.last for hop in hops).time_lag_ms
            for flow in self.flows
            if (hops := self.of(flow, "republished"))
        }

    def of(self, flow: str, hop: str) -> list[HopVerdict]:
        """List the verdicts on one hop of a flow."""
        return [one for one in self.hops if (one.place.flow, one.place.hop) == (flow, hop)]

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document."""
        return {
            "verdict": self.verdict.name,
            "complete": self.complete,
            "flows": {name: verdict.name for name, verdict in self.flows.items()},
            "objectives": {one.flow: one.as_dict() for one in self.objectives},
            "hops": [hop.as_dict() for hop in self.hops],
        }

    def sheet(self) -> Sheet:
        """List the worst first."""
        if not self.hops:
            return Sheet(title="lag", badge=badge("UNKNOWN"), facts=("nothing was sampled yet",))
        missed = [f"{one.flow} misses its {' and '.join(one.missed)}" for one in self.objectives if one.missed]
        facts = [f"{name} {verdict.name}" for name, verdict in self.flows.items()]
        if self.complete < 1:
            facts.append(f"{self.complete:.0%} of {len(self.hops)} hops are known")
        if self.at_risk:
            facts.append(f"retention overtakes {len(self.at_risk)}")
        return Sheet(
            title="lag",
            badge=badge(self.verdict.name),
            facts=(*facts, *missed),
            parts=(
                *([objectives_table(self.objectives)] if self.objectives else []),
                table("", _COLUMNS, [_row(hop) for hop in self.hops], least=("offset lag", "time lag")),
            ),
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
        _span(hop.catch_up.eta_ms),
        _span(risk.left_ms if risk is not None and risk.at_risk else None),
        "; ".join(why),
    )


def _span(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


def name_pauses(found: LagVerdict, state: ControlState, targets: Mapping[str, str]) -> LagVerdict:
    """Say of verdicts worse than OK whose pause holds them; records wait all the same. `targets` are by flow."""

    def named(hop: HopVerdict) -> HopVerdict:
        place, pause = hop.place, None
        if hop.verdict > Verdict.OK and place.hop == "landed":
            pause = state.of_cluster(place.source)
        elif hop.verdict > Verdict.OK and place.hop == "republished":
            target = targets.get(place.flow, "")
            pause = state.of_stream(place.flow, target) or state.topics_of(place.flow).get(place.topic)
        return hop if pause is None else replace(hop, reason=f"{pause}; {hop.reason}")

    return replace(found, hops=tuple(map(named, found.hops)))
