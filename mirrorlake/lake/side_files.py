"""Write the Parquet files of side tables without delta-rs, which allows no step between its files and their commit.

Law F: a file is flushed to the disk before a commit names it (docs/design.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from mirrorlake.errors import StoreError
from mirrorlake.lake.log_commits import LiveFile
from mirrorlake.lake.partitions import partition_texts
from mirrorlake.lake.relay_writer import WrittenFile, stats_value
from mirrorlake.lake.table_maintenance import TableMaintenance
from mirrorlake.lake.table_schema import REMOVABLE
from mirrorlake.runtime import open_address

Leaves = Callable[[pa.Table], np.ndarray[Any, np.dtype[np.bool_]]]
"""Returns which rows of a table to delete."""

# A query reads only the row groups of a file whose statistics match.
_GROUP_ROWS = 20_000
# Texts in statistics are truncated; a truncated maximum gets Unicode's last character, so that it is above the whole text.
_MAX_TEXT, _LAST_CHARACTER = 200, "\U0010ffff"
# Delta's own number: the log has the statistics of each file.
_MEASURED = 32
_JSON = msgspec.json.Encoder()
# Another maintenance run may rewrite the same files meanwhile.
_ATTEMPTS = 10


_WITH_ENDS = (
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_decimal,
)


def write_rows(folder: str, rows: pa.Table, measured: Sequence[str], partition_by: Sequence[str] = ()) -> WrittenFile:
    """Write rows of a side table, or of one partition of a typed table, to a file that no commit names yet."""
    name = f"part-{uuid.uuid4()}.zstd.parquet"
    filesystem, path = (
        open_address(f"{folder}/{name}") if ":/" in folder else (fs.LocalFileSystem(), f"{folder}/{name}")
    )
    pq.write_table(rows, path, filesystem=filesystem, compression="zstd", row_group_size=_GROUP_ROWS)
    size = int(filesystem.get_file_info(path).size)
    stats = _JSON.encode(_stats(rows.drop_columns(list(partition_by)), measured)).decode()
    return WrittenFile(name, size, rows.num_rows, rows.nbytes, stats, partition=partition_texts(rows, partition_by))


def read_rows(table: TableMaintenance, names: Sequence[str]) -> pa.Table:
    """Read the rows of files of a table; a partition column may be null where Spark wrote the file, which leaves it out."""
    places = [table.locate(name) for name in names]
    # Spark's times may have 96 bits.
    return ds.dataset(
        [path for _, path in places], schema=table.schema, format="parquet", filesystem=places[0][0]
    ).to_table()


def delete_rows(
    table: TableMaintenance,
    leaves: Leaves,
    *,
    why: str,
    may_hold: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> int:
    """Delete rows of a side table and return their number; only files for whose flattened add action `may_hold` is true are read."""
    taken = 0
    for _ in range(_ATTEMPTS):
        removed, written, count = [], [], 0
        for file in filter(may_hold, table.live().to_pylist()):
            rows = read_rows(table, [file["path"]])
            if (gone := leaves(rows)).any():
                removed.append(LiveFile(file["path"], file["size_bytes"]))
                count += int(gone.sum())
                if not gone.all():
                    written.append(write_rows(table.path, rows.filter(pa.array(~gone)), table.measured))
        if not removed:
            return taken
        table.ensure_properties(REMOVABLE)
        # The table is read again even after a commit, because Spark may have committed at the same time.
        if table.replace(removed, written, data_change=True, why=why):
            taken += count
        else:
            for one in written:
                table.delete(one.path)
    raise StoreError(
        f"other processes write rows of {table.path} again while they are removed",
        consequence="some of these rows remain; the next maintenance removes them",
        remedy="run mirrorlake maintain while no other maintenance runs",
    )


def _stats(rows: pa.Table, names: Sequence[str]) -> dict[str, Any]:
    """Return statistics of every column that can have some, because delta-rs reads a missing bound as one that no value fits."""
    chosen = [
        name
        for name in names or rows.column_names[:_MEASURED]
        if name in rows.column_names and _has_ends(rows.column(name))
    ]
    ends = {name: pc.min_max(rows.column(name)).as_py() for name in chosen}
    ends = {name: end for name, end in ends.items() if end["min"] is not None}
    return {
        "numRecords": rows.num_rows,
        "minValues": {name: _in_json(_least(end["min"])) for name, end in ends.items()},
        "maxValues": {name: _in_json(_greatest(end["max"])) for name, end in ends.items()},
        "nullCount": {name: rows.column(name).null_count for name in chosen},
    }


def _in_json(value: Any) -> Any:
    # Delta's readers take no exponent.
    return msgspec.Raw(f"{value:f}".encode()) if isinstance(value, Decimal) else stats_value(value)


def _least(value: Any) -> Any:
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def _greatest(value: Any) -> Any:
    """Return an upper bound of the file's values, though long texts and times are truncated."""
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return value[:_MAX_TEXT] + _LAST_CHARACTER
    return value + timedelta(milliseconds=1) if isinstance(value, datetime) and value.microsecond % 1000 else value


def _has_ends(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if pa.types.is_floating(kind):
        # NaN is above all numbers in Spark, and JSON has neither it nor infinity.
        return bool(pc.all(pc.is_finite(column), min_count=0).as_py())
    return any(test(kind) for test in _WITH_ENDS)
