"""Decode the keys and values of relay records into typed columns, in Arrow batches on Spark's workers.

A decoded batch has the records' coordinates, `_key`, the columns of the value, and three columns of decoding: `_fault` is why a
record is no row, `_misfit` why it would be one only in a wider table, and `_tombstone` whether its value is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from mirrorlake.tables.json_types import (
    MAX_COLUMNS,
    NULL,
    TEXT,
    Misfit,
    arrays_of,
    columns_of,
    conformed,
    count_columns,
    merged,
    to_text,
    type_of,
)
from mirrorlake.tables.through import Passed, Through

BINARY = pa.binary()
COORDINATES = {
    "_source": pa.string(),
    "_topic": pa.string(),
    "_generation": pa.int32(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_timestamp": pa.timestamp("us", "UTC"),
}
KEY = "_key"
FAULT, MISFIT, TOMBSTONE, FILTERED = "_fault", "_misfit", "_tombstone", "_filtered"
RAW_KEY, RAW_VALUE = "_raw_key", "_raw_value"
RESERVED = frozenset({*COORDINATES, KEY, FAULT, MISFIT, TOMBSTONE, FILTERED, RAW_KEY, RAW_VALUE})


@dataclass(frozen=True, slots=True)
class DecodedPayloads:
    """DecodedPayloads payloads: an array of the format's type, and by row why a payload has none.

    `faults` are payloads that no table takes, `misfits` those that a wider one would.
    """

    values: pa.Array
    faults: Mapping[int, str]
    misfits: Mapping[int, str]


class Format(Protocol):
    """The format of keys or of values, picklable for Spark's workers."""

    @property
    def kind(self) -> pa.DataType: ...

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads: ...


@dataclass(frozen=True)
class BinaryFormat:
    kind: pa.DataType = BINARY

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:  # noqa: ARG002  the format of all sources
        return DecodedPayloads(payloads.cast(self.kind), {}, {})


@dataclass(frozen=True)
class TextFormat:
    kind: pa.DataType = TEXT

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:  # noqa: ARG002  the format of all sources
        try:
            return DecodedPayloads(payloads.cast(TEXT), {}, {})
        except pa.ArrowInvalid:
            pass
        values, faults = _each(payloads, lambda payload: payload.decode())
        return DecodedPayloads(pa.array(values, TEXT), faults, {})


@dataclass(frozen=True)
class JsonFormat:
    """Payloads as JSON documents; `drops` leaves members out that the type lacks, as of a type that a person wrote."""

    kind: pa.DataType
    drops: bool = False

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:  # noqa: ARG002  the format of all sources
        documents, faults = _each(payloads, self._parser())
        found = None if self.drops else arrays_of(documents, self.kind)
        if found is not None:
            return DecodedPayloads(found, faults, {})
        misfits, values = {}, []
        for row, document in enumerate(documents):
            value = None
            try:
                value = conformed(document, self.kind, drops=self.drops)
            except Misfit as misfit:
                misfits[row] = str(misfit)
            values.append(value)
        return DecodedPayloads(pa.array(values, self.kind), faults, misfits)

    def _parser(self) -> Callable[[bytes], Any]:
        if _has_decimals(self.kind):
            return msgspec.json.Decoder(float_hook=Decimal).decode
        return _DOCUMENT.decode


