"""Compute the loss had a source died at a past time: records and seconds, by flow and partition.

Law E: what no snapshot covers is unknown and not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from mirrorlake.render import JsonDisplayable, Sheet, badge, format_count, format_duration, table
from mirrorlake.status.verdict import combine_known

# A snapshot that is late, or fails once, still covers the time up to the next one.
SNAPSHOTS_APART = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoss:
    """The possible loss of one source partition.

    At most `records` were not on the target, as offsets count; `seconds` is the age of the oldest, 0 where there was none. None
    where it is not known, for `reason`. `republished` is the next upstream offset to send.
    """

    topic: str
    generation: int
    partition: int
    records: int | None
    seconds: float | None
    republished: int
    source_end: int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLoss:
    """The possible loss of one flow by the sample of `observed_at`; None with a reason if no sample covers the time."""

    flow: str
    observed_at: datetime | None
    partitions: tuple[PartitionLoss, ...] = ()
    reason: str | None = None
    json_include: ClassVar[tuple[str, ...]] = ("records", "seconds")

    @property
    def records(self) -> int | None:
        """The records of all partitions, or None if one is unknown."""
        return None if self.observed_at is None else combine_known(sum, (one.records for one in self.partitions))

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record, or None if that of one partition is unknown."""
        if self.observed_at is None or any(one.seconds is None for one in self.partitions):
            return None
        return max((one.seconds for one in self.partitions if one.seconds is not None), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Loss(JsonDisplayable, Sequence[FlowLoss]):
    at: datetime
    flows: tuple[FlowLoss, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.flows[index]

    def __len__(self) -> int:
        return len(self.flows)

    def sheet(self) -> Sheet:
        unknown = sum(flow.records is None or flow.seconds is None for flow in self.flows)
        lost = sum(flow.records or 0 for flow in self.flows)
        word = "unknown" if unknown else "lost" if lost else "nothing lost"
        facts = [f"{unknown} of {len(self.flows)} flows not known"] if unknown else []
        facts += [f"{format_count(lost)} records"] if lost else []
        flows = [
            (flow.flow, flow.records, _span(flow.seconds), flow.observed_at, flow.reason or "") for flow in self.flows
        ]
        rows = [
            (flow.flow, f"{one.topic}-{one.partition}", one.records, _span(one.seconds), one.reason or "")
            for flow in self.flows
            for one in flow.partitions
            if one.records != 0 or one.seconds is None
        ]
        return Sheet(
            title=f"had the sources died at {self.at.isoformat(timespec='seconds')}",
            badge=badge(word, "off" if unknown else "warn" if lost else "good"),
            facts=tuple(facts),
            parts=(
                table("", ["flow", "records", "age of the oldest", "sampled at", "why"], flows),
                *([table("", ["flow", "partition", "records", "age of the oldest", "why"], rows)] if rows else []),
            ),
        )


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(seconds * 1000)


def loss_of_flow(name: str, rows: Iterable[Any], *, at: datetime, apart: timedelta) -> FlowLoss:
    """Build the loss by the newest sample up to a time, from rows of the hop `republished`; one older than `apart` covers nothing.

    Between the snapshot and the moment records may have come and gone: a snapshot tells its own moment exactly.
    """
    found = [row for row in rows if row.observed_at <= at]
    newest = max((row.observed_at for row in found), default=None)
    if newest is None or at - newest > apart:
        said = "nothing was sampled in the {} before" if newest is None else "the last sample is of {} before"
        why = said.format(format_duration(apart if newest is None else at - newest))
        return FlowLoss(flow=name, observed_at=None, reason=why)
    parts = []
    for row in sorted(
        (r for r in found if r.observed_at == newest), key=lambda r: (r.topic, r.generation, r.partition)
    ):
        reason = "the source did not answer" if row.end_position is None else None
        if reason is None and row.time_lag_ms is None:
            reason = "the oldest record that waited was not known"
        parts.append(
            PartitionLoss(
                topic=row.topic,
                generation=row.generation,
                partition=row.partition,
                records=0 if row.time_lag_ms == 0 and row.waiting_since is None else row.offset_lag,
                seconds=None if row.time_lag_ms is None else row.time_lag_ms / 1000,
                republished=row.position,
                source_end=row.end_position,
                reason=reason,
            )
        )
    return FlowLoss(
        flow=name,
        observed_at=newest,
        partitions=tuple(parts),
        reason=next((one.reason for one in parts if one.reason), None),
    )
