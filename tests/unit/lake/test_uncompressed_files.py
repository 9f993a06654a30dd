"""Files of a relay that wait for upkeep uncompressed, and the room that they may take."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from mirrorlake.lake import UncompressedBudget, uncompressed_files
from tests.kit.lake import rows
from tests.unit.lake.kit import SCHEMA, written


@pytest.mark.law("C")
def test_law_c_an_uncompressed_file_holds_the_same_records(tmp_path: Path) -> None:
    records = rows("orders", 0, *range(100))
    [fresh] = written(tmp_path, records, uncompressed=True)
    [final] = written(tmp_path, records)
    assert [uncompressed_files.is_uncompressed(file.path) for file in (fresh, final)] == [True, False]
    for file, codec in ((fresh, "UNCOMPRESSED"), (final, "ZSTD")):
        footer = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
        assert {footer.column(number).compression for number in range(footer.num_columns)} == {codec}
        assert pq.read_table(tmp_path / file.path, schema=SCHEMA).to_pylist() == records


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A disk with 800 bytes free, and a clock that each look moves."""
    usage = SimpleNamespace(free=800, now=0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(uncompressed_files.time, "monotonic", lambda: usage.now)
    return usage


def test_an_eighth_of_what_is_free_may_wait_uncompressed(tmp_path: Path, disk: SimpleNamespace) -> None:
    room = UncompressedBudget(str(tmp_path))
    assert room.allows_more()
    (tmp_path / "part-1.fresh.parquet").write_bytes(bytes(100))
    (tmp_path / "part-2.zstd.parquet").write_bytes(bytes(100))
    room.spend(99)
    assert room.allows_more(), "a byte is left"
    room.spend(1)
    disk.now += 60
    assert not room.allows_more(), "and what lies there counts for whoever comes next, too"
    assert not UncompressedBudget(str(tmp_path)).allows_more()
    (tmp_path / "part-1.fresh.parquet").unlink()
    assert not room.allows_more(), "a look costs"
    disk.now += 60
    assert room.allows_more(), "upkeep has rewritten it"
    for two in (UncompressedBudget(str(tmp_path), sharers=2), UncompressedBudget(str(tmp_path), sharers=2)):
        assert two.allows_more()
        two.spend(49)
        assert two.allows_more()
        two.spend(1)
        assert not two.allows_more(), "two that write there have half of it each"
    assert not UncompressedBudget("s3://bucket/lake/relay/east").allows_more(), "a store has no room"
    disk.free = 0
    assert not UncompressedBudget(str(tmp_path)).allows_more()
