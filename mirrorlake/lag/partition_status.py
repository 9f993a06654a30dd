"""Define the status of partitions and topics: positions, lags, a verdict with its reason, and a state.

The verdict is that of `lag/verdict.py`, on the newest samples of the hop `republished` with this snapshot as the last. The
`state` is a known condition; it only makes a verdict worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mirrorlake.lag.forecast import catch_up
from mirrorlake.lag.time_lag import LagSample, combine_known, sum_lags
from mirrorlake.lag.verdict import SEVERITY, Judgement, Verdict, judge, verdict_label, worst_hop_verdict
from mirrorlake.render import Badge, Table, badge, format_count, format_duration, format_time, plural, table

TOPIC_LOST = "topic_lost"
CAUGHT_UP = "caught_up"
STATES = (
    "parked",
    "unknown",
    TOPIC_LOST,
    "expiring",
    "blocked",
    "behind",
    "not_started",
    "paused",
    CAUGHT_UP,
    "empty",
)
"""The states of a partition or flow, worst first.

`unknown`: a cluster did not answer; `empty`: the flow carries no topic yet.
"""

_AT_LEAST = {"parked": Verdict.STOP, TOPIC_LOST: Verdict.STALL, "expiring": Verdict.WARNING, "blocked": Verdict.WARNING}


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Return the name of the `worst` of verdicts, by name.

    >>> worst_verdict(["OK", "UNKNOWN"]), worst_verdict(["STALL", "OK"]), worst_verdict([])
    ('UNKNOWN', 'STALL', 'UNKNOWN')
    """
    return worst_hop_verdict(Verdict[name] for name in verdicts).name


