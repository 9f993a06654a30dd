"""Status: where every partition of every flow stands at one moment, with a verdict on each, on each flow and on all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, overload

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lag.forecast import Earliest, Expiry, next_expiry
from mirrorlake.lag.judge import RetentionOf, read_earliest
from mirrorlake.lag.moment import FlowPosition, Readers, Sample, age_ms, first_unlanded, time_lags, total
from mirrorlake.lag.objectives import FlowObjectives, judge_objectives, measured_rto, objectives_table
from mirrorlake.lag.sampler import SampledMoment
from mirrorlake.lag.verdict import HopPlace
from mirrorlake.lake import Lake, from_micros, proven_until
from mirrorlake.model.control import ControlState
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.parked import Parked
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.render import JsonShown, Sheet, Table, badge, count, duration, plural, table
from mirrorlake.republish import look_at_remotes, merged_positions, merged_remotes

log = logging.getLogger(__name__)

_IN_PACE_MS = 60_000
# The first of these that holds somewhere is the verdict on the whole; `empty` is that on a flow that carries no topic yet.
_WORST_FIRST = ("parked", "held", "expiring", "behind", "not_started", "paused", "in_step", "empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Where the newest life of one source partition stands in one flow; positions are next offsets.

    The lags are those of the hop `republished` in `mirror.lag`, in offsets and milliseconds. Verdicts: `in_step` everything of
    the source is on the target; `behind` not yet; `not_started` nothing was landed; `paused` a pause of the cluster, the flow
    or the topic holds; `expiring` the source deletes soon what is not landed (law E); `held` the remote topic was deleted or
    recreated, and nothing is sent there until a person chooses. `expires_in_ms` counts from now until the source deletes the
    first record that is not landed, if landing stopped now; None for never.
    Up to `proven_until` verifications found every landed record on the target; None where nothing is proven.
    """

    topic: str
    partition: int
    source_end: int
    landed: int
    republished: int
    offset_lag: int
    time_lag_ms: int | None
    verdict: str
    proven_until: int | None = None
    expires_in_ms: int | None = None
    expires_why: str | None = None


