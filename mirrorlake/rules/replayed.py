"""What a replay does to records beside rules: choose those of a time, and give them other timestamps.

Each is the same for the same record whenever it runs: a replay that was killed sends the rest as it would have (law F).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.withheld import FILTERED, Withheld, ranges_of
from mirrorlake.rules.headers import with_column
from mirrorlake.rules.hop_header import appended, hop_texts
from mirrorlake.rules.view import Viewed

TIMES = "replay-times"
_UTC_MS = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True, kw_only=True)
class BetweenTimes:
    """Keep the records with a timestamp at or after one time and before another, in milliseconds since 1970; None is open."""

    since_ms: int | None
    until_ms: int | None

    @property
    def version(self) -> str:
        """Return the times: they are all that decides."""
        return f"{self.since_ms}..{self.until_ms}"

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        """Return the records of the time; the others are withheld."""
        stamps = _milliseconds(records.column("timestamp"))
        goes = np.ones(len(records), dtype=bool)
        if self.since_ms is not None:
            goes &= stamps >= self.since_ms
        if self.until_ms is not None:
            goes &= stamps < self.until_ms
        if goes.all():
            return Viewed(records=records)
        offsets = records.column("offset").to_numpy(zero_copy_only=False)[~goes].tolist()
        held = Withheld(source=source, kind=FILTERED, rule=TIMES, version="", ranges=ranges_of(offsets))
        return Viewed(records=records.filter(pa.array(goes)), withheld=(held,))


@dataclass(frozen=True, kw_only=True)
class Restamped:
    """Move timestamps by `shift_ms`, or set each to `fixed_ms` where that is given; a record without one stays so."""

    shift_ms: int = 0
    fixed_ms: int | None = None

    @property
    def version(self) -> str:
        """The fingerprint is the act itself: nothing else decides."""
        return f"shift {self.shift_ms}" if self.fixed_ms is None else f"fixed {self.fixed_ms}"

    def __call__(self, source: SourcePartition, viewed: Viewed) -> Viewed:  # noqa: ARG002  a stage's signature
        """Return the records with their new timestamps."""
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
    """Append the header that says where each record was read, and judge nothing.

    A topic that is mirrored both ways must know what came from the other side, also where a person put it there.
    """

    alias: str

    @property
    def version(self) -> str:
        """Return the alias: it is all that decides."""
        return f"hop {self.alias}"

    def __call__(self, source: SourcePartition, viewed: Viewed) -> Viewed:
        """Return the records, each with one more header."""
        records = viewed.records
        texts = hop_texts(self.alias, source, records.column("offset"))
        return replace(viewed, records=with_column(records, "headers", appended(records.column("headers"), texts)))


def _milliseconds(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not pa.types.is_integer(column.type):
        column = column.cast(_UTC_MS, safe=False).cast(pa.int64())
    found: np.ndarray[Any, np.dtype[np.int64]] = column.to_numpy(zero_copy_only=False)
    return found
