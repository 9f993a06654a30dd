"""Judge a window of snapshots by rule, without thresholds, and forecast when it catches up, or is overtaken by retention.

The rules are Burrow's (core/internal/evaluator/caching.go), in Burrow's order, over *snapshots* instead of commits:

    1  there is no lag now                                   OK        whatever was earlier
    2  a position went back, and has not come back           REWIND    one snapshot alone proves nothing
    3  there was no lag at some moment of the window         OK        a spike, or an idle topic that woke up
       but nothing has moved for as long as a mirror takes   WARNING   on the hops of the mirror itself
    4  no position of the window differs from the others     STALL
    5  what waits passes in as long as a mirror takes        OK        a mirror in pace always has some records under way
    6  the lag never became less                             WARNING   it moves, but too slowly
    7  else                                                  OK

What a mirror changes: the end is read together with the position, so a topic at rest has lag 0 and is OK however long
it rests, also where only transaction markers or filtered records follow. The last sample is always of now, so Burrow's STOP, of
a group that reports no more, cannot be told from STALL; a flow is STOP where its stream is parked. A window that cannot tell is
never OK, and says why: WARMING_UP while it fills, UNKNOWN else.

Forecasts go on with the rates of the window as straight lines and say so; they do not guess where the window cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

from mirrorlake.render import format_duration, format_time

# Burrow's `intervals`: the count of newest samples of a hop that a verdict uses.
WINDOW_SAMPLES = 10
# A batch may be under way between two snapshots, so one difference proves neither rest nor movement.
FEWEST_SAMPLES = 3
# A healthy mirror has records of up to this age under way: batches, transactions of a few seconds, and their commits.
# Within that, a lag grows or falls by chance.
PACE_S = 10.0
# Less than this share of the retention time is left: soon.
_SOON_SHARE = 0.1


class Verdict(IntEnum):
    """A verdict, numbered as in Burrow, where 0 is not found. Burrow's 3, an error, is a pause here; 7 and 8 are mirrorlake's."""

    UNKNOWN = 0
    OK = 1
    WARNING = 2
    PAUSED = 3
    STOP = 4
    STALL = 5
    REWIND = 6
    WARMING_UP = 7
    CLUSTER_AWAY = 8

    @property
    def label(self) -> str:
        return verdict_label(self.name)

    @property
    def in_metrics(self) -> Verdict:
        """The verdict by Burrow's numbers, which metrics have: all that is not known is UNKNOWN there."""
        return self if self <= Verdict.REWIND else Verdict.UNKNOWN


# What is not known is worse than OK, because it may be wrong.
SEVERITY = (
    Verdict.REWIND,
    Verdict.STALL,
    Verdict.STOP,
    Verdict.CLUSTER_AWAY,
    Verdict.WARNING,
    Verdict.UNKNOWN,
    Verdict.WARMING_UP,
    Verdict.PAUSED,
    Verdict.OK,
)


def verdict_label(name: str) -> str:
    return name.replace("_", " ")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict by `SEVERITY`; UNKNOWN of none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNKNOWN)


# -- what a snapshot shows of one position ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LagSample:
    """Position and lag of one hop of one source partition at one snapshot.

    `position` is the next offset to pass the hop, `waiting_since` the timestamp of the oldest record that has not passed and
    `time_lag_ms` its age, 0 when none waits. None where it is not known.
    """

    observed_at: datetime
    position: int
    end_position: int | None = None
    offset_lag: int | None = None
    waiting_since: datetime | None = None
    time_lag_ms: int | None = None

    @property
    def waiting(self) -> int | None:
        """Records that wait, at most: 0 where the offsets up to the end hold none, None where the end is not known."""
        return 0 if self.time_lag_ms == 0 and self.waiting_since is None else self.offset_lag


class HasLag(Protocol):
    @property
    def offset_lag(self) -> int | None: ...

    @property
    def time_lag_ms(self) -> int | None: ...


class Total(NamedTuple):
    """The lag of several partitions: the sum of offset lags, the largest time lag."""

    offset_lag: int | None
    time_lag_ms: int | None


