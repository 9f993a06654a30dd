"""Status: where every partition of every flow stands at one moment, with a verdict on each, on each flow and on all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Literal, overload

from mirrorlake.lag.objectives import FlowObjectives, objectives_table
from mirrorlake.lag.partition_status import (
    PartitionStatus,
    TopicStatus,
    Totals,
    partition_table,
    status_badge,
    to_timedelta,
    topic_table,
    worst_reason,
    worst_state,
    worst_verdict,
)
from mirrorlake.lag.verdict import SEVERITY, Verdict
from mirrorlake.model.parked import Parked
from mirrorlake.model.remotes import LostTopic
from mirrorlake.render import JsonDisplayable, Sheet, Table, plural, table
from mirrorlake.tables import TableStatus, tables_table

By = Literal["topic", "partition"]
_NO_TOPIC = "no topic to mirror yet; next: mirrorlake doctor --only source.topics"


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

    def _partitions(self) -> Sequence[PartitionStatus]:
        return self.partitions

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
        """The first of `SEVERITY` (`lag/verdict.py`) that holds.

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
        worst = Verdict[self.verdict]
        found = (row.since for row in self.partitions if row.since is not None and Verdict[row.verdict] is worst)
        return min(found, default=None)

    @property
    def state(self) -> str:
        """The first of `STATES` (`lag/partition_status.py`) that holds."""
        beyond = [*(["parked"] if self.parked else []), *([] if self.is_whole else ["unknown"])]
        return worst_state([*beyond, *(row.state for row in self.partitions)])

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, of the worst partition."""
        if self.is_of_parking:
            return "; ".join(map(str, self.parked))
        if self.unknown and self._is_of_cluster:
            return self.unknown
        return worst_reason(self.partitions, {id(row): f"{row.topic}-{row.partition}" for row in self.partitions})

    @property
    def expires_in_ms(self) -> int | None:
        """Milliseconds until the source deletes the first record that is not landed, if landing stopped now; None for never."""
        return min((row.expires_in_ms for row in self.partitions if row.expires_in_ms is not None), default=None)

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

    def _partitions(self) -> Sequence[PartitionStatus]:
        return [row for flow in self.flows for row in flow.partitions]

    @property
    def is_whole(self) -> bool:
        """Whether all clusters answered."""
        return all(flow.is_whole for flow in self.flows)

    @property
    def verdict(self) -> str:
        """The worst verdict of a flow or a typed table."""
        tables = [one.verdict for one in self.tables]
        return worst_verdict([*tables, *(flow.verdict for flow in self.flows)])

    @property
    def state(self) -> str:
        """The worst state of a flow; `parked` where a typed table is."""
        tables = ["parked" for one in self.tables if one.parked is not None]
        return worst_state([*tables, *(flow.state for flow in self.flows)])

    def by(self, what: By) -> Status:
        """Show it by `topic` or by `partition`."""
        return replace(self, shown_by=what)

    def after(self, before: Status) -> Status:
        """Return this look with the rates since an earlier one; a partition that is new or went back keeps its own."""
        if self.observed_at is None or before.observed_at is None or self.observed_at <= before.observed_at:
            return self
        span_s = (self.observed_at - before.observed_at).total_seconds()
        known = {(flow.flow, row.topic, row.partition): row for flow in before.flows for row in flow}

        def moved(flow: str, row: PartitionStatus) -> PartitionStatus:
            then = known.get((flow, row.topic, row.partition))
            if then is None or row.source_end < then.source_end or row.republished < then.republished:
                return row
            came, went = row.source_end - then.source_end, row.republished - then.republished
            return replace(row, in_per_s=came / span_s, out_per_s=went / span_s)

        return replace(
            self,
            flows=tuple(replace(flow, partitions=tuple(moved(flow.flow, row) for row in flow)) for flow in self.flows),
        )

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
                *([_rows(self.flows, self.shown_by, named=len(self) > 1)] if self._partitions() else []),
                *(f"{one.flow}: {_NO_TOPIC}" for one in self.flows if one.is_whole and not one.partitions),
                *(f"{one.flow}: {one.unknown}" for one in self.flows if one.unknown and len(self) == 1),
                *(str(one) for flow in self.flows for one in flow.held),
                *([tables_table("typed tables", self.tables)] if self.tables else []),
            ),
        )


def _rows(flows: Sequence[FlowStatus], by: By, *, named: bool = False) -> Table:
    if by == "partition":
        return partition_table(((one.flow, row) for one in flows for row in one), named=named)
    return topic_table((topic for one in flows for topic in one.topics), named=named)
