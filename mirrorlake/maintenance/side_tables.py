"""Rewrite the small files of a side table into larger ones, sorted as look-ups ask for them.

A running flow appends to `offset_map` several times a second; a look-up that opens each of those files would take minutes
after a day.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mirrorlake.errors import StoreError
from mirrorlake.lake import LiveFile, TableSchema, TableUpkeep, WrittenFile, stats_value
from mirrorlake.maintenance.results import Compacted
from mirrorlake.maintenance.tiers import full_tier

# Rows of side tables are small and narrow; so many bytes of them are sorted in memory.
_MOST_BYTES = 64 << 20
# Within a file, a look-up reads the groups whose statistics fit.
_GROUP_ROWS = 20_000
_MOST_TEXT = 200


def compact_side_table(table: TableUpkeep, schema: TableSchema, *, plan: bool = False) -> Compacted:
    """Rewrite the files of a full tier, at most 64 MiB of them; with `plan` nothing is done.

    Raises:
        StoreError: a file does not hold what its statistics say; nothing of it was replaced.
    """
    live = table.live().select(["path", "size_bytes", "num_records", "modification_time"])
    files = live.sort_by([("modification_time", "ascending"), ("path", "ascending")]).to_pylist()
    count = full_tier([file["size_bytes"] for file in files])
    group: list[Mapping[str, Any]] = []
    for file in files[len(files) - count :]:
        if group and sum(one["size_bytes"] for one in group) + file["size_bytes"] > _MOST_BYTES:
            break
        group.append(file)
    if len(group) < 2:
        return Compacted()
    size = sum(file["size_bytes"] for file in group)
    if plan:
        return Compacted(files=len(group), bytes=size, into=1)
    written = _rewrite(table, schema, group)
    if not table.replace([LiveFile(file["path"], file["size_bytes"]) for file in group], [written], why="compact"):
        table.delete(written.path)
        return Compacted()
    return Compacted(files=len(group), bytes=size, into=1)


def _rewrite(table: TableUpkeep, schema: TableSchema, group: Sequence[Mapping[str, Any]]) -> WrittenFile:
    rows = read_side_files(table, [file["path"] for file in group])
    if rows.num_rows != sum(file["num_records"] for file in group):
        raise StoreError(
            f"files of {schema.name} do not hold what their statistics say",
            consequence="they stay as they are; nothing was replaced",
            remedy="mirrorlake doctor",
        )
    return write_side_file(table, schema, rows)


def read_side_files(table: TableUpkeep, names: Sequence[str]) -> pa.Table:
    """Read the rows of files of a side table."""
    places = [table.place(name) for name in names]
    # Columns that came with a later release are null in older files.
    return ds.dataset(
        [path for _, path in places], schema=table.schema, format="parquet", filesystem=places[0][0]
    ).to_table()


def write_side_file(table: TableUpkeep, schema: TableSchema, rows: pa.Table) -> WrittenFile:
    """Write rows of a side table to a file that no commit names yet, sorted as look-ups ask for them."""
    if order := _looked_up_by(schema):
        rows = rows.sort_by([(name, "ascending") for name in order])
    name = f"part-{uuid.uuid4()}.zstd.parquet"
    filesystem, path = table.place(name)
    pq.write_table(rows, path, filesystem=filesystem, compression="zstd", row_group_size=_GROUP_ROWS)
    size = int(filesystem.get_file_info(path).size)
    return WrittenFile(name, size, rows.num_rows, rows.nbytes, json.dumps(_stats(rows, order)))


def _looked_up_by(schema: TableSchema) -> list[str]:
    named = schema.properties.get("delta.dataSkippingStatsColumns", "")
    return named.split(",") if named else []


def _stats(rows: pa.Table, names: Sequence[str]) -> dict[str, Any]:
    chosen = [name for name in names or rows.column_names if _has_ends(rows.column(name))]
    ends = {name: pc.min_max(rows.column(name)).as_py() for name in chosen}
    ends = {name: end for name, end in ends.items() if end["min"] is not None}
    return {
        "numRecords": rows.num_rows,
        "minValues": {name: stats_value(end["min"]) for name, end in ends.items()},
        # Cut to milliseconds, the greatest time would lie below what the file holds.
        "maxValues": {name: stats_value(_not_cut(end["max"])) for name, end in ends.items()},
        "nullCount": {name: rows.column(name).null_count for name in chosen},
    }


def _not_cut(value: Any) -> Any:
    return value + timedelta(milliseconds=1) if isinstance(value, datetime) and value.microsecond % 1000 else value


def _has_ends(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if pa.types.is_string(kind):
        # A long text is cut in statistics, which is right only with care; without any, the file is read.
        return (pc.max(pc.utf8_length(column)).as_py() or 0) <= _MOST_TEXT
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))
