"""The values that tell where a mirror stands: status by partition, topic, flow and mirror, and the lag of each hop.

A verdict is that of `status/verdict.py`, by the newest samples with this snapshot as the last. A `state` is what mirrorlake knows
itself: it makes a verdict worse, never better, but for a paused partition, which is PAUSED whatever its samples say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, TypeVar

from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.parked import Parked
from mirrorlake.model.remotes import LostTopic
from mirrorlake.render import Badge, JsonDisplayable, Sheet, Table, badge, format_count, format_duration, plural, table
from mirrorlake.status.verdict import SEVERITY, Judgement, Verdict, combine_known, worst
from mirrorlake.tables import TableStatus, tables_table

By = Literal["topic", "partition"]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
STATES = (
    "parked",
    "unknown",
    "topic_lost",
    "expiring",
    "blocked",
    "behind",
    "not_started",
    "paused",
    "caught_up",
    "empty",
)
"""The states of a partition or flow, worst first.

`unknown`: a cluster did not answer, or no broker leads a partition; `empty`: the flow carries no topic yet.
"""
_NO_TOPIC = "no topic to mirror yet; next: mirrorlake doctor --only source.topics"


def _worst_state(states: Iterable[str]) -> str:
    return min(states, key=STATES.index, default="empty")


def _badge(verdict: str, state: str) -> Badge:
    # A flow that carries no topic yet is no alarm.
    return badge(Verdict[verdict].label, "off" if state == "empty" else None)


def to_timedelta(ms: float | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


def grouped(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return found


def table_of(
    title: str, rows: Sequence[Mapping[str, object]], *, without: Iterable[str] = (), least: Sequence[str] = ()
) -> Table:
    """Return a table of rows by the names of their columns."""
    names = [name for name in (rows[0] if rows else ()) if name not in without]
    return table(title, names, [[row[name] for name in names] for row in rows], least=least)


# -- partitions, topics, flows, the mirror ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """The positions of one source partition's newest generation in one flow; each is the next offset.

    The lags are those of the hop `republished` in `mirror.lag`, in offsets and milliseconds. The `verdict` is the name of a
    `Verdict` (see `status.verdict`), its `reason` is in words, and `since` says since when it holds, where that is known. The `state`
    is what mirrorlake knows, one of `STATES` (docs/verdicts.md). `expires_in_ms` counts from now until the source deletes the first
    record that is not landed, if landing stopped now; None for never. A transaction that hangs open on the source for `blocked_ms`
    hides `blocked_offsets` up to the high watermark, while `source_end` is the last stable offset.
    Up to `proven_until` verifications found every landed record on the target; None where nothing is proven.
    `in_per_s` and `out_per_s` are offsets a second over the newest samples, None where not known; `eta_ms` is the time to catch up,
    None where it is not known, or never.
    """

    topic: str
    partition: int
    source_end: int
    landed: int
    republished: int
    offset_lag: int
    time_lag_ms: int | None
    verdict: str
    state: str = "caught_up"
    reason: str = ""
    since: datetime | None = None
    proven_until: int | None = None
    expires_in_ms: int | None = None
    expires_why: str | None = None
    blocked_offsets: int = 0
    blocked_ms: int | None = None
    in_per_s: float | None = None
    out_per_s: float | None = None
    eta_ms: float | None = None

    @property
    def not_proven(self) -> int:
        """The offsets of the source that no verification has found on the target yet."""
        return max(0, self.source_end - (self.proven_until or 0))


class Totals:
    """The figures of several partitions: of a topic, a flow or the mirror; None where that of one is not known."""

    __slots__ = ()
    partitions: Sequence[PartitionStatus]

    @property
    def is_whole(self) -> bool:
        """Whether all clusters answered."""
        return True

    @property
    def offset_lag(self) -> int:
        """The offsets that are not on the target yet, of all partitions that are known."""
        return sum(row.offset_lag for row in self.partitions)

    @property
    def time_lag_ms(self) -> int | None:
        """The largest time lag of a partition in milliseconds."""
        return combine_known(max, (row.time_lag_ms for row in self.partitions)) if self.is_whole else None

    @property
    def in_per_s(self) -> float | None:
        """Offsets a second that come to the sources."""
        return self._rate([row.in_per_s for row in self.partitions])

    @property
    def out_per_s(self) -> float | None:
        """Offsets a second that reach the targets."""
        return self._rate([row.out_per_s for row in self.partitions])

    def _rate(self, rates: Sequence[float | None]) -> float | None:
        return combine_known(sum, rates) if self.is_whole and rates else None

    @property
    def eta_ms(self) -> float | None:
        """The longest time to catch up of a partition, in milliseconds; None where one never does, too."""
        return combine_known(max, (row.eta_ms for row in self.partitions)) if self.is_whole else None

    @property
    def not_proven(self) -> int:
        """The offsets of the source that no verification has found on the target yet."""
        return sum(row.not_proven for row in self.partitions)

    def _facts(self) -> tuple[str, ...]:
        rows = self.partitions
        found = Counter(row.verdict for row in rows)
        verdicts = [f"{format_count(found[word.name])} {word.label}" for word in SEVERITY if word.name in found]
        said = [plural(len(rows), "partition"), *(verdicts if len(found) > 1 else [])]
        left = min((row.expires_in_ms for row in rows if row.expires_in_ms is not None), default=None)
        if left is not None:
            said.append(f"not landed, deleted by the source in {format_duration(left)}")
        if rows:
            said.append(f"offset lag {'' if self.is_whole else 'at least '}{format_count(self.offset_lag)}")
            said.append(f"time lag {format_duration(self.time_lag_ms)}")
        return tuple(said)


def _urgency(row: PartitionStatus | FlowStatus) -> tuple[int, int]:
    return Verdict[row.verdict].rank, STATES.index(row.state)


_NOTHING_YET = Judgement(verdict=Verdict.UNKNOWN, reason="no topic to mirror yet")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlowStatus(Totals, JsonDisplayable, Sequence[PartitionStatus]):
    """The status of each partition of one flow at a moment: a sequence of its `PartitionStatus`.

    `parked` holds its streams that failed in a running mirror, its own and the landing of its source. `unknown` says which
    cluster did not answer, `away`, and when it did last by the samples, `answered_at`; nothing else is known then. Shown `by`
    topic, or by partition. `held` are its lost remote topics, to which nothing is sent; `leaderless` are partitions of the source
    that no broker leads, of which nothing is known.

    Example:
        >>> row = PartitionStatus(topic="orders", partition=0, source_end=9, landed=9, republished=5, offset_lag=4,
        ...                       time_lag_ms=1200, verdict="STALL", state="behind", reason="the position stands")
        >>> print(FlowStatus(flow="east->central", partitions=(row,), observed_at=None))
        east->central: ✗ STALL · 1 partition · offset lag 4 · time lag 1.2 s
          topic   verdict  offset lag  time lag  in/s  out/s  catches up in  proven   why
          orders  ✗ STALL           4     1.2 s  –     –      –              nothing  the position stands
    """

    flow: str
    partitions: tuple[PartitionStatus, ...]
    observed_at: datetime | None
    held: tuple[LostTopic, ...] = ()
    leaderless: tuple[TopicPartition, ...] = ()
    parked: tuple[Parked, ...] = ()
    objectives: tuple[Objective, ...] = ()
    unknown: str | None = None
    away: str | None = None
    answered_at: datetime | None = None
    shown_by: By = "topic"
    json_exclude: ClassVar[tuple[str, ...]] = ("observed_at", "shown_by")
    json_include: ClassVar[tuple[str, ...]] = ("verdict", "state", "reason", "since")

    def __getitem__(self, index: Any) -> Any:
        return self.partitions[index]

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether its clusters answered, for each partition."""
        return self.unknown is None and not self.leaderless

    @property
    def topics(self) -> dict[str, FlowStatus]:
        """The status of each topic by itself, by its name."""
        of, blind = grouped(self.partitions, lambda row: row.topic), grouped(self.leaderless, lambda tp: tp.topic)
        bare = replace(self, parked=(), unknown=None)
        return {
            name: replace(bare, partitions=tuple(of.get(name, ())), leaderless=tuple(blind.get(name, ())))
            for name in sorted(of.keys() | blind.keys())
        }

    def _decisive(self) -> Judgement:
        """Return the worst of a parked stream, a cluster that is away and the partitions; of equals the first of these."""
        found = []
        # A stream that is parked for its cluster, which is away, is tried again.
        if any(self.unknown is None or not one.is_retried for one in self.parked):
            since = min(one.since for one in self.parked)
            found.append(Judgement(verdict=Verdict.STOP, reason="; ".join(map(str, self.parked)), since=since))
        if self.unknown is not None:
            found.append(Judgement(verdict=Verdict.CLUSTER_AWAY, reason=self.unknown, since=self.answered_at))
        if self.leaderless:
            found.append(Judgement(verdict=Verdict.UNKNOWN, reason=_no_leader(self)))
        if self.partitions:
            row = min(self.partitions, key=_urgency)
            begun = (one.since for one in self.partitions if one.since is not None and one.verdict == row.verdict)
            is_same = len({one.reason for one in self.partitions}) == 1
            reason = row.reason if is_same else f"{row.topic}-{row.partition}: {row.reason}"
            found.append(Judgement(verdict=Verdict[row.verdict], reason=reason, since=min(begun, default=None)))
        return min(found, key=lambda one: one.verdict.rank, default=_NOTHING_YET)

    @property
    def verdict(self) -> str:
        """The worst of its partitions; at least STOP where a stream is parked, CLUSTER_AWAY where a cluster does not answer."""
        return self._decisive().verdict.name

    @property
    def reason(self) -> str:
        """Why the verdict is what it is: a parked stream, a cluster that is away, or the worst partition."""
        return self._decisive().reason

    @property
    def since(self) -> datetime | None:
        """Since when the verdict holds: the parking, a cluster's last answer, a pause, the first sample; None where not known."""
        return self._decisive().since

    @property
    def state(self) -> str:
        """The first of `STATES` that holds."""
        beyond = [*(["parked"] if self.parked else []), *([] if self.is_whole else ["unknown"])]
        return _worst_state([*beyond, *(row.state for row in self.partitions)])

    def by(self, what: By) -> FlowStatus:
        """Show it by `topic` or by `partition`."""
        return replace(self, shown_by=what)

    def sheet(self) -> Sheet:
        """Show the worst first."""
        rows: list[str | Table] = [_status_table([self], self.shown_by)] if self.partitions else []
        if self.leaderless:
            rows.append(_no_leader(self))
        parts = (*map(str, self.parked), *(rows or [self.unknown or _NO_TOPIC]), *map(str, self.held))
        facts = (*self._facts(), *map(str, self.objectives), self.observed_at)
        return Sheet(title=self.flow, badge=_badge(self.verdict, self.state), facts=facts, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Status(Totals, JsonDisplayable, Mapping[str, FlowStatus]):
    """The status of every flow at a moment: a mapping from a flow's name to its `FlowStatus`; shown by topic, or `by` partition.

    `tables` are the typed tables, which the status of one flow lacks.

    Example:
        >>> mirror.status().verdict  # doctest: +SKIP
        'OK'
        >>> mirror.status()["east->central"].offset_lag  # doctest: +SKIP
        0
    """

    flows: tuple[FlowStatus, ...]
    observed_at: datetime
    tables: tuple[TableStatus, ...] = ()
    shown_by: By = "topic"
    json_exclude: ClassVar[tuple[str, ...]] = ("observed_at", "shown_by")

    def __getitem__(self, flow: str) -> FlowStatus:
        return {one.flow: one for one in self.flows}[flow]

    def __iter__(self) -> Iterator[str]:
        return (one.flow for one in self.flows)

    def __len__(self) -> int:
        return len(self.flows)

    @property
    def partitions(self) -> Sequence[PartitionStatus]:  # type: ignore[override]
        """The partitions of all flows."""
        return [row for flow in self.flows for row in flow.partitions]

    @property
    def is_whole(self) -> bool:
        """Whether all clusters answered."""
        return all(flow.is_whole for flow in self.flows)

    @property
    def verdict(self) -> str:
        """The worst verdict of a flow or a typed table."""
        return worst(Verdict[one.verdict] for some in (self.tables, self.flows) for one in some).name

    @property
    def state(self) -> str:
        """The worst state of a flow; `parked` where a typed table is."""
        tables = ["parked" for one in self.tables if one.parked is not None]
        return _worst_state([*tables, *(flow.state for flow in self.flows)])

    def by(self, what: By) -> Status:
        """Show it by `topic` or by `partition`."""
        return replace(self, shown_by=what)

    def sheet(self) -> Sheet:
        """Show the worst first."""
        flows = [_row("", one) for one in sorted(self.flows, key=lambda one: Verdict[one.verdict].rank)]
        of_topics = ("topic", "in/s", "out/s", "catches up in", "proven")
        parts: tuple[str | Table, ...] = (
            *dict.fromkeys(str(parked) for one in self.flows for parked in one.parked),
            *(str(one.parked) for one in self.tables if one.parked is not None),
            *([table_of("", flows, without=of_topics)] if len(flows) > 1 else []),
            *objectives_table(self.flows),
            *([_status_table(self.flows, self.shown_by)] if self.partitions else []),
            *(f"{one.flow}: {_NO_TOPIC}" for one in self.flows if one.is_whole and not one.partitions),
            *(f"{one.flow}: {_no_leader(one)}" for one in self.flows if one.leaderless),
            *(f"{one.flow}: {one.unknown}" for one in self.flows if one.unknown and len(self) == 1),
            *(str(one) for flow in self.flows for one in flow.held),
            *([tables_table("typed tables", self.tables)] if self.tables else []),
        )
        facts = (plural(len(self), "flow"), *self._facts(), self.observed_at)
        return Sheet(title="Status", badge=_badge(self.verdict, self.state), facts=facts, parts=parts)


def _no_leader(flow: FlowStatus) -> str:
    return f"no broker leads {', '.join(map(str, flow.leaderless))}"


def _status_table(flows: Sequence[FlowStatus], by: By) -> Table:
    """Show topics or partitions, the worst first; with their flows where there are several."""
    without = () if len(flows) > 1 else ("flow",)
    if by == "topic":
        topics = sorted((item for flow in flows for item in flow.topics.items()), key=lambda item: _urgency(item[1]))
        least = ("catches up in", "in/s", "out/s", "proven")
        return table_of("", [_row(*item) for item in topics], without=("partitions", *without), least=least)
    rows = [
        {
            "flow": flow,
            "topic": row.topic,
            "partition": str(row.partition),
            "source end": str(row.source_end),
            "landed up to": str(row.landed),
            "republished up to": str(row.republished),
            "proven until": None if row.proven_until is None else str(row.proven_until),
            "offset lag": row.offset_lag,
            "time lag": to_timedelta(row.time_lag_ms),
            "verdict": _badge(row.verdict, row.state),
            "why": row.reason,
        }
        for flow, row in sorted(((one.flow, row) for one in flows for row in one), key=lambda pair: _urgency(pair[1]))
    ]
    least = ("proven until", "source end", "landed up to", "republished up to")
    return table_of("", rows, without=without, least=least)


def _row(topic: str, one: FlowStatus) -> dict[str, object]:
    proven = f"all but {format_count(one.not_proven)}" if one.not_proven else "all"
    if all(row.proven_until is None for row in one.partitions):
        proven = "nothing"
    return {
        "flow": one.flow,
        "topic": topic,
        "verdict": _badge(one.verdict, one.state),
        "partitions": len(one),
        "offset lag": one.offset_lag if one.is_whole else None,
        "time lag": to_timedelta(one.time_lag_ms),
        "in/s": one.in_per_s,
        "out/s": one.out_per_s,
        # Nothing to catch up is no forecast.
        "catches up in": to_timedelta(one.eta_ms or None),
        "proven": proven,
        "why": one.reason,
    }


# -- objectives ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """An objective of a flow, `RPO` or `RTO`, in seconds, and what was measured: the RPO now, the RTO of the last failover or drill.

    What was not measured is neither met nor missed.
    """

    name: str
    wanted_s: float
    measured_s: float | None
    measured_at: datetime | None = None
    measured_by: str | None = None
    json_include: ClassVar[tuple[str, ...]] = ("met",)

    @property
    def met(self) -> Literal["met", "missed", "unknown"]:
        if self.measured_s is None:
            return "unknown"
        return "met" if self.measured_s <= self.wanted_s else "missed"

    def __str__(self) -> str:
        wanted = format_duration(self.wanted_s * 1000)
        if self.measured_s is None:
            return f"{self.name} not measured of {wanted}"
        return f"{self.name} {format_duration(self.measured_s * 1000)} of {wanted}, {self.met}"


def objectives_table(flows: Iterable[FlowStatus]) -> list[Table]:
    """Return the table of the objectives of flows, if any has some."""
    rows = [
        {
            "flow": of.flow,
            "objective": one.name,
            "at most": to_timedelta(one.wanted_s * 1000),
            "measured": None if one.measured_s is None else to_timedelta(one.measured_s * 1000),
            "verdict": badge(one.met),
        }
        for of in flows
        for one in of.objectives
    ]
    return [table_of("objectives", rows)] if rows else []
