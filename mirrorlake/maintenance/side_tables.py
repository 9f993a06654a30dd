"""Compact the small files of a side table, sorted for look-ups, and of a typed table.

A running flow appends to `offset_map` several times a second; after a day, a look-up that opens each file would take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

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
    """Rewrite the files of a full tier of each partition, at most 64 MiB; with `plan` nothing is done.

    Raises:
        StoreError: a file does not hold what its statistics say; nothing of it was replaced.
    """
    done = Compacted()
    for group in _due_groups(table):
        if plan or _replaced(table, schema, group):
            size = sum(file["size_bytes"] for file in group)
            done = replace(done, files=done.files + len(group), bytes=done.bytes + size, into=done.into + 1)
    return done


def _due_groups(table: TableMaintenance) -> list[list[Mapping[str, Any]]]:
    parts = [f"partition.{name}" for name in table.partition_by]
    live = table.live().select(["path", "size_bytes", "num_records", "modification_time", *parts])
    partitions: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for file in live.sort_by([("modification_time", "ascending"), ("path", "ascending")]).to_pylist():
        partitions.setdefault(tuple(file[name] for name in parts), []).append(file)
    return [group for files in partitions.values() if len(group := _due(files)) > 1]


def _due(files: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    count = full_tier([file["size_bytes"] for file in files])
    group: list[Mapping[str, Any]] = []
    for file in files[len(files) - count :]:
        if group and sum(one["size_bytes"] for one in group) + file["size_bytes"] > _MAX_BYTES:
            break
        group.append(file)
    return group


def _replaced(table: TableMaintenance, schema: TableSchema, group: Sequence[Mapping[str, Any]]) -> bool:
    written = _rewrite(table, schema, group)
    removed = [LiveFile(file["path"], file["size_bytes"], written.partition) for file in group]
    if table.replace(removed, [written], why="compact"):
        return True
    table.delete(written.path)
    return False


def _rewrite(table: TableMaintenance, schema: TableSchema, group: Sequence[Mapping[str, Any]]) -> WrittenFile:
    rows = read_rows(table, [file["path"] for file in group])
    if rows.num_rows != sum(file["num_records"] for file in group):
        raise StoreError(
            f"files of {schema.name} do not hold what their statistics say",
            consequence="the files stay as they are; nothing was replaced",
            remedy="mirrorlake doctor",
        )
    for name in table.partition_by:
        field = rows.schema.field(name)
        value = pa.scalar(group[0][f"partition.{name}"], field.type)
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.repeat(value, len(rows)))
    # The order by which look-ups filter.
    if order := measured_columns(schema.properties):
        rows = rows.sort_by([(name, "ascending") for name in order])
    return write_rows(table.path, rows, order, table.partition_by)
