"""How many bytes an offset of a log takes at most, by the newest records of a relay in a folder; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.lag.log_bytes import read_offset_bytes
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.relay_writer import write_files
from mirrorlake.lake.schema import RELAY
from mirrorlake.model.flow import SourcePartition
from tests.lakes import SCHEMA, batch, rows


def _no_spark() -> Any:
    raise AssertionError("Spark was started")


def test_the_newest_records_count_with_their_headers_and_what_lies_around_them(tmp_path: Path) -> None:
    lake, tables = Lake(_no_spark, LakeConfig(root=str(tmp_path)), sees_all=lambda: True), FolderTables()
    first, second, new = (SourcePartition("orders", 1, p) for p in range(3))
    assert read_offset_bytes(lake, {("east", first): 9}) == {}, "nothing was landed yet"
    location = lake.relay_location("east")
    tables.create(location, RELAY)
    heavy = [{"key": "ä", "value": b"12345"}, {"key": "b", "value": None}]
    landed = [
        rows("orders", 0, *range(10), key=b"k" * 10, value=b"v" * 90, headers=None),
        rows("orders", 1, 0, 2, key=None, value=None, headers=heavy),
    ]
    for version, each in enumerate(landed):
        files = list(write_files(location, SCHEMA, iter([batch(each)])))
        tables.commit(location, files, app_id="land", version=version, signature="")
    found = read_offset_bytes(lake, {("east", first): 10, ("east", second): 3, ("east", new): 0, ("west", first): 1})
    # 128 bytes around each, and 1 %: of 100 bytes, and of 28 in two headers with ten around each.
    assert found == {("east", first): 229, ("east", second): 157, ("east", new): 229}, (
        "of a new one, as its topic's largest"
    )


def test_only_the_newest_thousand_offsets_are_averaged(tmp_path: Path) -> None:
    lake, tables = Lake(_no_spark, LakeConfig(root=str(tmp_path))), FolderTables()
    location, source = lake.relay_location("east"), SourcePartition("orders", 1, 0)
    tables.create(location, RELAY)
    small, large = ({"key": b"", "value": b"v" * length, "headers": None} for length in (100, 1100))
    one_file = batch(rows("orders", 0, *range(1000), **large), rows("orders", 0, *range(1000, 2000), **small))
    files = list(write_files(location, SCHEMA, iter([one_file])))
    tables.commit(location, files, app_id="land", version=1, signature="")
    assert read_offset_bytes(lake, {("east", source): 2000}) == {("east", source): 229}
    assert read_offset_bytes(lake, {("east", source): 1500}) == {("east", source): 566}, (
        "500 large ones, and what came since"
    )
