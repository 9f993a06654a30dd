"""Status: where every partition of every flow stands at one moment, with a verdict on each, on each flow and on all.

The verdict is that of `status/verdict.py`, on the newest samples of the hop `republished` with this snapshot as the last. The
`state` is a known condition; it only makes a verdict worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, overload

from mirrorlake.model.parked import Parked
from mirrorlake.model.remotes import LostTopic
from mirrorlake.render import Badge, JsonDisplayable, Sheet, Table, badge, format_count, format_duration, plural, table
from mirrorlake.status.objectives import FlowObjectives, objectives_table
from mirrorlake.status.verdict import SEVERITY, Verdict, combine_known, sum_lags, verdict_label, worst
from mirrorlake.tables import TableStatus, tables_table

By = Literal["topic", "partition"]
_NO_TOPIC = "no topic to mirror yet; next: mirrorlake doctor --only source.topics"
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


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Return the name of the `worst` of verdicts, by name.

    >>> worst_verdict(["OK", "UNKNOWN"]), worst_verdict(["STALL", "OK"]), worst_verdict([])
    ('UNKNOWN', 'STALL', 'UNKNOWN')
    """
    return worst(Verdict[name] for name in verdicts).name


def worst_state(states: Iterable[str]) -> str:
    """Return the first of `STATES` that holds somewhere; `empty` of none."""
    return min(states, key=STATES.index, default="empty")


def status_badge(verdict: str, state: str) -> Badge:
    """Return the badge of a verdict; a flow that carries no topic yet is no alarm."""
    return badge(verdict_label(verdict), "off" if state == "empty" else None)