_NO_KEY = "the record has no key, and the table has a row a key"
_DOCUMENT = msgspec.json.Decoder()


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_decimals(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_decimals(kind.value_type)
    if pa.types.is_map(kind):
        return _has_decimals(kind.item_type)
    return bool(pa.types.is_decimal(kind))


def _each(payloads: pa.Array, parse: Callable[[bytes], Any]) -> tuple[list[Any], dict[int, str]]:
    """Parse each payload, and return the values with the faults by row; the value of a fault is None."""
    values, faults = list[Any](), dict[int, str]()
    for row, payload in enumerate(payloads.to_pylist()):
        value = None
        if payload is not None:
            try:
                value = parse(payload)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                faults[row] = _reason(error)
        values.append(value)
    return values, faults


def _reason(error: Exception) -> str:
    """Return why a payload is not of its format, without a part of the payload."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8: byte {error.start} is invalid"
    if isinstance(error, RecursionError):
        return "is not JSON: it is nested too deep"
    return f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}"


@dataclass(frozen=True)
class RowFormat:
    """The columns of a table's rows, as they are decoded from keys and values.

    `takes_misfits`: the table may grow, so misfits are told apart from faults. `needs_key`: a record without a key is a fault.
    `through` are the rules that apply first. `keeps_raw` keeps the bytes of good records, too, which may turn out to be bad later.
    """

    key: Format
    value: Format
    takes_misfits: bool = False
    needs_key: bool = False
    through: Through | None = None
    keeps_raw: bool = False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                *COORDINATES.items(),
                *([] if pa.types.is_null(self.key.kind) else [(KEY, self.key.kind)]),
                *columns_of(self.value.kind),
                (TOMBSTONE, pa.bool_()),
                (FILTERED, pa.bool_()),
                (FAULT, pa.string()),
                (MISFIT, pa.string()),
                (RAW_KEY, pa.binary()),
                (RAW_VALUE, pa.binary()),
            ]
        )

    def decode(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Decode a batch with the columns of `COORDINATES`, `key` and `value`, and `headers` where rules apply."""
        if self.through is None:
            return self._decode(records)
        passed = self.through(records)
        batches = [self._decode(passed.records), *([self._withheld(passed)] if passed.reasons else [])]
        [whole] = pa.Table.from_batches(batches, self.schema).combine_chunks().to_batches() or [batches[0]]
        return whole

    def _withheld(self, passed: Passed) -> pa.RecordBatch:
        """Return withheld records as rows without columns; a bad one has no bytes, which the rules could not judge."""
        rows, reasons = len(passed.reasons), passed.reasons
        known = {
            FILTERED: pa.array([not reason for reason in reasons], pa.bool_()),
            FAULT: pa.array([reason or None for reason in reasons], pa.string()),
            TOMBSTONE: pa.array([False] * rows, pa.bool_()),
            **{name: passed.withheld.column(name).cast(kind) for name, kind in COORDINATES.items()},
        }
        columns = [known.get(field.name, pa.nulls(rows, field.type)) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _decode(self, records: pa.RecordBatch) -> pa.RecordBatch:
        keys, values = records.column("key"), records.column("value")
        sources = records.column("_source")
        key, value = self.key.decode(keys, sources), self.value.decode(values, sources)
        faults = {row: f"the value {reason}" for row, reason in value.faults.items()}
        misfits = dict(value.misfits)
        faults |= {row: f"the key {reason}" for row, reason in key.faults.items()}
        if self.needs_key:
            faults |= {row: _NO_KEY for row, is_absent in enumerate(keys.is_null().to_pylist()) if is_absent}
        misfits |= {row: f"key: {reason}" for row, reason in key.misfits.items()}
        if not self.takes_misfits:
            faults = misfits | faults
            misfits = {}
        bad = pa.array([self.keeps_raw or row in faults or row in misfits for row in range(len(records))], pa.bool_())
        columns = [records.column(name).cast(kind) for name, kind in COORDINATES.items()]
        columns += [] if pa.types.is_null(self.key.kind) else [key.values]
        columns += [*_members(value.values), values.is_null(), pa.repeat(pa.scalar(False), len(records))]
        columns += [_told(faults, len(records)), _told(misfits, len(records))]
        columns += [_only(keys, bad), _only(values, bad)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _members(values: pa.Array) -> list[pa.Array]:
    """Return the columns of decoded values; a member of a null struct is null."""
    if pa.types.is_null(values.type):
        return []
    return list(values.flatten()) if pa.types.is_struct(values.type) else [values]


def _told(reasons: Mapping[int, str], rows: int) -> pa.Array:
    return pa.array([reasons.get(row) for row in range(rows)], pa.string()) if reasons else pa.nulls(rows, pa.string())


def _only(payloads: pa.Array, rows: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(rows, payloads.cast(pa.binary()), pa.scalar(None, pa.binary()))


def decoding_job(rows: RowFormat) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the job of Spark's workers that decodes batches (see `RowFormat`)."""

    def job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in batches:
            yield rows.decode(records)

    return job


def inference_job(column: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the job of Spark's workers that infers the type of the JSON documents in a column."""

    def job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kind = NULL
        for records in batches:
            kind = objects_first(kind, infer(records.column(column)))
        yield pa.RecordBatch.from_pydict({"found": [to_text(kind)]})

    return job


def infer(payloads: pa.Array) -> pa.DataType:
    """Return the type of JSON documents; what is no JSON, or would make the type wider than a table may be, does not count."""
    documents, _ = _each(payloads, _DOCUMENT.decode)
    kind: pa.DataType = NULL
    for document in documents:
        try:
            found = objects_first(kind, type_of(document))
        except (Misfit, RecursionError):
            continue
        if found is not kind and count_columns(found) <= MAX_COLUMNS:
            kind = found
    return kind


def objects_first(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type of whole documents: members of objects are columns, and beside objects nothing else counts."""
    structs = [kind for kind in (one, other) if pa.types.is_struct(kind)]
    return structs[0] if len(structs) == 1 else merged(one, other)
