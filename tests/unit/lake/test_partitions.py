"""Partitions and statistics of files that no Spark wrote: what readers of a table get, and which files they skip."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder, TableFeatures, write_deltalake
from deltalake.exceptions import DeltaProtocolError

from mirrorlake.lake import FolderTables, TableMaintenance, TableSchema, split_rows, write_rows
from mirrorlake.maintenance.side_tables import compact_side_table

UTC = timezone.utc
KINDS: dict[str, Any] = {
    "text": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(20, 2),
    "day": pa.date32(),
    "ratio": pa.float64(),
    "paid": pa.bool_(),
    "number": pa.int32(),
}
SCHEMA = pa.schema([("id", pa.int64()), *KINDS.items()])
VALUES: list[dict[str, Any]] = [
    {},
    {
        "text": "a/b=ü %25 'q\"",
        "at": datetime(2026, 7, 1, 12, 0, 0, 123456, UTC),
        "price": Decimal("1.50"),
        "paid": True,
    },
    {"text": "__HIVE_DEFAULT_PARTITION__", "at": datetime(2026, 7, 1, tzinfo=UTC), "price": Decimal("0.00")},
    {"day": date(900, 7, 1), "ratio": 1e30, "paid": False, "number": -5},
    {"at": datetime(1, 1, 1, tzinfo=UTC), "ratio": 1e-7, "price": Decimal("-123456789012345678.90")},
]


def made(folder: Path, partition_by: list[str], rows: pa.Table) -> str:
    path = str(folder / "t")
    DeltaTable.create(path, rows.schema, partition_by=partition_by)
    files = [write_rows(path, part, (), partition_by) for part in split_rows(rows, partition_by)]
    FolderTables().commit(path, files, app_id="a", version=1, signature="{}")
    return path


def read(path: str, where: Any = None) -> list[int]:
    return sorted(FolderTables().dataset(path, {}).to_table(filter=where)["id"].to_pylist())


def test_values_of_every_type_are_those_of_the_partition_and_other_files_are_skipped(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{"id": number, **values} for number, values in enumerate(VALUES)], SCHEMA)
    path = made(tmp_path, [*KINDS], rows)
    dataset = FolderTables().dataset(path, {})
    assert dataset.to_table().sort_by("id").to_pylist() == rows.to_pylist()
    for number, values in enumerate(VALUES):
        for name, value in values.items():
            assert number in read(path, ds.field(name) == pa.scalar(value, KINDS[name])), (name, value)
    assert len(list(dataset.get_fragments(filter=ds.field("number") == -5))) == 1
    # delta-rs' own dataset refuses negative decimals as partition values (1.6).
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t ORDER BY id")
    assert pa.table(found.read_all()).to_pylist() == rows.to_pylist()


def test_statistics_of_spark_hide_no_row(tmp_path: Path) -> None:
    first = {"id": 1, "paid": True, "at": datetime(2026, 7, 1, tzinfo=UTC)}
    path = made(tmp_path, [], pa.Table.from_pylist([first], SCHEMA))
    at = datetime(2026, 7, 1, 0, 0, 0, 123456, UTC)
    file = write_rows(path, pa.Table.from_pylist([{"id": 2, "paid": True, "at": at}], SCHEMA), ())
    ends = {"id": 2, "at": "2026-07-01T00:00:00.123Z"}
    # Spark has no bounds of booleans, and cuts times to milliseconds.
    stats = {"numRecords": 1, "minValues": ends, "maxValues": ends, "nullCount": {"id": 0, "at": 0, "paid": 0}}
    FolderTables().commit(path, [file._replace(stats=json.dumps(stats))], app_id="a", version=2, signature="{}")
    assert read(path, ds.field("paid") == pa.scalar(True)) == [1, 2]
    assert read(path, ds.field("at") == pa.scalar(at, KINDS["at"])) == [2]


def test_statistics_bound_every_number_and_time_and_none_that_is_nan(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "ratio": 1.0, "price": Decimal("0.01"), "day": date(2026, 7, 1)},
        {"id": 2, "ratio": float("nan"), "price": Decimal("5.00")},
        {"id": 3, "ratio": 7.0},
    ]
    schema = pa.schema([("id", pa.int64()), *KINDS.items(), *((f"c{number}", pa.int64()) for number in range(40))])
    path = made(tmp_path, [], pa.Table.from_pylist(rows, schema))
    assert read(path, ds.field("ratio") > 4) == [3]
    [live] = TableMaintenance(path).live().to_pylist()
    assert (live["min.price"], live["max.price"]) == (Decimal("0.01"), Decimal("5.00"))
    assert (live["min.day"], live["max.ratio"]) == (date(2026, 7, 1), None)


@pytest.mark.parametrize("column", ["text", "day"])
def test_each_partition_is_compacted_by_itself(tmp_path: Path, column: str) -> None:
    value: Any = {"text": "a=b", "day": date(2026, 7, 1)}[column]
    schema = pa.schema([("id", pa.int64()), (column, KINDS[column])])
    path = made(tmp_path, [column], pa.Table.from_pylist([{"id": -1}], schema))
    for number in range(40):
        row = pa.Table.from_pylist([{"id": number, column: value if number % 10 else None}], schema)
        # delta-rs leaves partition columns out of its files, as Spark does.
        write_deltalake(path, row, mode="append")
    maintenance = TableMaintenance(path)
    done = compact_side_table(maintenance, TableSchema(name="t", comment="", columns={}, properties={}))
    assert (done.files, done.into, len(maintenance.live())) == (36, 1, 6)
    assert read(path) == list(range(-1, 40))
    assert read(path, ds.field(column) == value) == [number for number in range(40) if number % 10]
    assert DeltaTable(path).to_pyarrow_table(filters=[(column, "=", value)]).num_rows == 36
    live = {unquote(name) for name in maintenance.live()["path"].to_pylist()}
    on_disk = {unquote(name) for name in maintenance.list_files()}
    assert (on_disk > live, len(on_disk)) == (True, 42)


def test_a_table_whose_files_hold_deleted_rows_is_not_read_by_its_files(tmp_path: Path) -> None:
    path = made(tmp_path, [], pa.table({"id": [1]}))
    features = [TableFeatures.DeletionVectors]
    DeltaTable(path).alter.add_feature(features, allow_protocol_versions_increase=True)
    with pytest.raises(DeltaProtocolError, match="deletionVectors"):
        read(path)
