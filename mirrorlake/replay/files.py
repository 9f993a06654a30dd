"""Read records of a relay as Arrow batches, a table or Parquet files: without a cluster; without Spark for a local relay."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.errors import SafetyError, StoreError
from mirrorlake.lake import COLUMNS, Lake, LakeQuery, read_in_order
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.replay import Definition, TimedRange
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.replay.define import files_in, look_at_relay
from mirrorlake.rules import View
from mirrorlake.runtime import write_atomically

DONE = "_SUCCESS"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORDS = pa.schema(
    {
        "topic": pa.string(),
        "generation": pa.int32(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": _HEADERS,
    }
)
_ROWS = """
    SELECT offset, timestamp, key, value, headers FROM {relay}
    WHERE topic = :topic AND generation = :generation AND partition = :partition AND offset >= :first AND offset < :end
    ORDER BY offset
"""


def batches_of(
    lake: Lake, definition: Definition, view: View | None, *, only: Collection[SourcePartition] | None = None
) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
    """Yield the records of a replay, or of the source partitions `only`, each once and in upstream order (law D)."""
    held = look_at_relay(lake, definition.source)
    by_source = {source: list(files) for source, files in groupby(files_in(held, definition.spans), lambda f: f.source)}
    for span in definition.spans:
        if only is not None and span.source not in only:
            continue
        if held.files is None:
            found = lake.query_frame(LakeQuery(_ROWS, {"relay": (definition.source, None)}, values=_values(span)))
            batches = iter(found.toArrow().to_batches())
        else:
            batches = read_in_order(by_source.get(span.source, []), position=span.first)
        for batch in batches:
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            records = batch.slice(0, int(np.searchsorted(offsets, span.end)))
            if view is not None and len(records):
                records = view(span.source, records).records
            if len(records):
                yield span.source, _with_place(span.source, records)


def table_of(lake: Lake, definition: Definition, view: View | None) -> pa.Table:
    """Return the records of a replay as one table, which must fit into memory."""
    return pa.Table.from_batches((batch for _, batch in batches_of(lake, definition, view)), schema=RECORDS)


def _marker(folder: str, name: str) -> Path:
    return Path(folder, f".replay-{name}")


def read_begun(folder: str, name: str) -> Definition | None:
    """Read the definition of a replay that began in a folder; None if none began, or if a release up to 0.2.0 began it."""
    mine = _marker(folder, name)
    text = mine.read_text(encoding="utf-8") if mine.exists() else ""
    return Definition.from_dict(json.loads(text)) if text else None


def write_parquet(
    lake: Lake,
    definition: Definition,
    view_of: Callable[[Definition], View | None],
    folder: str,
    *,
    tell: ProgressCallback = ignore_progress,
) -> tuple[Definition, int]:
    """Write the records of a replay into a folder, one file per source partition; return the definition and the count of records.

    The request is resolved once: a marker file holds the begun definition, and a later call continues with it.

    A file gets its name when it is complete, and the folder `_SUCCESS` when all are (law F). A call after a crash leaves each
    record in the folder once; a call after `_SUCCESS` writes nothing.

    Raises:
        SafetyError: the folder holds other files.
        StoreError: the folder cannot be written.
    """
    place, mine = Path(folder), _marker(folder, definition.name)
    definition = read_begun(folder, definition.name) or definition
    if (place / DONE).exists() and mine.exists():
        return definition, 0
    if place.exists() and any(place.iterdir()) and not mine.exists():
        raise SafetyError(
            f"{place} holds other files",
            consequence="nothing was written",
            remedy="name a folder that is empty, or none yet",
        )
    written = 0
    try:
        place.mkdir(parents=True, exist_ok=True)
        # A release up to 0.2.0 left the marker empty.
        write_atomically(mine, json.dumps(definition.as_dict()))
        for source, group in groupby(batches_of(lake, definition, view_of(definition)), lambda found: found[0]):
            name = f"{source.topic}-{source.generation}-{source.partition}.parquet"
            draft = place / f".{name}.draft"
            with pq.ParquetWriter(draft, RECORDS, compression="zstd") as writer:
                for _, batch in group:
                    writer.write_batch(batch)
                    written += len(batch)
                    tell("replay into files", written, None)
            draft.replace(place / name)
        (place / DONE).touch()
    except OSError as error:
        raise StoreError(
            f"{place} cannot be written: {error.strerror or error}",
            consequence="files that are whole stay",
            remedy="make room or name another folder, then run the same command again",
        ) from error
    tell("replay into files", written, written)
    return definition, written


def records_in(folder: str) -> int:
    """Count the records of a written folder."""
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet"))


def _values(span: TimedRange) -> dict[str, Any]:
    return {name: getattr(span, name) for name in (*SOURCE_KEY, "first", "end")}


def _with_place(source: SourcePartition, records: pa.RecordBatch) -> pa.RecordBatch:
    rows = len(records)
    place = [pa.repeat(pa.scalar(getattr(source, f.name), f.type), rows) for f in list(RECORDS)[:3]]
    columns = [records.column(name).cast(RECORDS.field(name).type) for name in COLUMNS]
    return pa.RecordBatch.from_arrays([*place, *columns], schema=RECORDS)