class _Totals:
    """What the status of one flow and that of all flows share."""

    __slots__ = ()

    def _partitions(self) -> Sequence[PartitionStatus]:
        raise NotImplementedError

    def _verdicts(self) -> Sequence[str]:
        return [row.verdict for row in self._partitions()]

    @property
    def verdict(self) -> str:
        """The first of `parked`, `held`, `behind`, `not_started`, `paused`, `in_step` that holds; `empty` without topics."""
        return min(self._verdicts(), key=_rank, default="empty")

    @property
    def offset_lag(self) -> int:
        """The offsets that are not on the target yet, of all partitions."""
        return total(self._partitions()).offset_lag or 0

    @property
    def time_lag_ms(self) -> int | None:
        """The largest time lag of a partition in milliseconds; None where that of one is not known."""
        return total(self._partitions()).time_lag_ms

    def _facts(self) -> tuple[str, ...]:
        rows = self._partitions()
        found = Counter(row.verdict for row in rows)
        verdicts = [f"{count(found[word])} {word}" for word in _WORST_FIRST if word in found and len(found) > 1]
        said = [plural(len(rows), "partition"), *verdicts]
        left = min((row.expires_in_ms for row in rows if row.expires_in_ms is not None), default=None)
        if left is not None:
            said.append(f"not landed, deleted by the source in {duration(left)}")
        if rows:
            said += [f"offset lag {count(self.offset_lag)}", f"time lag {duration(self.time_lag_ms)}"]
        return tuple(said)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlowStatus(_Totals, JsonShown, Sequence[PartitionStatus]):
    """Where each partition of one flow stood at a moment: a sequence of its `PartitionStatus`.

    `parked` holds its streams that failed in a running mirror, its own and the landing of its source.

    Example:
        >>> row = PartitionStatus(topic="orders", partition=0, source_end=9, landed=9, republished=5, offset_lag=4,
        ...                       time_lag_ms=1200, verdict="behind")
        >>> print(FlowStatus(flow="east->central", partitions=(row,), observed_at=None))
        east->central: ! behind · 1 partition · offset lag 4 · time lag 1.2 s
          topic   partition  source end  landed  republished  proven until  offset lag  time lag  verdict
          orders          0           9       9            5  –                      4     1.2 s  ! behind
    """

    flow: str
    partitions: tuple[PartitionStatus, ...]
    observed_at: datetime | None
    held: tuple[HeldTopic, ...] = ()
    parked: tuple[Parked, ...] = ()
    objectives: FlowObjectives | None = None
    json_without: ClassVar[tuple[str, ...]] = ("observed_at",)

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
    def expires_in_ms(self) -> int | None:
        """Milliseconds until the source deletes the first record that is not landed, if landing stopped now; None for never."""
        return min((row.expires_in_ms for row in self.partitions if row.expires_in_ms is not None), default=None)

    @property
    def not_landed(self) -> int:
        """The offsets that are not in the relay yet, of all partitions."""
        return sum(max(0, row.source_end - row.landed) for row in self.partitions)

    def _verdicts(self) -> Sequence[str]:
        return [*(["parked"] if self.parked else []), *(row.verdict for row in self.partitions)]

    def sheet(self) -> Sheet:
        """Show what is not in step first."""
        rows = [_rows([self])] if self.partitions else ["no topic to mirror yet"]
        parts = (*map(str, self.parked), *rows, *map(str, self.held))
        facts = (*self._facts(), *([str(self.objectives)] if self.objectives else []), self.observed_at)
        return Sheet(title=self.flow, badge=badge(self.verdict), facts=facts, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Status(_Totals, JsonShown, Mapping[str, FlowStatus]):
    """Where every flow stood at a moment: a mapping from a flow's name to its `FlowStatus`.

    Example:
        >>> mirror.status().verdict  # doctest: +SKIP
        'in_step'
        >>> mirror.status()["east->central"].offset_lag  # doctest: +SKIP
        0
    """

    flows: tuple[FlowStatus, ...]
    observed_at: datetime | None
    json_without: ClassVar[tuple[str, ...]] = ("observed_at",)

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

    def _verdicts(self) -> Sequence[str]:
        return [flow.verdict for flow in self.flows]

    def sheet(self) -> Sheet:
        """Show what is not in step first."""
        objectives = [one.objectives for one in self.flows if one.objectives]
        columns = ["flow", "partitions", "offset lag", "time lag", "verdict"]
        flows = [
            (one.flow, len(one), one.offset_lag, _length(one.time_lag_ms), badge(one.verdict))
            for one in sorted(self.flows, key=lambda one: _rank(one.verdict))
        ]
        return Sheet(
            title="Status",
            badge=badge(self.verdict),
            facts=(plural(len(self), "flow"), *self._facts(), self.observed_at),
            parts=(
                *dict.fromkeys(str(parked) for one in self.flows for parked in one.parked),
                *([table("", columns, flows)] if len(flows) > 1 else []),
                *([objectives_table(objectives)] if objectives else []),
                *([_rows(self.flows, named=True)] if self._partitions() else []),
                *(str(one) for flow in self.flows for one in flow.held),
            ),
        )


def _rows(flows: Sequence[FlowStatus], *, named: bool = False) -> Table:
    positions = ["source end", "landed", "republished", "proven until"]
    columns = ["topic", "partition", *positions, "offset lag", "time lag", "verdict"]
    rows = sorted(((one.flow, row) for one in flows for row in one), key=lambda found: _rank(found[1].verdict))
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
                _length(row.time_lag_ms),
                badge(row.verdict),
            )
            for flow, row in rows
        ],
        least=("proven until", "source end", "landed", "republished"),
    )


