"""Judge a window of samples by rule, without thresholds, and forecast when it catches up, or is overtaken by retention.

The rules are Burrow's (core/internal/evaluator/caching.go), in Burrow's order, over *samples* instead of commits:

    1  there is no lag now                                   OK        whatever was earlier
    2  a position went back, and has not come back           REWIND    one sample alone proves nothing
    3  there was no lag at some moment of the window         OK        a spike, or an idle topic that woke up
       but nothing has moved for as long as a mirror takes   WARNING   on the mirror's own hops; STALL from three samples on
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
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import format_duration, format_time

N = TypeVar("N", int, float)

# Burrow's `intervals`: the count of newest samples of a hop that a verdict uses.
WINDOW_SAMPLES = 10
# A batch may be under way between two samples, so one difference proves neither rest nor movement.
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
        return self.name.replace("_", " ")

    @property
    def rank(self) -> int:
        """Its place in `SEVERITY`: 0 is the worst."""
        return SEVERITY.index(self)

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


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict by `SEVERITY`; UNKNOWN of none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNKNOWN)


# -- what a sample shows of one position -----------------------------------------------------------------------------------


class HopKey(NamedTuple):
    """One hop of one source partition; `group_id` of the hop `consumed`, and `cluster` that holds the position."""

    flow: str
    source: str
    topic: str
    generation: int
    partition: int
    hop: str
    group_id: str | None
    cluster: str

    @property
    def source_partition(self) -> SourcePartition:
        return SourcePartition(self.topic, self.generation, self.partition)


class LagSample(NamedTuple):
    """Position and lag of one hop of one source partition at one moment.

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


class Total(NamedTuple):
    """The lag of several partitions: the sum of offset lags, the largest time lag."""

    offset_lag: int | None
    time_lag_ms: int | None


def sum_lags(parts: Iterable[Any]) -> Total:
    """Return the total of what has an `offset_lag` and a `time_lag_ms`, such as other totals."""
    found = list(parts)
    offsets = combine_known(sum, (one.offset_lag for one in found))
    return Total(offsets, combine_known(max, (one.time_lag_ms for one in found)))


def combine_known(add: Callable[[Collection[N]], N], values: Iterable[N | None]) -> N | None:
    """Combine values with `add`; None if one is not known, 0 of no values: a part left out would seem better than it is."""
    found = list(values)
    known = [value for value in found if value is not None]
    return None if len(known) < len(found) else add(known) if known else 0


def age_ms(since: datetime | None, now: datetime) -> int:
    """Return the age of a record in milliseconds, 0 of none."""
    return 0 if since is None else max(0, int((now - since).total_seconds() * 1000))


def _span_s(window: Sequence[LagSample]) -> float:
    return (window[-1].observed_at - window[0].observed_at).total_seconds()


# -- the verdict -----------------------------------------------------------------------------------------------------------


class Judgement(NamedTuple):
    """A verdict with its reason in words and numbers, and since when it holds, where that is known."""

    verdict: Verdict
    reason: str
    since: datetime | None = None


def judge(window: Sequence[LagSample], *, is_group: bool = False) -> Judgement:
    """Judge the samples of one hop of one partition (one generation, one group), oldest first; the last is of now.

    Samples whose lag is not known count for movement only, as in Burrow. A group (`is_group`) reads when it likes; the mirror
    itself is expected to move.
    """
    lag = window[-1].waiting
    if lag == 0:
        return Judgement(verdict=Verdict.OK, reason="nothing waits")
    if lag is None:
        return Judgement(verdict=Verdict.UNKNOWN, reason="the end was not known at the last sample")
    samples = _without_step_back_of_one_sample(window)
    if len(samples) < FEWEST_SAMPLES:
        begun = samples[0].observed_at
        said = f"{len(samples)} of at least {FEWEST_SAMPLES} samples since {format_time(begun)}, and {lag} records wait"
        return Judgement(verdict=Verdict.WARMING_UP, reason=said, since=begun)
    verdict, reason = _rule(samples, lag, is_group)
    return Judgement(verdict=verdict, reason=reason)


