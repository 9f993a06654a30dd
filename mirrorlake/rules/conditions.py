"""Evaluate a predicate on a batch in DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config.predicates import NOT_JSON, Predicate, engine
from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules.headers import Flags, header_text, text_of

Answers = np.ndarray[Any, np.dtype[np.int8]]


def answers(predicate: Predicate, source: SourcePartition, records: pa.RecordBatch) -> Answers:
    """Return the result of a predicate for each record."""
    batch, broken = _batch(predicate, source, records)
    with engine() as connection:
        connection.register("batch", batch)
        try:
            found: Answers = np.asarray(connection.execute(predicate.query).fetchnumpy()["p"]).astype(np.int8)
        finally:
            connection.unregister("batch")
    if broken is not None:
        found[broken] = NOT_JSON
    return found


def _batch(predicate: Predicate, source: SourcePartition, records: pa.RecordBatch) -> tuple[pa.Table, Flags | None]:
    rows, values = len(records), records.column("value")
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