def sum_lags(parts: Iterable[HasLag]) -> Total:
    """Return the summed offset lag and the largest time lag; totals may be summed again."""
    found = list(parts)
    return Total(
        combine_known(sum, (one.offset_lag for one in found)), combine_known(max, (one.time_lag_ms for one in found))
    )


def combine_known(add: Callable[[Collection[int]], int], values: Iterable[int | None]) -> int | None:
    """Combine values with `add`; None if one is not known, 0 of no values: a part left out would snapshot better than it is."""
    found = list(values)
    known = [value for value in found if value is not None]
    return None if len(known) < len(found) else add(known) if known else 0


def age_ms(since: datetime | None, now: datetime) -> int:
    """Return the age of a record in milliseconds, 0 of none."""
    return 0 if since is None else max(0, int((now - since).total_seconds() * 1000))


# -- the verdict -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reason in words and numbers, and since when it holds, where that is known."""

    verdict: Verdict
    reason: str
    since: datetime | None = None


_AT_REST = Judgement(verdict=Verdict.OK, reason="nothing waits")


def judge(window: Sequence[LagSample], *, is_group: bool = False) -> Judgement:
    """Judge the samples of one hop of one partition (one generation, one group), oldest first; the last is of now.

    Samples whose lag is not known count for movement only, as in Burrow. A group (`is_group`) reads when it likes; the mirror
    itself is expected to move.
    """
    lag = window[-1].waiting
    if lag == 0:
        return _AT_REST
    if lag is None:
        return Judgement(verdict=Verdict.UNKNOWN, reason="the end was not known at the last sample")
    samples = _without_step_back_of_one_sample(window)
    span = samples[-1].observed_at - samples[0].observed_at
    if len(samples) < FEWEST_SAMPLES:
        begun = samples[0].observed_at
        reason = (
            f"{len(samples)} of at least {FEWEST_SAMPLES} samples since {format_time(begun)}, and {lag} records wait"
        )
        return Judgement(verdict=Verdict.WARMING_UP, reason=reason, since=begun)
    verdict, reason = _rule(samples, lag, span, is_group)
    return Judgement(verdict=verdict, reason=reason)


def _rule(samples: Sequence[LagSample], lag: int, span: timedelta, is_group: bool) -> tuple[Verdict, str]:
    last = samples[-1]
    if (fell := _rewound(samples)) is not None:
        before, after = fell
        return Verdict.REWIND, f"the position went back, {before} to {after}, and has not come back"
    lags = [waiting for sample in samples if (waiting := sample.waiting) is not None]
    if 0 in lags:
        if not is_group and (still := _standstill(samples)) is not None:
            return still
        return Verdict.OK, "nothing waited at some moment of the window"
    if all(sample.position == last.position for sample in samples):
        return Verdict.STALL, f"the position stood at {last.position} for {format_duration(span)}; {lag} records wait"
    if is_in_pace(samples):
        return Verdict.OK, f"in pace: {lag} records are under way"
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return Verdict.WARNING, f"the position moves, but the lag never became less: {lags[0]} to {lags[-1]} records"
    return Verdict.OK, f"{'steady' if catch_up(samples).is_steady else 'catching up'}: {lag} records wait"


def _without_step_back_of_one_sample(samples: Sequence[LagSample]) -> Sequence[LagSample]:
    """Return the snapshots without a step back of the last position that only the last one shows.

    Two samplers that read at one moment see positions in either order, and markers at the end of a partition count as passed
    until a record follows them: the next snapshot tells.
    """
    if len(samples) < 2 or samples[-1].position >= samples[-2].position:
        return samples
    return [*samples[:-1], replace(samples[-1], position=samples[-2].position)]


def _standstill(samples: Sequence[LagSample]) -> tuple[Verdict, str] | None:
    """Judge a position that has not moved since a time when nothing waited, or return None if that may be a spike."""
    last = samples[-1]
    since = next(index for index in range(len(samples) - 1, -1, -1) if samples[index].waiting == 0)
    after = samples[since + 1 :]
    if last.time_lag_ms is None or last.time_lag_ms <= PACE_S * 1000:
        return None
    span_s = (last.observed_at - samples[since].observed_at).total_seconds()
    if any(one.position != samples[since].position for one in after) or span_s < PACE_S:
        return None
    waits = f"{last.offset_lag} records wait, the oldest for {format_duration(last.time_lag_ms)}"
    verdict = Verdict.STALL if len(after) >= FEWEST_SAMPLES else Verdict.WARNING
    return verdict, f"the position stood at {last.position} since records came; {waits}"


