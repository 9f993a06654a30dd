"""Filter a replay's records by time, change their timestamps, and add provenance headers.

Every step is deterministic: after a kill, a replay sends the remaining records unchanged (law F).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.withheld import FILTERED, Withheld
from mirrorlake.rules.headers import with_column
from mirrorlake.rules.hop_header import appended, hop_texts
from mirrorlake.rules.view import Viewed

TIMES = "replay-times"
_UTC_MS = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True, kw_only=True)
class BetweenTimes:
    """Select the records with a timestamp in `[since_ms, until_ms)`, in milliseconds since 1970; None is unbounded."""

    since_ms: int | None
    until_ms: int | None

    @property
    def version(self) -> str:
        return f"{self.since_ms}..{self.until_ms}"

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        stamps = _milliseconds(records.column("timestamp"))
        goes = np.ones(len(records), dtype=bool)
        if self.since_ms is not None:
            goes &= stamps >= self.since_ms
        if self.until_ms is not None:
            goes &= stamps < self.until_ms
        if goes.all():
            return Viewed(records=records)
        offsets = records.column("offset").to_numpy(zero_copy_only=False)[~goes]
        held = Withheld(source=source, kind=FILTERED, rule=TIMES, version="", ranges=Ranges.of(offsets))
        return Viewed(records=records.filter(pa.array(goes)), withheld=(held,))


@dataclass(frozen=True, kw_only=True)
class Restamped:
    """Shift timestamps by `shift_ms`, or set each to `fixed_ms` if given; a record without a timestamp gets none."""

    shift_ms: int = 0
    fixed_ms: int | None = None

    @property
    def version(self) -> str:
        return f"shift {self.shift_ms}" if self.fixed_ms is None else f"fixed {self.fixed_ms}"

    def __call__(self, source: SourcePartition, viewed: Viewed) -> Viewed:  # noqa: ARG002  a stage's signature
        column = viewed.records.column("timestamp")
        stamps = _milliseconds(column)
        has_one = stamps >= 0
        moved = np.where(has_one, stamps + self.shift_ms if self.fixed_ms is None else self.fixed_ms, stamps)
        new: pa.Array = pa.array(moved, pa.int64())
        if not pa.types.is_integer(column.type):
            new = new.cast(_UTC_MS).cast(column.type)
        return replace(viewed, records=with_column(viewed.records, "timestamp", new))


@dataclass(frozen=True, kw_only=True)
class HopAdded:
    """Append a provenance header to each record, and withhold nothing.

    A topic mirrored in both directions must distinguish records of the other side, also those that a replay sent.
    """

    alias: str

    @property
    def version(self) -> str:
        return f"hop {self.alias}"

    def __call__(self, source: SourcePartition, viewed: Viewed) -> Viewed:
        records = viewed.records
        texts = hop_texts(self.alias, source, records.column("offset"))
        return replace(viewed, records=with_column(records, "headers", appended(records.column("headers"), texts)))


def _milliseconds(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not pa.types.is_integer(column.type):
        column = column.cast(_UTC_MS, safe=False).cast(pa.int64())
    found: np.ndarray[Any, np.dtype[np.int64]] = column.to_numpy(zero_copy_only=False)
    return found