def to_timedelta(ms: float | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Where the newest life of one source partition stands in one flow; positions are next offsets.

    The lags are those of the hop `republished` in `mirror.lag`, in offsets and milliseconds. The `verdict` is the name of a
    `Verdict` (see `status.verdict`), its `reason` is in words, and `since` says since when it holds, where that is known. The `state`
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
        """The largest time lag of a partition in milliseconds; None where that of one is not known."""
        return sum_lags(self.partitions).time_lag_ms if self.is_whole else None

    @property
    def in_per_s(self) -> float | None:
        """Offsets a second that come to the sources; None where that of a partition is not known."""
        return self._rate([row.in_per_s for row in self.partitions])

    @property
    def out_per_s(self) -> float | None:
        """Offsets a second that reach the targets; None where that of a partition is not known."""
        return self._rate([row.out_per_s for row in self.partitions])

    def _rate(self, rates: Sequence[float | None]) -> float | None:
        known = [rate for rate in rates if rate is not None]
        return sum(known) if self.is_whole and known and len(known) == len(rates) else None

    @property
    def eta_ms(self) -> int | None:
        """The longest time to catch up of a partition, in milliseconds; None where one never does, or is not known."""
        return combine_known(max, (row.eta_ms for row in self.partitions)) if self.is_whole else None

    @property
    def not_proven(self) -> int:
        """The offsets of the source that no verification has found on the target yet."""
        return sum(row.not_proven for row in self.partitions)

    def proven_words(self) -> str:
        """Describe how much of the source is proven to be on the target."""
        if all(row.proven_until is None for row in self.partitions):
            return "nothing"
        return f"all but {format_count(self.not_proven)}" if self.not_proven else "all"

    def _worst_reason(self, name: str) -> str:
        """Return the reason of the worst partition, with its name by a format unless all reasons are the same."""
        row = min(self.partitions, key=_urgency)
        return row.reason if len({one.reason for one in self.partitions}) == 1 else f"{name.format(row)}: {row.reason}"

    def _facts(self) -> tuple[str, ...]:
        rows = self.partitions
        found = Counter(row.verdict for row in rows)
        verdicts = [f"{format_count(found[word.name])} {word.label}" for word in SEVERITY if word.name in found]
        said = [plural(len(rows), "partition"), *(verdicts if len(found) > 1 else [])]
        left = min((row.expires_in_ms for row in rows if row.expires_in_ms is not None), default=None)
        if left is not None:
            said.append(f"not landed, deleted by the source in {format_duration(left)}")
        if rows:
            said += [
                f"offset lag {'' if self.is_whole else 'at least '}{format_count(self.offset_lag)}",
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

    @property
    def verdict(self) -> str:
        return worst_verdict(row.verdict for row in self.partitions)

    @property
    def state(self) -> str:
        return worst_state(row.state for row in self.partitions)

    @property
    def reason(self) -> str:
        """The reason of the worst partition, which it names where there are several."""
        return self._worst_reason("partition {0.partition}")


def _urgency(row: TopicStatus | PartitionStatus) -> tuple[int, int]:
    return SEVERITY.index(Verdict[row.verdict]), STATES.index(row.state)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlowStatus(Totals, JsonDisplayable, Sequence[PartitionStatus]):
    """The status of each partition of one flow at a moment: a sequence of its `PartitionStatus`.

    `parked` holds its streams that failed in a running mirror, its own and the landing of its source. `unknown` says which
    cluster did not answer, `away`, and when it did last by the samples, `answered_at`; nothing else is known then. Shown `by`
    topic, or by partition.

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
    parked: tuple[Parked, ...] = ()
    objectives: FlowObjectives | None = None
    unknown: str | None = None
    away: str | None = None
    answered_at: datetime | None = None
    shown_by: By = "topic"
    json_exclude: ClassVar[tuple[str, ...]] = ("observed_at", "shown_by")
    json_include: ClassVar[tuple[str, ...]] = ("verdict", "state", "reason", "since")

    @overload
    def __getitem__(self, index: int) -> PartitionStatus: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PartitionStatus, ...]: ...
    def __getitem__(self, index: int | slice) -> PartitionStatus | tuple[PartitionStatus, ...]:
        return self.partitions[index]

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether its clusters answered."""
        return self.unknown is None

    @property
    def topics(self) -> tuple[TopicStatus, ...]:
        """The partitions rolled up by topic."""
        found: dict[str, list[PartitionStatus]] = {}
        for row in self.partitions:
            found.setdefault(row.topic, []).append(row)
        return tuple(TopicStatus(flow=self.flow, topic=name, partitions=tuple(found[name])) for name in sorted(found))

    @property
    def verdict(self) -> str:
        """The first of `SEVERITY` (`status/verdict.py`) that holds.

        At least STOP where a stream is parked, and CLUSTER_AWAY where a cluster does not answer.
        """
        beyond = [*(["STOP"] if self._needs_person else []), *([] if self.is_whole else ["CLUSTER_AWAY"])]
        return worst_verdict([*beyond, *(row.verdict for row in self.partitions)])

    @property
    def _needs_person(self) -> bool:
        """Whether a stream is parked for more than its cluster, which is away and tried again."""
        return any(self.is_whole or not one.is_retried for one in self.parked)

    @property
    def is_of_parking(self) -> bool:
        """Whether the verdict is that of a parked stream, and no partition is worse."""
        return self._needs_person and self.verdict == "STOP"

    @property
    def _is_of_cluster(self) -> bool:
        return not self.is_whole and self.verdict == "CLUSTER_AWAY"

    @property
    def since(self) -> datetime | None:
        """Since when the verdict holds: the parking, a cluster's last answer, a pause, the first sample; None where not known."""
        if self.is_of_parking:
            return min(one.since for one in self.parked)
        if self._is_of_cluster:
            return self.answered_at
        found = (row.since for row in self.partitions if row.since is not None and row.verdict == self.verdict)
        return min(found, default=None)

    @property
    def state(self) -> str:
        """The first of `STATES` that holds."""
        beyond = [*(["parked"] if self.parked else []), *([] if self.is_whole else ["unknown"])]
        return worst_state([*beyond, *(row.state for row in self.partitions)])

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, of the worst partition."""
        if self.is_of_parking:
            return "; ".join(map(str, self.parked))
        if self.unknown and self._is_of_cluster:
            return self.unknown
        return self._worst_reason("{0.topic}-{0.partition}") if self.partitions else "no topic to mirror yet"

    @property
    def not_landed(self) -> int:
        """The offsets that are not in the relay yet, of all partitions."""
        return sum(max(0, row.source_end - row.landed) for row in self.partitions)

    def by(self, what: By) -> FlowStatus:
        """Show it by `topic` or by `partition`."""
        return replace(self, shown_by=what)

    def sheet(self) -> Sheet:
        """Show the worst first."""
        rows = [_rows([self], self.shown_by)] if self.partitions else [self.unknown or _NO_TOPIC]
        parts = (*map(str, self.parked), *rows, *map(str, self.held))
        facts = (*self._facts(), *([str(self.objectives)] if self.objectives else []), self.observed_at)
        return Sheet(title=self.flow, badge=status_badge(self.verdict, self.state), facts=facts, parts=parts)


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
    observed_at: datetime | None
    tables: tuple[TableStatus, ...] = ()
    shown_by: By = "topic"
    json_exclude: ClassVar[tuple[str, ...]] = ("observed_at", "shown_by")

    def __getitem__(self, flow: str) -> FlowStatus:
        for one in self.flows:
            if one.flow == flow:
                return one
        raise KeyError(flow)

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
        return worst_verdict([*(one.verdict for one in self.tables), *(one.verdict for one in self.flows)])

    @property
    def state(self) -> str:
        """The worst state of a flow; `parked` where a typed table is."""
        tables = ["parked" for one in self.tables if one.parked is not None]
        return worst_state([*tables, *(flow.state for flow in self.flows)])

    def by(self, what: By) -> Status:
        """Show it by `topic` or by `partition`."""
        return replace(self, shown_by=what)

    def sheet(self) -> Sheet:
        """Show the worst first."""
        objectives = [one.objectives for one in self.flows if one.objectives]
        columns = ["flow", "verdict", "partitions", "offset lag", "time lag", "why"]
        flows = [
            (
                one.flow,
                status_badge(one.verdict, one.state),
                len(one),
                one.offset_lag if one.is_whole else None,
                to_timedelta(one.time_lag_ms),
                one.reason,
            )
            for one in sorted(self.flows, key=lambda one: SEVERITY.index(Verdict[one.verdict]))
        ]
        return Sheet(
            title="Status",
            badge=status_badge(self.verdict, self.state),
            facts=(plural(len(self), "flow"), *self._facts(), self.observed_at),
            parts=(
                *dict.fromkeys(str(parked) for one in self.flows for parked in one.parked),
                *(str(one.parked) for one in self.tables if one.parked is not None),
                *([table("", columns, flows)] if len(flows) > 1 else []),
                *([objectives_table(objectives)] if objectives else []),
                *([_rows(self.flows, self.shown_by)] if self.partitions else []),
                *(f"{one.flow}: {_NO_TOPIC}" for one in self.flows if one.is_whole and not one.partitions),
                *(f"{one.flow}: {one.unknown}" for one in self.flows if one.unknown and len(self) == 1),
                *(str(one) for flow in self.flows for one in flow.held),
                *([tables_table("typed tables", self.tables)] if self.tables else []),
            ),
        )


def _rows(flows: Sequence[FlowStatus], by: By) -> Table:
    """Show topics or partitions, the worst first; with their flows where there are several."""
    rows: list[tuple[object, ...]]
    if by == "partition":
        positions = ["source end", "landed up to", "republished up to", "proven until"]
        columns = ["flow", "topic", "partition", *positions, "offset lag", "time lag", "verdict", "why"]
        least = ("proven until", "source end", "landed up to", "republished up to")
        pairs = sorted(((one.flow, row) for one in flows for row in one), key=lambda pair: _urgency(pair[1]))
        rows = [
            (
                flow,
                row.topic,
                str(row.partition),
                *(
                    None if at is None else str(at)
                    for at in (row.source_end, row.landed, row.republished, row.proven_until)
                ),
                row.offset_lag,
                to_timedelta(row.time_lag_ms),
                status_badge(row.verdict, row.state),
                row.reason,
            )
            for flow, row in pairs
        ]
    else:
        columns = [
            "flow",
            "topic",
            "verdict",
            "offset lag",
            "time lag",
            "in/s",
            "out/s",
            "catches up in",
            "proven",
            "why",
        ]
        least = ("catches up in", "in/s", "out/s", "proven")
        rows = [
            (
                one.flow,
                one.topic,
                status_badge(one.verdict, one.state),
                one.offset_lag,
                to_timedelta(one.time_lag_ms),
                one.in_per_s,
                one.out_per_s,
                # Nothing to catch up is no forecast.
                to_timedelta(one.eta_ms or None),
                one.proven_words(),
                one.reason,
            )
            for one in sorted((topic for flow in flows for topic in flow.topics), key=_urgency)
        ]
    start = 0 if len(flows) > 1 else 1
    return table("", columns[start:], [row[start:] for row in rows], least=least)
