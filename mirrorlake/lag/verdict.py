"""Judge a window of samples by rule, without thresholds.

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
gone, or the group's positions are. A window that cannot tell is never OK, and says why: WARMING_UP while it fills, UNKNOWN else.

What a flow is, its status says (`lag/status_reader.py`): every view shows that verdict. Groups have verdicts of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise

from mirrorlake.lag.forecast import FEWEST_SAMPLES, PACE_S, catch_up, is_in_pace
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.render import format_duration, format_time

# Burrow's `intervals`: the count of newest samples of a hop that a verdict uses.
WINDOW_SAMPLES = 10
# Of fewer samples than a verdict needs, no interval is known: two default ones.
_YOUNG = timedelta(seconds=60)


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


def worst_hop_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict by `SEVERITY`; UNKNOWN of none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reason in words and numbers, and since when it holds, where that is known."""

    verdict: Verdict
    reason: str
    since: datetime | None = None


def judge(window: Sequence[LagSample], *, now: datetime, is_group: bool = False) -> Judgement:
    """Judge the samples of one hop of one partition (one generation, one group), oldest first.

    Samples whose lag is not known count for movement only, as in Burrow. A group (`is_group`) reads when it likes; the mirror
    itself is expected to move.
    """
    samples = sorted(window, key=lambda sample: sample.observed_at)
    verdict, reason = _rule(samples, now, is_group)
    since = samples[0].observed_at if samples and verdict is Verdict.WARMING_UP else None
    return Judgement(verdict=verdict, reason=reason, since=since)


def _rule(samples: Sequence[LagSample], now: datetime, is_group: bool) -> tuple[Verdict, str]:
    if not samples:
        return Verdict.UNKNOWN, "nothing was sampled yet"
    samples = _without_step_back_of_one_sample(samples)
    last = samples[-1]
    lag, silent, span = last.waiting, now - last.observed_at, last.observed_at - samples[0].observed_at
    is_old = silent > span
    if lag is None:
        return Verdict.UNKNOWN, "the end was not known at the last sample"
    if lag == 0:
        if len(samples) >= FEWEST_SAMPLES and is_old:
            why = f"nothing waited {format_duration(silent)} ago, and nobody has looked since; the window spans {format_duration(span)}"
            return Verdict.UNKNOWN, why
        return Verdict.OK, "nothing waits"
    if len(samples) < FEWEST_SAMPLES:
        few = f"{len(samples)} of at least {FEWEST_SAMPLES} samples"
        if silent > max(span, _YOUNG):
            return Verdict.UNKNOWN, f"{few}, the last {format_duration(silent)} ago, and {lag} records waited"
        return Verdict.WARMING_UP, f"{few} since {format_time(samples[0].observed_at)}, and {lag} records wait"
    if is_old:
        why = f"no position was reported for {format_duration(silent)}, the window spans {format_duration(span)}; {lag} records wait"
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
        return Verdict.STALL, f"the position stood at {last.position} for {format_duration(span)}; {lag} records wait"
    if is_in_pace(samples):
        return Verdict.OK, f"in pace: {lag} records are under way"
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return Verdict.WARNING, f"the position moves, but the lag never became less: {lags[0]} to {lags[-1]} records"
    return Verdict.OK, f"{'steady' if catch_up(samples).is_steady else 'catching up'}: {lag} records wait"


def _without_step_back_of_one_sample(samples: Sequence[LagSample]) -> Sequence[LagSample]:
    """Return the samples without a step back of the last position that only the last sample shows.

    Two samplers that look at one moment see positions in either order, and markers at the end of a partition count as passed
    until a record follows them: the next sample tells.
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
