"""What lag means: a verdict on a window of positions by rule, without thresholds, and how latencies spread.

The rules are Burrow's (core/internal/evaluator/caching.go), in Burrow's order, over *samples* instead of commits:

    1  there is no lag now                                   OK        whatever was before
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

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from itertools import pairwise

# Burrow's `intervals`: the verdict is on the newest so many samples of a hop.
WINDOW_SAMPLES = 10
# Between two looks a batch may have been under way for the whole time: one difference proves neither rest nor movement.
FEWEST_SAMPLES = 3

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
class Sample:
    """One look at one hop of a source partition.

    Attributes:
        observed_at: when, with its zone.
        position: next offset to pass the hop.
        end_position: the end that the hop runs after; None where it could not be asked.
        offset_lag: records behind; None where the end is not known.
        waiting_since: timestamp of the oldest record that has not passed; None when none waits.
        time_lag_ms: its age in milliseconds, 0 when none waits; None where it is not known.
    """

    observed_at: datetime
    position: int
    end_position: int | None = None
    offset_lag: int | None = None
    waiting_since: datetime | None = None
    time_lag_ms: int | None = None

    @property
    def waiting(self) -> int | None:
        """Records that wait, at most: 0 where the offsets up to the end are known to hold none, None where the end is not known.

        Transaction markers and records that a rule kept back are offsets, and nobody waits for them.
        """
        return 0 if self.time_lag_ms == 0 and self.waiting_since is None else self.offset_lag


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict and what it rests on.

    Attributes:
        verdict: by rule.
        reason: the rule in words, with its numbers.
        samples: how many samples were judged.
        offset_lag: records behind at the last sample.
        time_lag_ms: time behind at the last sample, in milliseconds.
        observed_at: time of the last sample.
        position: where the hop stood at it.
        end_position: where its end stood; None where it was not known.
    """

    verdict: Verdict
    reason: str
    samples: int = 0
    position: int | None = None
    end_position: int | None = None
    offset_lag: int | None = None
    time_lag_ms: int | None = None
    observed_at: datetime | None = None


def judge(
    window: Sequence[Sample], *, now: datetime, current_lag: int | None = None, recent_ends: Sequence[int] = ()
) -> Judgement:
    """Return the verdict on the samples of one hop of one partition (one generation, one group), oldest first.

    Args:
        window: the samples; those whose lag is not known count for movement only, as in Burrow.
        now: the present.
        current_lag: records behind at present, where they are known from elsewhere; None takes the last sample's, as long as
            that is not too old to speak of the present.
        recent_ends: ends that were seen after the last sample: a position that had reached one of them is not yet stopped.

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
    samples = sorted(window, key=lambda sample: sample.observed_at)
    if not samples:
        return Judgement(verdict=Verdict.UNKNOWN, reason="nothing was sampled yet")
    last = samples[-1]

    def found(verdict: Verdict, reason: str) -> Judgement:
        return Judgement(
            verdict=verdict,
            reason=reason,
            samples=len(samples),
            offset_lag=last.offset_lag if current_lag is None else current_lag,
            time_lag_ms=last.time_lag_ms,
            observed_at=last.observed_at,
            position=last.position,
            end_position=last.end_position,
        )

    silent_s, span_s = (now - last.observed_at).total_seconds(), _seconds(samples[0], last)
    is_old = silent_s > span_s
    lag = current_lag
    if lag is None:
        if len(samples) >= FEWEST_SAMPLES and is_old and last.waiting == 0:
            why = f"nothing waited {silent_s:.0f} s ago, and nobody has looked since; the window spans {span_s:.0f} s"
            return found(Verdict.UNKNOWN, why)
        lag = last.waiting
    if lag is None:
        return found(Verdict.UNKNOWN, "the end was not known at the last sample")
    if lag == 0:
        return found(Verdict.OK, "nothing waits")
    if len(samples) < FEWEST_SAMPLES:
        return found(Verdict.UNKNOWN, f"{len(samples)} of at least {FEWEST_SAMPLES} samples, and {lag} records wait")
    if is_old and not any(end <= last.position for end in recent_ends):
        why = f"no position was reported for {silent_s:.0f} s, the window spans {span_s:.0f} s; {lag} records wait"
        return found(Verdict.STOP, why)
    if (fell := _rewound(samples)) is not None:
        before, after = fell
        return found(Verdict.REWIND, f"the position went back, {before} to {after}, and has not come back")
    lags = [waiting for sample in samples if (waiting := sample.waiting) is not None]
    if 0 in lags:
        return found(Verdict.OK, "nothing waited at some moment of the window")
    if all(sample.position == last.position for sample in samples):
        return found(Verdict.STALL, f"the position stood at {last.position} for {span_s:.0f} s; {lag} records wait")
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return found(
            Verdict.WARNING, f"the position moves, but the lag never became less: {lags[0]} to {lags[-1]} records"
        )
    return found(Verdict.OK, f"catching up: {lag} records wait")


def _seconds(first: Sample, last: Sample) -> float:
    return (last.observed_at - first.observed_at).total_seconds()


def _rewound(samples: Sequence[Sample]) -> tuple[int, int] | None:
    """Return the positions before and after the first step back, None where there was none or it was made up for.

    A rebalance makes a group commit what it had before and go on: Burrow does not hold that against it.
    """
    for index, (before, after) in enumerate(pairwise(samples), start=1):
        if after.position < before.position:
            back = any(sample.position >= before.position for sample in samples[index:])
            return None if back else (before.position, after.position)
    return None


def worst(judgements: Iterable[Judgement]) -> Verdict:
    """Return the worst verdict; UNKNOWN where nothing was judged, and only where nothing is known at all.

    A partition that is new does not hide what is known of the others: `completeness` says how many were judged.

    >>> worst([]).name
    'UNKNOWN'
    """
    return max((judgement.verdict for judgement in judgements), default=Verdict.UNKNOWN)


def completeness(judgements: Sequence[Judgement]) -> float:
    """Return the share of judgements that know something, 0 to 1; 1 where there is nothing to judge (Burrow's `complete`)."""
    known = sum(judgement.verdict is not Verdict.UNKNOWN for judgement in judgements)
    return known / len(judgements) if judgements else 1.0


def all_known(add: Callable[[Sequence[int]], int], values: Iterable[int | None]) -> int | None:
    """Combine values with `add`; None if any is unknown, as a lag that leaves a part out would look better than it is.

    >>> all_known(max, [1, 2]), all_known(sum, [1, None]), all_known(sum, [])
    (2, None, None)
    """
    found = list(values)
    known = [value for value in found if value is not None]
    return add(known) if known and len(known) == len(found) else None


def percentiles(values: Iterable[float], asked: Sequence[float] = (50, 95, 99)) -> Mapping[float, float]:
    """Return percentiles by nearest rank: each is a value that occurred, in the values' own unit; none of no values.

    Raises:
        ValueError: an asked percentile is not above 0 and at most 100.

    >>> percentiles([30, 10, 20], (50, 100))
    {50: 20, 100: 30}
    """
    if any(not 0 < each <= 100 for each in asked):
        raise ValueError(f"percentiles lie above 0 and reach to 100, not {asked}")
    ranked = sorted(values)
    if not ranked:
        return {}
    return {each: ranked[math.ceil(each * len(ranked) / 100) - 1] for each in asked}
