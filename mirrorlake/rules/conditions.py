"""Evaluate a predicate on a batch in DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config.predicates import Predicate, engine
from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules.headers import Flags, header_text, text_of
from mirrorlake.rules.repeats import names_twice

Answers = np.ndarray[Any, np.dtype[np.int8]]
FALSE, TRUE, NOT_JSON, FAILED, NOT_ASKED, AMBIGUOUS = range(6)
"""Results of a predicate for a record; FALSE also if SQL returns NULL, AMBIGUOUS if an object names a tested member twice."""


def answers(predicate: Predicate, source: SourcePartition, records: pa.RecordBatch, values: pa.Array) -> Answers:
    """Return the result of a predicate for each record; `values` are the records' values without frames."""
    batch, broken = _batch(predicate, source, records, values)
    try:
        found = _ask(predicate.query, batch)
    except _evaluation_errors():
        found = _with_care(predicate, batch)
    if broken is not None:
        found[broken] = NOT_JSON
    if predicate.reads_json:
        twice = names_twice(batch["value"].combine_chunks(), predicate.pointers)
        if twice is not None:
            found[twice & (found != NOT_JSON)] = AMBIGUOUS
    return found


def _batch(
    predicate: Predicate, source: SourcePartition, records: pa.RecordBatch, values: pa.Array
) -> tuple[pa.Table, Flags | None]:
    rows = len(records)
    columns = {"offset": records.column("offset")}
    broken = None
    if "topic" in predicate.columns:
        columns["topic"] = pa.repeat(source.topic, rows)
    if "partition" in predicate.columns:
        columns["partition"] = pa.repeat(pa.scalar(source.partition, pa.int32()), rows)
    if "timestamp" in predicate.columns:
        columns["timestamp"] = _utc(records.column("timestamp"))
    if "key" in predicate.columns:
        columns["key"] = text_of(records.column("key"))
    if predicate.tests_null:
        columns["tombstone"] = pc.is_null(values)
    if predicate.reads_json:
        columns["value"] = text_of(values)
        if columns["value"].null_count > values.null_count:
            broken = pc.and_not(pc.is_null(columns["value"]), pc.is_null(values)).to_numpy(zero_copy_only=False)
    for place, name in enumerate(predicate.headers):
        columns[f"h{place}"] = header_text(records.column("headers"), name)
    return pa.table(columns), broken


def _utc(column: pa.Array) -> pa.Array:
    unit = pa.timestamp("us", tz="UTC")
    # Kafka's timestamps are milliseconds since 1970; Spark's have microseconds and a zone.
    return column.cast(pa.timestamp("ms")).cast(unit) if pa.types.is_integer(column.type) else column.cast(unit)


def _evaluation_errors() -> tuple[type[Exception], ...]:
    """Return the errors that DuckDB raises because of a record; out of memory, for example, is not one of them."""
    import duckdb

    return duckdb.DataError, duckdb.ProgrammingError


def _ask(query: str, batch: pa.Table) -> Answers:
    with engine() as connection:
        connection.register("batch", batch)
        try:
            column = connection.execute(query).fetchnumpy()["p"]
            return np.asarray(column).astype(np.int8)
        finally:
            connection.unregister("batch")


def _with_care(predicate: Predicate, batch: pa.Table) -> Answers:
    """Evaluate a batch in which a record fails the whole query: broken JSON, a number that overflows."""
    if not predicate.reads_json:
        return _halved(predicate, batch)
    valid = _ask("SELECT value IS NULL OR json_valid(value) AS p FROM batch", batch).astype(bool)
    found = np.full(len(batch), NOT_JSON, np.int8)
    if valid.any():
        found[valid] = _halved(predicate, batch.filter(pa.array(valid)))
    return found


def _halved(predicate: Predicate, batch: pa.Table) -> Answers:
    try:
        return _ask(predicate.query, batch)
    except _evaluation_errors():
        if len(batch) == 1:
            return np.full(1, FAILED, np.int8)
    half = len(batch) // 2
    return np.concatenate([_halved(predicate, batch.slice(0, half)), _halved(predicate, batch.slice(half))])