def worst_state(states: Iterable[str]) -> str:
    """Return the first of `STATES` that holds somewhere; `empty` of none."""
    return min(states, key=STATES.index, default="empty")


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
    verdict = worst_hop_verdict([found.verdict, _AT_LEAST.get(state, found.verdict)])
    return Judgement(verdict=verdict, reason=reason, since=found.since if verdict is found.verdict else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of a partition over a window in offsets a second, and its time to catch up; None where too little is known."""

    in_per_s: float | None = None
    out_per_s: float | None = None
    eta_ms: int | None = None


def compute_rates(window: Sequence[LagSample]) -> Rates:
    """Compute the rates of source end and position, and the time to catch up (see `forecast.catch_up`)."""
    eta_ms = catch_up(window).eta_ms
    if len(window) < 2:
        return Rates(eta_ms=eta_ms)
    first, last = window[0], window[-1]
    span_s = (last.observed_at - first.observed_at).total_seconds()
    if span_s <= 0 or first.end_position is None or last.end_position is None:
        return Rates(eta_ms=eta_ms)
    moved = (last.end_position - first.end_position, last.position - first.position)
    if min(moved) < 0:
        # The log or the position went back, so there is no rate.
        return Rates(eta_ms=eta_ms)
    return Rates(in_per_s=moved[0] / span_s, out_per_s=moved[1] / span_s, eta_ms=eta_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Where the newest life of one source partition stands in one flow; positions are next offsets.

    The lags are those of the hop `republished` in `mirror.lag`, in offsets and milliseconds. The `verdict` is the name of a
    `Verdict` (see `lag.verdict`), its `reason` is in words, and `since` says since when it holds, where that is known. The `state`
    is what mirrorlake knows:
    `caught_up` everything of the source is on the target; `behind` not yet; `not_started` nothing was landed; `paused` a pause of
    the cluster, the flow or the topic holds; `expiring` the source deletes soon what is not landed (law E); `topic_lost` the remote
    topic was deleted or recreated, and nothing is sent there until a person chooses. `expires_in_ms` counts from now until the
    source deletes the first record that is not landed, if landing stopped now; None for never. `blocked`: a transaction hangs open
    on the source for `blocked_ms`, and nothing from its first record on may be read: `blocked_offsets` of them up to the high
    watermark, while `source_end` is the last stable offset.
    Up to `proven_until` verifications found every landed record on the target; None where nothing is proven.
    `in_per_s` and `out_per_s` are offsets a second over the newest samples, `eta_ms` the time to catch up; None: not known.
    """

    topic: str
    partition: int
    source_end: int
    landed: int
    republished: int
    offset_lag: int
    time_lag_ms: int | None
    verdict: str
    state: str = CAUGHT_UP
    reason: str = ""
    since: datetime | None = None
    proven_until: int | None = None
    expires_in_ms: int | None = None
    expires_why: str | None = None
    blocked_offsets: int = 0
    blocked_ms: int | None = None
    in_per_s: float | None = None
    out_per_s: float | None = None
    eta_ms: int | None = None

    @property
    def not_proven(self) -> int:
        """The offsets of the source that no verification has found on the target yet."""
        return max(0, self.source_end - (self.proven_until or 0))


class Totals:
    """The figures of several partitions: of a topic, a flow or the mirror."""

    __slots__ = ()

    def _partitions(self) -> Sequence[PartitionStatus]:
        raise NotImplementedError

    @property
    def is_whole(self) -> bool:
        """Whether all clusters answered."""
        return True

    @property
    def offset_lag(self) -> int:
        """The offsets that are not on the target yet, of all partitions that are known."""
        return sum_lags(self._partitions()).offset_lag or 0

    @property
    def time_lag_ms(self) -> int | None:
        """The largest time lag of a partition in milliseconds; None where that of one is not known."""
        return sum_lags(self._partitions()).time_lag_ms if self.is_whole else None

    @property
    def in_per_s(self) -> float | None:
        """Offsets a second that come to the sources; None where that of a partition is not known."""
        return sum_rates(row.in_per_s for row in self._partitions()) if self.is_whole else None

    @property
    def out_per_s(self) -> float | None:
        """Offsets a second that reach the targets; None where that of a partition is not known."""
        return sum_rates(row.out_per_s for row in self._partitions()) if self.is_whole else None

    @property
    def eta_ms(self) -> int | None:
        """The longest time to catch up of a partition, in milliseconds; None where one never does, or is not known."""
        return combine_known(max, (row.eta_ms for row in self._partitions())) if self.is_whole else None

    def _facts(self) -> tuple[str, ...]:
        rows = self._partitions()
        found = Counter(row.verdict for row in rows)
        verdicts = [f"{format_count(found[word.name])} {word.label}" for word in SEVERITY if word.name in found]
        said = [plural(len(rows), "partition"), *(verdicts if len(found) > 1 else [])]
        left = min((row.expires_in_ms for row in rows if row.expires_in_ms is not None), default=None)
        if left is not None:
            said.append(f"not landed, deleted by the source in {format_duration(left)}")
        if rows:
            at_least = "" if self.is_whole else "at least "
            said += [
                f"offset lag {at_least}{format_count(self.offset_lag)}",
                f"time lag {format_duration(self.time_lag_ms)}",
            ]
        return tuple(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus(Totals):
    """The status of one source topic in one flow, of all its partitions.

    Example:
        >>> rows = [PartitionStatus(topic="orders", partition=p, source_end=9, landed=9, republished=9 - p, offset_lag=p,
        ...                         time_lag_ms=p * 1000, verdict=("OK", "STALL")[p], reason=("fine", "it stands")[p]) for p in (0, 1)]
        >>> found = TopicStatus(flow="east->central", topic="orders", partitions=tuple(rows))
        >>> found.verdict, found.reason, found.offset_lag, found.time_lag_ms
        ('STALL', 'partition 1: it stands', 1, 1000)
    """

    flow: str
    topic: str
    partitions: tuple[PartitionStatus, ...]

    def _partitions(self) -> Sequence[PartitionStatus]:
        return self.partitions

    @property
    def verdict(self) -> str:
        return worst_verdict(row.verdict for row in self.partitions)

    @property
    def state(self) -> str:
        return worst_state(row.state for row in self.partitions)

    @property
    def reason(self) -> str:
        """The reason of the worst partition, which it names where there are several."""
        return worst_reason(self.partitions, {id(row): f"partition {row.partition}" for row in self.partitions})

    @property
    def not_proven(self) -> int:
        """The offsets of the source that no verification has found on the target yet."""
        return sum(row.not_proven for row in self.partitions)


def sum_rates(rates: Iterable[float | None]) -> float | None:
    """Return the sum of rates, or None if one is unknown."""
    found = list(rates)
    return None if None in found or not found else sum(rate or 0.0 for rate in found)


def worst_reason(rows: Sequence[PartitionStatus], names: Mapping[int, str]) -> str:
    """Return the reason of the worst partition, with its name (by identity) unless all reasons are the same."""
    if not rows:
        return "no topic to mirror yet"
    row = min(rows, key=lambda one: SEVERITY.index(Verdict[one.verdict]))
    return row.reason if len({one.reason for one in rows}) == 1 else f"{names[id(row)]}: {row.reason}"


def status_badge(verdict: str, state: str) -> Badge:
    """Return the badge of a verdict; a flow that carries no topic yet is no alarm."""
    return badge(verdict_label(verdict), "off" if state == "empty" else None)


def format_proven(not_proven: int, of: Sequence[PartitionStatus]) -> str:
    """Describe how much of the source is proven to be on the target.

    >>> format_proven(0, []), format_proven(1200, [])
    ('nothing', 'nothing')
    """
    if all(row.proven_until is None for row in of):
        return "nothing"
    return f"all but {format_count(not_proven)}" if not_proven else "all"


def to_timedelta(ms: float | None) -> timedelta | None:
    """Return milliseconds as a timedelta, or None."""
    return None if ms is None else timedelta(milliseconds=ms)


def _urgency(row: TopicStatus | PartitionStatus) -> tuple[int, int]:
    return SEVERITY.index(Verdict[row.verdict]), STATES.index(row.state)


def topic_table(topics: Iterable[TopicStatus], *, named: bool) -> Table:
    """Show topics, the worst first; `named` with their flows."""
    columns = ["topic", "verdict", "offset lag", "time lag", "in/s", "out/s", "catches up in", "proven", "why"]
    return table(
        "",
        ["flow", *columns] if named else columns,
        [
            (
                *([one.flow] if named else []),
                one.topic,
                status_badge(one.verdict, one.state),
                one.offset_lag,
                to_timedelta(one.time_lag_ms),
                one.in_per_s,
                one.out_per_s,
                # Nothing to catch up is no forecast.
                to_timedelta(one.eta_ms or None),
                format_proven(one.not_proven, one.partitions),
                one.reason,
            )
            for one in sorted(topics, key=_urgency)
        ],
        least=("catches up in", "in/s", "out/s", "proven"),
    )


def partition_table(rows: Iterable[tuple[str, PartitionStatus]], *, named: bool) -> Table:
    """Show partitions with their flows, the worst first; `named` names the flows."""
    positions = ["source end", "landed up to", "republished up to", "proven until"]
    columns = ["topic", "partition", *positions, "offset lag", "time lag", "verdict", "why"]
    return table(
        "",
        ["flow", *columns] if named else columns,
        [
            (
                *([flow] if named else []),
                row.topic,
                *map(str, (row.partition, row.source_end, row.landed, row.republished)),
                None if row.proven_until is None else str(row.proven_until),
                row.offset_lag,
                to_timedelta(row.time_lag_ms),
                status_badge(row.verdict, row.state),
                row.reason,
            )
            for flow, row in sorted(rows, key=lambda found: _urgency(found[1]))
        ],
        least=("proven until", "source end", "landed up to", "republished up to"),
    )