def _rule(samples: Sequence[LagSample], lag: int, is_group: bool) -> tuple[Verdict, str]:
    last = samples[-1]
    if (fell := _rewound(samples)) is not None:
        return Verdict.REWIND, f"the position went back, {fell[0]} to {fell[1]}, and has not come back"
    lags = [waiting for sample in samples if (waiting := sample.waiting) is not None]
    if 0 in lags:
        still = None if is_group else _standstill(samples)
        return still or (Verdict.OK, "nothing waited at some moment of the window")
    if all(sample.position == last.position for sample in samples):
        span = format_duration(_span_s(samples) * 1000)
        return Verdict.STALL, f"the position stood at {last.position} for {span}; {lag} records wait"
    if _is_in_pace(samples):
        return Verdict.OK, f"in pace: {lag} records are under way"
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return Verdict.WARNING, f"the position moves, but the lag never became less: {lags[0]} to {lags[-1]} records"
    is_falling = catch_up(samples) not in (None, NEVER)
    said = "catching up" if is_falling else "the lag became less at some moment of the window"
    return Verdict.OK, f"{said}: {lag} records wait"


def _without_step_back_of_one_sample(samples: Sequence[LagSample]) -> Sequence[LagSample]:
    """Return the samples without a step back of the last position that only the last one shows.

    Two samplers that read at one moment see positions in either order, and markers at the end of a partition count as passed
    until a record follows them: the next sample tells.
    """
    if len(samples) < 2 or samples[-1].position >= samples[-2].position:
        return samples
    return [*samples[:-1], samples[-1]._replace(position=samples[-2].position)]


def _standstill(samples: Sequence[LagSample]) -> tuple[Verdict, str] | None:
    """Judge a position that has not moved since a time when nothing waited, or return None if that may be a spike."""
    last = samples[-1]
    since = next(index for index in range(len(samples) - 1, -1, -1) if samples[index].waiting == 0)
    if last.time_lag_ms is None or last.time_lag_ms <= PACE_S * 1000 or _span_s(samples[since:]) < PACE_S:
        return None
    after = samples[since + 1 :]
    if any(one.position != samples[since].position for one in after):
        return None
    waits = f"{last.offset_lag} records wait, the oldest for {format_duration(last.time_lag_ms)}"
    verdict = Verdict.STALL if len(after) >= FEWEST_SAMPLES else Verdict.WARNING
    return verdict, f"the position stood at {last.position} since records came; {waits}"


def _rewound(samples: Sequence[LagSample]) -> tuple[int, int] | None:
    """Return the positions before and after the first step back that was not recovered.

    A rebalance makes a group commit what it had before and go on: Burrow does not hold that against it.
    """
    for index, (before, after) in enumerate(pairwise(samples), start=1):
        if after.position < before.position and all(one.position < before.position for one in samples[index:]):
            return before.position, after.position
    return None


# -- forecasts -------------------------------------------------------------------------------------------------------------


NEVER = math.inf


def catch_up(window: Sequence[LagSample]) -> float | None:
    """Forecast in how many milliseconds from the last sample a hop reaches its end, at the rates of the window.

    0 when nothing waits, or no more than is under way in a mirror in pace; `NEVER` where what waits does not become less; None
    where the window does not tell, or what waits neither grows nor falls, but for what passes by chance between two samples.
    Samples before a step back of the position do not count.
    """
    waiting = window[-1].waiting
    if not waiting:
        return waiting
    known = _since_last_step_back(window)
    span_s = _span_s(known)
    if len(known) < FEWEST_SAMPLES or span_s <= 0:
        return None
    if _is_in_pace(known):
        return 0
    came, went = (known[-1].end_position or 0) - (known[0].end_position or 0), known[-1].position - known[0].position
    # A trend of no more than passes in a moment is chance: it would tell another time to catch up at each sample.
    if went > 0 and abs(went - came) * span_s <= went * PACE_S:
        return None
    return math.ceil(waiting * span_s / (went - came) * 1000) if went > came else NEVER


def rates(window: Sequence[LagSample]) -> tuple[float | None, float | None]:
    """Return offsets a second of source end and position over a window; None where it does not tell, or something went back."""
    first, last, span_s = window[0], window[-1], _span_s(window)
    if span_s <= 0 or first.end_position is None or last.end_position is None:
        return None, None
    came, went = last.end_position - first.end_position, last.position - first.position
    return (None, None) if min(came, went) < 0 else (came / span_s, went / span_s)


