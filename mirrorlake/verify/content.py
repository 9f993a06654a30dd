"""Compare the content of records as columns, and compute a digest that is independent of chunks.

Law C (bytes): null and empty are different, headers count in their order with their duplicates; a record without headers has none.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.lake import RELAY, arrow_type

Flags = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]

_HEADERS = arrow_type(RELAY.columns["headers"][0])
# Times as microseconds since 1970, as the relay has them.
CONTENT = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("kind", pa.int32()),
    ]
)
_NO_KIND = -2
_MS = 1000
_BLOBS = ("key", "value")


def content_of(rows: pa.RecordBatch, *, with_kind: bool = True) -> pa.RecordBatch:
    """Convert columns of the relay, or of a fetch, to `CONTENT`; `kind` is the timestamp's type, if there is one.

    Leave the kind out of a comparison with a target, which has its own.
    """
    if with_kind and "timestamp_type" in rows.schema.names:
        kind = rows.column("timestamp_type")
    else:
        kind = pa.array(np.full(len(rows), _NO_KIND, np.int32))
    columns = [rows.column(name) for name in ("timestamp", "key", "value", "headers")]
    stamps = columns[0].cast(pa.timestamp("us", columns[0].type.tz)).cast(pa.int64())
    others = [
        column if column.type == CONTENT.field(name).type else column.cast(CONTENT.field(name).type)
        for name, column in zip(("key", "value", "headers"), columns[1:], strict=True)
    ]
    return pa.RecordBatch.from_arrays([stamps, *others, kind], schema=CONTENT)


def joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays([part.column(index) for part in parts]) for index in range(len(CONTENT))], schema=CONTENT
    )


def differing(left: pa.RecordBatch, right: pa.RecordBatch) -> Flags:
    found = np.zeros(len(left), np.bool_)
    for name in ("timestamp", "kind"):
        found |= left.column(name).to_numpy() != right.column(name).to_numpy()
    for name in _BLOBS:
        found |= _differing_values(left.column(name), right.column(name))
    one, other = left.column("headers"), right.column("headers")
    if one.null_count == len(one) and other.null_count == len(other):
        return found
    counts, others = _counts(one), _counts(other)
    found |= counts != others
    # The rest has as many headers on both sides, so the flattened headers match by index.
    alike = np.flatnonzero((counts == others) & (counts > 0))
    if len(alike):
        if len(alike) < len(one):
            one, other = one.take(pa.array(alike)), other.take(pa.array(alike))
        here, there = one.flatten(), other.flatten()
        parents = np.repeat(alike, counts[alike])
        for index in (0, 1):
            found[parents[_differing_values(here.field(index), there.field(index))]] = True
    return found


def _differing_values(left: pa.Array, right: pa.Array) -> Flags:
    if left.equals(right):
        return np.zeros(len(left), np.bool_)
    equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    flags: Flags = ~(equal | (_flags(left.is_null()) & _flags(right.is_null())))
    return flags


def values_of(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return each record's content as a value that can be a key of a dictionary."""
    return [
        (row["timestamp"], row["key"], row["value"], tuple((h["key"], h["value"]) for h in row["headers"] or ()))
        for row in rows.to_pylist()
    ]


def _flags(column: pa.Array) -> Flags:
    flags: Flags = column.to_numpy(zero_copy_only=False)
    return flags


def _counts(headers: pa.ListArray) -> npt.NDArray[np.int32]:
    if headers.null_count == len(headers):
        return np.zeros(len(headers), np.int32)
    counts: npt.NDArray[np.int32] = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    return counts.astype(np.int32)


class Digest:
    """A digest of records in upstream order, the same however they come in chunks.

    Eleven SHA-256 run side by side, numbers little-endian: `offset` (the upstream one) and `timestamp` (ms since 1970) as
    int64; for `key` and `value` the lengths as int32, -1 for null, and the bytes one after another; of headers the count of
    each record as int32, then lengths and bytes of the names, lengths and bytes of the values. The digest is the SHA-256 of
    the eleven, in this order: offset, timestamp, key lengths, key bytes, value lengths, value bytes, header counts, name
    lengths, name bytes, header value lengths, header value bytes. An unchanged record has the same digest on every hop.
    """

    def __init__(self) -> None:
        self._streams = [hashlib.sha256() for _ in range(11)]
        self.records = 0

    def add(self, upstream: Offsets, rows: pa.RecordBatch) -> None:
        self.records += len(rows)
        self._streams[0].update(np.ascontiguousarray(upstream, "<i8").data)
        self._streams[1].update(np.ascontiguousarray(rows.column("timestamp").to_numpy() // _MS, "<i8").data)
        self._add_blobs(2, rows.column("key"))
        self._add_blobs(4, rows.column("value"))
        headers = rows.column("headers")
        counts = _counts(headers)
        self._streams[6].update(np.ascontiguousarray(counts, "<i4").data)
        if counts.any():
            flat = headers.flatten()
            self._add_blobs(7, flat.field(0))
            self._add_blobs(9, flat.field(1))

    def text(self) -> str:
        whole = hashlib.sha256(b"".join(stream.digest() for stream in self._streams))
        return f"sha256:{whole.hexdigest()}"

    def _add_blobs(self, stream: int, column: pa.Array) -> None:
        lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
        self._streams[stream].update(np.ascontiguousarray(lengths, "<i4").data)
        if column.null_count:
            # A null may cover bytes.
            column = pc.fill_null(column, "" if pa.types.is_string(column.type) else b"")
        ends, data = column.buffers()[1:]
        if data is not None and len(column):
            at = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
            self._streams[stream + 1].update(memoryview(data)[at[0] : at[-1]])