def _rewound(samples: Sequence[LagSample]) -> tuple[int, int] | None:
    """Return the positions before and after the first step back that was not recovered.

    A rebalance makes a group commit what it had before and go on: Burrow does not hold that against it.
    """
    for index, (before, after) in enumerate(pairwise(samples), start=1):
        if after.position < before.position:
            back = any(sample.position >= before.position for sample in samples[index:])
            return None if back else (before.position, after.position)
    return None


# -- forecasts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """When a hop reaches its end at the rates of the window, in offsets a second.

    `eta_ms` counts from the last snapshot: 0 when nothing waits, or no more than is under way in a mirror in pace; None when it
    never does, or nothing can be said. The rates are None where too few snapshots know them. `is_steady`: what waits neither grows
    nor falls, but for what passes by chance between two snapshots.
    """

    eta_ms: int | None
    reason: str
    position_per_s: float | None = None
    end_per_s: float | None = None
    is_steady: bool = False


_CAUGHT_UP = CatchUp(eta_ms=0, reason="nothing waits")


def catch_up(window: Sequence[LagSample]) -> CatchUp:
    """Forecast when a hop catches up; snapshots before a step back of the position do not count."""
    waiting = window[-1].waiting
    if waiting == 0:
        return _CAUGHT_UP
    if waiting is None:
        return CatchUp(eta_ms=None, reason="the end was not known at the last sample")
    known = _since_last_step_back(window)
    last = known[-1]
    span_s = (last.observed_at - known[0].observed_at).total_seconds()
    if len(known) < FEWEST_SAMPLES or span_s <= 0:
        return CatchUp(eta_ms=None, reason=f"{len(known)} of at least {FEWEST_SAMPLES} samples")
    position_per_s = (last.position - known[0].position) / span_s
    end_per_s = ((last.end_position or 0) - (known[0].end_position or 0)) / span_s
    gain, eta_ms, is_steady = position_per_s - end_per_s, None, False
    if is_in_pace(known):
        eta_ms, reason = 0, f"in pace: {waiting} records are under way"
    elif position_per_s > 0 and abs(gain) * span_s <= position_per_s * PACE_S:
        # A trend of no more than passes in a moment is chance: it would tell another time to catch up at each snapshot.
        is_steady, reason = True, f"steady: {waiting} records wait, and their number neither grows nor falls"
    elif gain > 0:
        eta_ms = math.ceil(waiting / gain * 1000)
        reason = f"{waiting} records wait, and their number falls by {gain:.3g} a second"
    elif position_per_s == 0:
        reason = f"never: the position stands still, {waiting} records wait"
    else:
        reason = f"never: {waiting} records wait, and their number grows by {-gain:.3g} a second"
    return CatchUp(
        eta_ms=eta_ms, reason=reason, position_per_s=position_per_s, end_per_s=end_per_s, is_steady=is_steady
    )


def rates(window: Sequence[LagSample]) -> tuple[float | None, float | None]:
    """Return offsets a second of source end and position over a window; None where it does not tell, or something went back."""
    first, last = window[0], window[-1]
    span_s = (last.observed_at - first.observed_at).total_seconds()
    if span_s <= 0 or first.end_position is None or last.end_position is None:
        return None, None
    came, went = last.end_position - first.end_position, last.position - first.position
    return (None, None) if min(came, went) < 0 else (came / span_s, went / span_s)


def is_in_pace(window: Sequence[LagSample]) -> bool:
    """Return whether no more records wait than a healthy mirror has under way, by age or by rate.

    A position that stands still for longer, with records that wait, is not in pace: producers may date records later than they
    were written.
    """
    known = _since_last_step_back(window)
    if not known:
        return False
    first, last = known[0], known[-1]
    pace = timedelta(seconds=PACE_S)
    if any(
        sample.waiting and sample.position == last.position and last.observed_at - sample.observed_at > pace
        for sample in known
    ):
        return False
    if last.time_lag_ms is not None:
        return last.time_lag_ms <= PACE_S * 1000
    span_s = (last.observed_at - first.observed_at).total_seconds()
    passed = last.position - first.position
    return passed > 0 and (last.waiting or 0) * span_s <= passed * PACE_S


def _since_last_step_back(window: Sequence[LagSample]) -> list[LagSample]:
    known: list[LagSample] = []
    for sample in sorted(window, key=lambda one: one.observed_at):
        if sample.end_position is None or sample.waiting is None:
            continue
        if known and sample.position < known[-1].position:
            known = []
        known.append(sample)
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRisk:
    """Whether retention deletes records before they pass a hop, by age (`retention.ms`), or has (`lost`: so many offsets).

    `left_ms` is at the rate of the window, None when it never comes to that; `soonest_ms` if nothing passed from now on, None
    where nothing is deleted. `is_soon`: little of the retention time is left.
    """

    at_risk: bool
    by: Literal["age", "lost", "none"]
    left_ms: int | None
    soonest_ms: int | None
    reason: str
    lost: int = 0
    is_soon: bool = False


_NO_RISK = RetentionRisk(at_risk=False, by="none", left_ms=None, soonest_ms=None, reason="nothing waits")
_CATCHES_UP = replace(_NO_RISK, reason="it catches up first, or nothing is deleted")


def retention_risk(
    window: Sequence[LagSample], *, now: datetime, retention_ms: int | None = None, log_start: int | None = None
) -> RetentionRisk:
    """Forecast whether retention deletes records before they pass the hop.

    Kafka deletes whole segments, and never the one being written, so it may delete later than said here, not sooner.

    `retention_ms` is that of the topic that the hop reads from, None or below 0 where age deletes nothing; `log_start` is the
    first offset that this topic holds.
    """
    samples = sorted(window, key=lambda sample: sample.observed_at)
    if samples and log_start is not None and log_start > samples[-1].position:
        lost = log_start - samples[-1].position
        reason = f"{lost} offsets were deleted before they passed: the first that is left is {log_start}"
        return RetentionRisk(at_risk=True, by="lost", left_ms=0, soonest_ms=0, lost=lost, is_soon=True, reason=reason)
    if not samples or samples[-1].waiting in (0, None):
        return _NO_RISK
    last = samples[-1]
    if retention_ms is None or retention_ms < 0 or last.waiting_since is None:
        return _CATCHES_UP
    old_ms = age_ms(last.waiting_since, now)
    soonest_ms = max(0, retention_ms - old_ms)
    slope = _slope(samples)
    left_ms = 0 if soonest_ms == 0 else int(soonest_ms / slope) if slope > 0 else None
    eta_ms = catch_up(samples).eta_ms
    catches_up = eta_ms is not None and left_ms is not None and eta_ms < left_ms
    return RetentionRisk(
        at_risk=left_ms is not None and left_ms < max(1, retention_ms) and not catches_up,
        by="age",
        left_ms=left_ms,
        soonest_ms=soonest_ms,
        is_soon=soonest_ms < _SOON_SHARE * retention_ms,
        reason=f"the oldest record that waits is {format_duration(old_ms)} old, and is kept {format_duration(retention_ms)}",
    )


def _slope(samples: Sequence[LagSample]) -> float:
    """Return by how much the age of the oldest waiting record grows in a unit of time, at most 1.

    0 where too few snapshots tell, or where nothing waited at some moment: what waits now came later and shows no trend.
    """
    first, last = samples[0], samples[-1]
    span_ms = (last.observed_at - first.observed_at).total_seconds() * 1000
    if len(samples) < FEWEST_SAMPLES or any(one.waiting_since is None for one in samples) or span_ms <= 0:
        return 0.0
    # A record that came after the first snapshot has a negative age there: it has aged by the whole span.
    ages = [(s.observed_at - s.waiting_since).total_seconds() * 1000 for s in (first, last) if s.waiting_since]
    return min(1.0, (ages[-1] - ages[0]) / span_ms)
