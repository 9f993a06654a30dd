"""Old samples that leave the lake without Spark."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq

from mirrorlake.lake import (
    POSITIONS,
    SAMPLES,
    LiveFile,
    TableMaintenance,
    WrittenFile,
    prune_samples,
)
from tests.lakes import lake_in

AT, DAY = datetime(2026, 7, 1, 12, tzinfo=timezone.utc), timedelta(days=1)


def as_spark_writes_by_default(table: TableMaintenance) -> None:
    """Write the files of a table again with times of 96 bits, without the columns that came later."""
    for file in table.live().select(["path", "size_bytes"]).to_pylist():
        with table.open(file["path"]) as opened:
            rows = pq.read_table(opened).drop_columns(["record_timestamp"])
        path = Path(table.path, f"spark-{file['path']}")
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
        new = WrittenFile(path.name, path.stat().st_size, len(rows), rows.nbytes, json.dumps({"numRecords": len(rows)}))
        assert table.replace([LiveFile(file["path"], file["size_bytes"])], [new], why="test")


def test_rows_that_spark_wrote_by_its_defaults_leave_too(tmp_path: Path) -> None:
    lake = lake_in(tmp_path, POSITIONS, SAMPLES)
    place = {"source": "east", "topic": "orders", "generation": 1, "partition": 0, "kind": "group", "group_id": "app"}
    lake.append_rows(POSITIONS, [{**place, "position": day, "observed_at": AT + day * DAY} for day in range(5)])
    upkeep = lake.open_maintenance(lake.meta_location(POSITIONS))
    assert upkeep is not None
    as_spark_writes_by_default(upkeep)
    assert not prune_samples(lake, before=AT, now=AT + 5 * DAY), "a new lake holds nothing old"
    assert prune_samples(lake, before=AT + 3 * DAY, now=AT + 7 * DAY)
    rows = lake.query_rows("SELECT position, observed_at FROM {positions} ORDER BY position")
    assert [(row.position, row.observed_at) for row in rows] == [(day, AT + day * DAY) for day in (2, 3, 4)]
