"""Call a user's function on a batch, and check all that it returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.model.withheld import FILTERED
from mirrorlake.rules.functions import RecordFunction
from mirrorlake.rules.headers import Flags
from mirrorlake.rules.withholding import Sieve


def call_function(function: RecordFunction, records: pa.RecordBatch, sieve: Sieve) -> pa.RecordBatch:
    """Call a function with a batch; if it raises, call it with each record alone.

    `sieve` gets the records that the function omits (filtered) and fails on (`on_error`).
    """
    failed: dict[str, Flags] = {}
    try:
        made = _call(function, records)
    except _Failed as failure:
        if failure.raised and len(records) > 1:
            made = _one_by_one(function, records, sieve, failed)
        else:
            failed[str(failure)] = np.ones(len(records), np.bool_)
            made = records if sieve.on_error == "pass" else records.slice(0, 0)
    left_out = ~np.isin(_offsets(records), _offsets(made))
    for reason, rows in failed.items():
        sieve.failed(rows, reason)
        left_out &= ~rows
    sieve.hold(left_out, FILTERED, "")
    return made


def _one_by_one(
    function: RecordFunction, records: pa.RecordBatch, sieve: Sieve, failed: dict[str, Flags]
) -> pa.RecordBatch:
    parts = [records.slice(0, 0)]
    for row in range(len(records)):
        record = records.slice(row, 1)
        try:
            parts.append(_call(function, record))
        except _Failed as failure:
            failed.setdefault(str(failure), np.zeros(len(records), np.bool_))[row] = True
            if sieve.on_error == "pass":
                parts.append(record)
    batches = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return batches[0] if batches else records.slice(0, 0)


class _Failed(Exception):
    """A function failed on a batch; the text is a reason without data of records."""

    def __init__(self, reason: str, *, raised: bool = False) -> None:
        self.raised = raised
        super().__init__(reason)


def _call(function: RecordFunction, records: pa.RecordBatch) -> pa.RecordBatch:
    try:
        made: Any = function(records)
    except Exception as error:
        # Only the type: the message may contain data.
        raise _Failed(f"the function raised {type(error).__name__}", raised=True) from None
    if not isinstance(made, pa.RecordBatch):
        raise _Failed(f"the function returned {type(made).__name__}, not a RecordBatch")
    columns = []
    for wanted in records.schema:
        if made.schema.get_field_index(wanted.name) < 0:
            raise _Failed(f"the function returned no column '{wanted.name}', or several")
        try:
            columns.append(made.column(wanted.name).cast(wanted.type))
        except pa.ArrowException:
            raise _Failed(f"the function returned '{wanted.name}' as {made.column(wanted.name).type}") from None
    made = pa.RecordBatch.from_arrays(columns, schema=records.schema)
    if made.column("offset").null_count or made.column("timestamp").null_count:
        raise _Failed("the function returned a record without offset or timestamp")
    offsets = _offsets(made)
    if np.any(np.diff(offsets) <= 0) or not np.isin(offsets, _offsets(records)).all():
        raise _Failed("the function returned other offsets than it got, or in another order")
    return made


def _offsets(records: pa.RecordBatch) -> np.ndarray[Any, Any]:
    offsets: np.ndarray[Any, Any] = records.column("offset").to_numpy(zero_copy_only=False)
    return offsets