def _is_in_pace(window: Sequence[LagSample]) -> bool:
    """Return whether no more records wait than a healthy mirror has under way, by age or by rate.

    A position that stands still for longer, with records that wait, is not in pace: producers may date records later than they
    were written.
    """
    known = _since_last_step_back(window)
    if not known:
        return False
    last, pace = known[-1], timedelta(seconds=PACE_S)
    stood = (one for one in known if one.waiting and one.position == last.position)
    if any(last.observed_at - one.observed_at > pace for one in stood):
        return False
    if last.time_lag_ms is not None:
        return last.time_lag_ms <= PACE_S * 1000
    passed = last.position - known[0].position
    return passed > 0 and (last.waiting or 0) * _span_s(known) <= passed * PACE_S


def _since_last_step_back(window: Sequence[LagSample]) -> list[LagSample]:
    known: list[LagSample] = []
    for sample in sorted(window, key=lambda one: one.observed_at):
        if sample.end_position is None or sample.waiting is None:
            continue
        if known and sample.position < known[-1].position:
            known = []
        known.append(sample)
    return known


class RetentionRisk(NamedTuple):
    """Whether retention deletes records before they pass a hop, by age (`retention.ms`), or has already.

    `left_ms` is at the rate of the window, None when it never comes to that; `soonest_ms` if nothing passed from now on, None
    where nothing is deleted. `is_soon`: little of the retention time is left.
    """

    reason: str
    at_risk: bool = False
    left_ms: int | None = None
    soonest_ms: int | None = None
    is_soon: bool = False


def retention_risk(
    window: Sequence[LagSample], *, now: datetime, retention_ms: int | None = None, log_start: int | None = None
) -> RetentionRisk:
    """Forecast whether retention deletes records before they pass the hop.

    Kafka deletes whole segments, and never the one being written, so it may delete later than said here, not sooner.

    `retention_ms` is that of the topic that the hop reads from, None or below 0 where age deletes nothing; `log_start` is the
    first offset that this topic holds.
    """
    last = window[-1]
    if log_start is not None and log_start > last.position:
        lost = log_start - last.position
        said = f"{lost} offsets were deleted before they passed: the first that is left is {log_start}"
        return RetentionRisk(reason=said, at_risk=True, left_ms=0, soonest_ms=0, is_soon=True)
    if last.waiting in (0, None):
        return RetentionRisk(reason="nothing waits")
    if retention_ms is None or retention_ms < 0 or last.waiting_since is None:
        return RetentionRisk(reason="it catches up first, or nothing is deleted")
    old_ms = age_ms(last.waiting_since, now)
    soonest_ms = max(0, retention_ms - old_ms)
    slope = _slope(window)
    left_ms = 0 if soonest_ms == 0 else int(soonest_ms / slope) if slope > 0 else None
    eta_ms = catch_up(window)
    catches_up = eta_ms is not None and left_ms is not None and eta_ms < left_ms
    return RetentionRisk(
        reason=f"the oldest record that waits is {format_duration(old_ms)} old, and is kept {format_duration(retention_ms)}",
        # What is more than one retention time ahead is no risk; a retention of 0 ms is one.
        at_risk=left_ms is not None and left_ms < max(1, retention_ms) and not catches_up,
        left_ms=left_ms,
        soonest_ms=soonest_ms,
        is_soon=soonest_ms < _SOON_SHARE * retention_ms,
    )


def _slope(window: Sequence[LagSample]) -> float:
    """Return by how much the age of the oldest waiting record grows in a unit of time, at most 1.

    0 where too few samples tell, or where nothing waited at some moment: what waits now came later and shows no trend.
    """
    since, span_s = [one.waiting_since for one in window if one.waiting_since is not None], _span_s(window)
    if len(window) < FEWEST_SAMPLES or len(since) < len(window) or span_s <= 0:
        return 0.0
    # It grows by the span, but for how much later the oldest record now came than the one at first.
    return min(1.0, 1.0 - (since[-1] - since[0]).total_seconds() / span_s)
