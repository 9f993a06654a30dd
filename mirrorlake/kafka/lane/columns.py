"""Convert Arrow columns of relay records to the argument columns of `Producer.produce`.

Converting whole columns costs 0.5 to 1.7 CPU-µs a record; row by row it costs 1.7 to 3.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.late_times import WHY

# Kafka's Java client replaces bytes of a header key that are not UTF-8 by this; the original bytes are lost.
_REPLACEMENT = "\ufffd"
# Small copies reuse memory that was just freed and is in the processor's cache.
_COPIED_BYTES = 1 << 18
_UNSENDABLE = {0: "its timestamp is 0 (1970-01-01T00:00:00Z), which librdkafka would replace by now", **WHY}


class Unsendable(Exception):
    """A record that librdkafka cannot send unchanged: its row in the batch, and why."""

    def __init__(self, row: int, why: str) -> None:
        self.row = row
        self.why = why
        super().__init__(why)


def timestamps_ms(column: pa.Array) -> pa.Array:
    """Return Kafka's milliseconds for a column of timestamps.

    Raises:
        Unsendable: a timestamp is 0, which librdkafka replaces by the present time, or a mark for one that no relay stores.
    """
    for row, why in _unsendable_stamps(column).items():
        raise Unsendable(row, why)
    return _milliseconds(column)


def binary_values(column: pa.Array) -> Iterator[bytes | None]:
    """Yield a column of keys or values as `produce` takes them: it accepts no view of Arrow's memory."""
    rows = max(1, _COPIED_BYTES * len(column) // max(1, column.nbytes))
    return chain.from_iterable(column.slice(at, rows).to_pylist() for at in range(0, len(column), rows))


def header_lists(column: pa.ListArray) -> Iterable[list[tuple[str, bytes | None]] | None]:
    """Return each record's headers as `produce` takes them; order, duplicates and null values stay.

    Raises:
        Unsendable: a header key was not UTF-8 on the source.
    """
    if column.null_count == len(column):
        return repeat(None)
    bounds = column.offsets.to_pylist()
    for row, why in _broken_headers(column).items():
        raise Unsendable(row, why)
    flat = column.values.slice(bounds[0], bounds[-1] - bounds[0])
    pairs: list[Any] = list(zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True))
    start = bounds[0]
    return [pairs[a - start : b - start] or None for a, b in pairwise(bounds)]


def unsendable_rows(records: pa.RecordBatch) -> dict[int, str]:
    return {**_broken_headers(records.column("headers")), **_unsendable_stamps(records.column("timestamp"))}


def _unsendable_stamps(column: pa.Array) -> dict[int, str]:
    stamps = column.cast(pa.timestamp("us", tz="UTC"), safe=False).view(pa.int64()).to_numpy(zero_copy_only=False)
    return {row: why for us, why in _UNSENDABLE.items() for row in np.flatnonzero(stamps == us).tolist()}


def _milliseconds(column: pa.Array) -> pa.Array:
    if pa.types.is_integer(column.type):
        return column
    return column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())


def _broken_headers(column: pa.ListArray) -> dict[int, str]:
    if column.null_count == len(column):
        return {}
    bounds = column.offsets.to_numpy()
    keys = column.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0])).field(0)
    broken = np.flatnonzero(pc.match_substring(keys, _REPLACEMENT).to_numpy(zero_copy_only=False)) + bounds[0]
    found: dict[int, str] = {}
    for at in broken.tolist():
        row = int(np.searchsorted(bounds, at, side="right")) - 1
        found.setdefault(row, f"the key of header {at - int(bounds[row])} is not UTF-8")
    return found
