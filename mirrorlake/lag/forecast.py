"""Forecast a lag: when a hop catches up, and whether retention deletes records before they pass it.

Both go on with the rates of the window as straight lines and say so; neither guesses where the window cannot tell.

    offset   end ────────────────────────╱        caught up where the lines of end and position meet
             position ────────────╱               overtaken where the lines of position and earliest meet,
             earliest ──────╱                     or the age of the oldest waiting record reaches retention.ms
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

from mirrorlake.lag.time_lag import LagSample
from mirrorlake.render import format_duration

By = Literal["age", "size", "lost"]
"""What deletes: `retention.ms`; the first offset of the log that comes nearer, whatever moves it; nothing any more, as it is
gone."""

# A batch may be under way between two samples, so one difference proves neither rest nor movement.
FEWEST_SAMPLES = 3
# A healthy mirror has records of up to this age under way: batches, transactions of a few seconds, and their commits.
# Within that, a lag grows or falls by chance.
PACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """When a hop reaches its end at the rates of the window, in offsets a second.

    `eta_ms` counts from the last sample: 0 when nothing waits, or no more than is under way in a mirror in pace; None when it
    never does, or nothing can be said. The rates are None where too few samples know them. `is_steady`: what waits neither grows
    nor falls, but for what passes by chance between two samples.
    """

    eta_ms: int | None
    reason: str
    position_per_s: float | None = None
    end_per_s: float | None = None
    is_steady: bool = False


def catch_up(window: Sequence[LagSample]) -> CatchUp:
    """Forecast when a hop catches up; samples before a step back of the position do not count."""
    known = _since_last_step_back(window)
    if not known:
        return CatchUp(eta_ms=None, reason="nothing was sampled yet")
    last = known[-1]
    waiting = last.waiting or 0
    if waiting == 0:
        return CatchUp(eta_ms=0, reason="nothing waits")
    span_s = (last.observed_at - known[0].observed_at).total_seconds()
    if len(known) < FEWEST_SAMPLES or span_s <= 0:
        return CatchUp(eta_ms=None, reason=f"{len(known)} of at least {FEWEST_SAMPLES} samples")
    position_per_s = (last.position - known[0].position) / span_s
    end_per_s = ((last.end_position or 0) - (known[0].end_position or 0)) / span_s
    gain, eta_ms, is_steady = position_per_s - end_per_s, None, False
    if is_in_pace(known):
        eta_ms, reason = 0, f"in pace: {waiting} records are under way"
    elif position_per_s > 0 and abs(gain) * span_s <= position_per_s * PACE_S:
        # A trend of no more than passes in a moment is chance: it would tell another time to catch up at each sample.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Earliest:
    observed_at: datetime
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRisk:
    """Whether retention deletes records before they pass a hop.

    `at_risk` is said at the rates of the window, before the log has turned over once, or if retention has overtaken already.
    `by`: `age` (`retention.ms`), `size` (the earliest offset comes nearer), `lost` (the earliest offset has passed the
    position), `relay` (the relay's own retention, which waits for its slowest flow: never a risk), `none`.
    `left_ms` is at the rates of the window, None when it never comes to that; `soonest_ms` if nothing passed from now on, None
    where nothing is deleted. `lost` offsets are gone already, at most so many records.
    """

    at_risk: bool
    by: By | Literal["relay", "none"]
    left_ms: int | None
    soonest_ms: int | None
    lost: int = 0
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """When retention deletes the oldest waiting record, at the present rate and if nothing passes from now on.

    `by` is `lost` where it is gone already.
    """

    in_ms: int
    by: By
    is_soon: bool
    reason: str


# Less than this share of retention time, or less than this time if the log's movement decides, makes a verdict.
_SOON_SHARE, _SOON_MS = 0.1, 3_600_000


def next_expiry(
    sample: LagSample,
    *,
    now: datetime,
    retention_ms: int | None = None,
    earliest: Sequence[Earliest] = (),
) -> Expiry | None:
    """Return when the oldest waiting record is deleted, by age or size, whichever is first; None if nothing waits or is deleted."""
    held = sorted(earliest, key=lambda one: one.observed_at)
    if held and held[-1].offset > sample.position:
        lost = held[-1].offset - sample.position
        return Expiry(in_ms=0, by="lost", is_soon=True, reason=f"{lost} offsets were deleted before they were landed")
    if sample.waiting in (0, None):
        return None
    found = []
    if (age := _by_age([sample], retention_ms, now)) is not None and age.soonest_ms is not None:
        soon = age.soonest_ms < _SOON_SHARE * (retention_ms or 0)
        found.append(Expiry(in_ms=age.soonest_ms, by="age", is_soon=soon, reason=age.reason))
    if (moved := _by_size([sample], held)) is not None and moved.soonest_ms is not None:
        # If a log turns over within the hour, half of it is enough time for a healthy lander.
        is_near = 2 * _before_deletion(sample, held) < (sample.end_position or 0) - held[-1].offset
        soon = moved.soonest_ms < _SOON_MS and is_near
        found.append(Expiry(in_ms=moved.soonest_ms, by="size", is_soon=soon, reason=moved.reason))
    return min(found, key=lambda one: one.in_ms, default=None)


_NO_RISK = RetentionRisk(at_risk=False, by="none", left_ms=None, soonest_ms=None, reason="nothing waits")


def retention_risk(
    window: Sequence[LagSample],
    *,
    now: datetime,
    retention_ms: int | None = None,
    earliest: Sequence[Earliest] = (),
) -> RetentionRisk:
    """Forecast whether retention deletes records before they pass the hop, by age or size, whichever is first.

    Kafka deletes whole segments, and never the one being written, so it may delete later than said here, not sooner.

    `retention_ms` is that of the topic that the hop reads from, None or below 0 where age deletes nothing; `earliest` are the
    first offsets that this topic held over time: the longer, the better, as they move in jumps.
    """
    samples = sorted(window, key=lambda sample: sample.observed_at)
    held = sorted(earliest, key=lambda one: one.observed_at)
    if samples and held and held[-1].offset > samples[-1].position:
        lost = held[-1].offset - samples[-1].position
        reason = f"the first offset that is left is {held[-1].offset}, the position {samples[-1].position}"
        return RetentionRisk(at_risk=True, by="lost", left_ms=0, soonest_ms=0, lost=lost, reason=reason)
    if not samples or samples[-1].waiting in (0, None):
        return _NO_RISK
    eta_ms = catch_up(samples).eta_ms
    found = [
        risk
        for risk in (_by_age(samples, retention_ms, now), _by_size(samples, held))
        if risk is not None and not (eta_ms is not None and risk.left_ms is not None and eta_ms < risk.left_ms)
    ]
    if not found:
        return RetentionRisk(
            at_risk=False, by="none", left_ms=None, soonest_ms=None, reason="it catches up first, or nothing is deleted"
        )
    return min(found, key=lambda risk: (not risk.at_risk, _or_never(risk.left_ms), _or_never(risk.soonest_ms)))


def no_older_than(window: Sequence[LagSample], last_passed: datetime | None) -> list[LagSample]:
    """Return the samples with a bound for the unknown age of waiting records that are not landed.

    It came after the last look at which nothing waited, and after the last record that passed (`last_passed` is its timestamp);
    its age is reported too large by that, never too small, so that a risk is not said too late.
    """
    samples = sorted(window, key=lambda sample: sample.observed_at)
    found, at_rest = [], None
    for sample in samples:
        if sample.waiting == 0:
            at_rest = sample.observed_at
        bounds = [at for at in (at_rest, last_passed) if at is not None]
        is_open = sample.waiting != 0 and sample.waiting_since is None and sample.position == samples[-1].position
        found.append(replace(sample, waiting_since=max(bounds)) if is_open and bounds else sample)
    return found


def _or_never(ms: int | None) -> float:
    return math.inf if ms is None else ms


def _by_age(samples: Sequence[LagSample], retention_ms: int | None, now: datetime) -> RetentionRisk | None:
    last = samples[-1]
    if retention_ms is None or retention_ms < 0 or last.waiting_since is None:
        return None
    age_ms = (now - last.waiting_since).total_seconds() * 1000
    soonest_ms = max(0, int(retention_ms - age_ms))
    at_most = "at most " if last.time_lag_ms is None else ""
    said = f"the oldest record that waits is {at_most}{format_duration(age_ms)} old, and is kept {format_duration(retention_ms)}"
    slope = _slope(samples)
    left_ms = int(soonest_ms / slope) if slope > 0 else None
    if soonest_ms == 0:
        left_ms = 0
    at_risk = left_ms is not None and left_ms < max(1, retention_ms)
    return RetentionRisk(at_risk=at_risk, by="age", left_ms=left_ms, soonest_ms=soonest_ms, reason=said)


def _slope(samples: Sequence[LagSample]) -> float:
    """Return by how much the age of the oldest waiting record grows in a unit of time, at most 1.

    0 where too few samples tell, or where nothing waited at some moment: what waits now came later and shows no trend.
    """
    first, last = samples[0], samples[-1]
    span_ms = (last.observed_at - first.observed_at).total_seconds() * 1000
    if len(samples) < FEWEST_SAMPLES or any(s.waiting_since is None for s in samples) or span_ms <= 0:
        return 0.0
    ages = [(s.observed_at - s.waiting_since).total_seconds() * 1000 for s in (first, last) if s.waiting_since]
    return min(1.0, (ages[-1] - ages[0]) / span_ms)


def _by_size(samples: Sequence[LagSample], held: Sequence[Earliest]) -> RetentionRisk | None:
    last = samples[-1]
    if len(held) < 2 or last.end_position is None:
        return None
    span_s = (held[-1].observed_at - held[0].observed_at).total_seconds()
    deleted_per_s = (held[-1].offset - held[0].offset) / span_s if span_s > 0 else 0.0
    if deleted_per_s <= 0:
        return None
    moved_s = (last.observed_at - samples[0].observed_at).total_seconds()
    passed_per_s = max(0.0, (last.position - samples[0].position) / moved_s) if moved_s > 0 else 0.0
    distance, held_now = _before_deletion(last, held), last.end_position - held[-1].offset
    nearer = deleted_per_s - passed_per_s
    left_ms = int(distance / nearer * 1000) if nearer > 0 else None
    turnover_ms = held_now / deleted_per_s * 1000
    return RetentionRisk(
        at_risk=left_ms is not None and left_ms < turnover_ms,
        by="size",
        left_ms=left_ms,
        soonest_ms=int(distance / deleted_per_s * 1000),
        reason=f"{last.position - held[-1].offset} offsets before the position are left, {deleted_per_s:.3g} a second are deleted",
    )


def _before_deletion(last: LagSample, held: Sequence[Earliest]) -> int:
    """Count the offsets before the position, less the largest step of the log start offset, which may recur at once."""
    step = max(after.offset - before.offset for before, after in pairwise(held))
    return max(0, last.position - held[-1].offset - step)


def _since_last_step_back(window: Sequence[LagSample]) -> list[LagSample]:
    known: list[LagSample] = []
    for sample in sorted(window, key=lambda one: one.observed_at):
        if sample.end_position is None or sample.waiting is None:
            continue
        if known and sample.position < known[-1].position:
            known = []
        known.append(sample)
    return known
