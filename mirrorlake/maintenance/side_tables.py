"""Compact the small files of a side table, sorted for look-ups.

A running flow appends to `offset_map` several times a second; after a day, a look-up that opens each file would take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirrorlake.errors import StoreError
from mirrorlake.lake import (
    LiveFile,
    TableMaintenance,
    TableSchema,
    WrittenFile,
    measured_columns,
    read_rows,
    write_rows,
)
from mirrorlake.maintenance.results import Compacted
from mirrorlake.maintenance.tiers import full_tier

# Rows of side tables are small and narrow: this many bytes are sorted in memory.
_MAX_BYTES = 64 << 20


def compact_side_table(table: TableMaintenance, schema: TableSchema, *, plan: bool = False) -> Compacted:
    """Rewrite the files of a full tier, at most 64 MiB; with `plan` nothing is done.

    Raises:
        StoreError: a file does not hold what its statistics say; nothing of it was replaced.
    """
    live = table.live().select(["path", "size_bytes", "num_records", "modification_time"])
    files = live.sort_by([("modification_time", "ascending"), ("path", "ascending")]).to_pylist()
    count = full_tier([file["size_bytes"] for file in files])
    group: list[Mapping[str, Any]] = []
    for file in files[len(files) - count :]:
        if group and sum(one["size_bytes"] for one in group) + file["size_bytes"] > _MAX_BYTES:
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


def _rewrite(table: TableMaintenance, schema: TableSchema, group: Sequence[Mapping[str, Any]]) -> WrittenFile:
    rows = read_rows(table, [file["path"] for file in group])
    if rows.num_rows != sum(file["num_records"] for file in group):
        raise StoreError(
            f"files of {schema.name} do not hold what their statistics say",
            consequence="the files stay as they are; nothing was replaced",
            remedy="mirrorlake doctor",
        )
    # The order by which look-ups filter.
    if order := measured_columns(schema.properties):
        rows = rows.sort_by([(name, "ascending") for name in order])
    return write_rows(table.path, rows, order)