def _length(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


def _rank(verdict: str) -> int:
    return _WORST_FIRST.index(verdict) if verdict in _WORST_FIRST else -1


def read_status(
    flows: Sequence[FlowConfig],
    moment: SampledMoment,
    *,
    lake: Lake,
    target: Callable[[str], ClusterAdmin],
    readers: Readers,
    state: ControlState,
    retention_of: RetentionOf | None = None,
) -> Status:
    """Tell what one moment says of these flows.

    `retention_of` is asked for topics with records that are not landed.

    Raises:
        ClusterError: a target does not answer.
    """
    at, positions = moment.observed_at, {flow.name: moment.positions_of(flow) for flow in flows}
    lags = {
        (flow.name, source): lag
        for flow in flows
        for source, lag in time_lags(
            lake,
            flow.source,
            flow.name,
            positions[flow.name].values(),
            held=moment.landed[flow.source].reached,
            now=at,
        ).items()
    }
    unlanded = first_unlanded(
        readers,
        {
            (flow.source, row.source): row.landed
            for flow in flows
            for row in positions[flow.name].values()
            if lags[flow.name, row.source] is None
        },
    )
    found, rto = [], measured_rto(lake, flows)
    stamps = {**unlanded}
    for (name, source), lag in lags.items():
        # What is not landed is no older than what is landed and waits: its source need not be read for that.
        place = next(flow.source for flow in flows if flow.name == name), source
        if lag is not None and place not in stamps:
            stamps[place] = int(at.timestamp() * 1000) - lag
    expiries = _expiries(flows, positions, stamps, lake=lake, retention_of=retention_of, at=at)
    for flow in flows:
        last, landed = moment.lanes[flow.name], moment.landed[flow.source].reached
        held, _ = look_at_remotes(flow, target(flow.target), merged_remotes(last), merged_positions(last))
        lost = {topic for one in held for topic in one.topics}
        paused = state.covering(flow.name, flow.source, flow.target)
        proven = proven_until(lake, flow)
        rows = []
        for tp, row in sorted(positions[flow.name].items()):
            offset_lag, time_lag = max(0, row.end - row.republished), lags[flow.name, row.source]
            if time_lag is None and (flow.source, row.source) in unlanded:
                time_lag = age_ms(unlanded[flow.source, row.source], at)
            if tp.topic in lost:
                verdict = "held"
            elif paused(tp.topic):
                verdict = "paused"
            elif offset_lag == 0:
                verdict = "in_step"
            else:
                verdict = "behind" if row.source in landed else "not_started"
            expiry = expiries.get((flow.source, row.source))
            if expiry is not None and expiry.is_soon and verdict != "held":
                verdict = "expiring"
            rows.append(
                PartitionStatus(
                    topic=tp.topic,
                    partition=tp.partition,
                    source_end=row.end,
                    landed=row.landed,
                    republished=row.republished,
                    offset_lag=offset_lag,
                    time_lag_ms=time_lag,
                    verdict=verdict,
                    proven_until=proven.get(row.source),
                    expires_in_ms=None if expiry is None else expiry.in_ms,
                    expires_why=None if expiry is None else expiry.reason,
                )
            )
        parked = state.of_flow(flow.name, flow.source)
        status = FlowStatus(flow=flow.name, partitions=tuple(rows), observed_at=at, held=tuple(held), parked=parked)
        objectives = judge_objectives([flow], {flow.name: status.time_lag_ms}, rto)
        found.append(replace(status, objectives=objectives[0] if objectives else None))
    return Status(flows=tuple(found), observed_at=at)


def _expiries(
    flows: Iterable[FlowConfig],
    positions: Mapping[str, Mapping[TopicPartition, FlowPosition]],
    stamps: Mapping[tuple[str, SourcePartition], int | None],
    *,
    lake: Lake,
    retention_of: RetentionOf | None,
    at: datetime,
) -> dict[tuple[str, SourcePartition], Expiry]:
    """Forecast by source partition when the first record that is not landed is deleted; `stamps` bound its timestamp."""
    waiting = {
        (flow.source, row.source): (row, flow.name)
        for flow in flows
        for row in positions[flow.name].values()
        if row.landed < row.end
    }
    if retention_of is None or not waiting:
        return {}
    earliest, found = read_earliest(lake, (source.topic for _, source in waiting)), {}
    for (alias, source), (row, flow) in waiting.items():
        stamp = stamps.get((alias, source))
        if stamp is None and (alias, source) in stamps:
            # Nothing but markers of transactions follows.
            continue
        sample = Sample(
            observed_at=at,
            position=row.landed,
            end_position=row.end,
            offset_lag=row.end - row.landed,
            waiting_since=None if stamp is None else from_micros(stamp * 1000),
        )
        place = HopPlace(
            flow=flow,
            source=alias,
            topic=source.topic,
            generation=source.generation,
            partition=source.partition,
            hop="landed",
            cluster=alias,
        )
        held = earliest.get((alias, source), ())
        if held:
            # Only changes are written down: it stood there until now.
            held = [*held, Earliest(observed_at=at, offset=held[-1].offset)]
        # In pace: a cluster need not be asked how long it keeps what came a moment ago.
        is_old = stamp is not None and age_ms(stamp, at) > _IN_PACE_MS
        kept_ms = _kept_ms(retention_of, place) if is_old else None
        expiry = next_expiry(sample, now=at, retention_ms=kept_ms, earliest=held)
        if expiry is not None:
            found[alias, source] = expiry
    return found


def _kept_ms(retention_of: RetentionOf, place: HopPlace) -> int | None:
    try:
        return retention_of(place)
    except MirrorlakeError as error:
        # The status is wanted also where settings may not be read.
        log.info("status.retention_not_known what=%s why=%s", place, error.cause)
        return None
