"""The relay's files as workers write them: one a turn, with spans and statistics that stand for their contents."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from mirrorlake.errors import SafetyError
from mirrorlake.lake import RELAY, FileSpan, FolderTables, RelayPart, relay_writer, spans_from_text, write_files
from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.file_spans import footer_spans
from mirrorlake.lake.relay_writer import require_seen, stats_value
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from tests.kit.lake import LANDED_AT, rows
from tests.unit.lake.kit import SCHEMA, batch, written


@pytest.mark.law("C", "D")
def test_law_c_one_file_holds_the_records_of_all_partitions_as_they_came(tmp_path: Path) -> None:
    batches = [
        batch(rows("orders", 0, 0, 1, 2), rows("orders", 1, 7)),
        batch(rows("orders", 1, 8, 11), rows("prices", 1, 3)),
        batch(),
    ]
    [file] = write_files(str(tmp_path), SCHEMA, iter(batches))
    held = [*rows("orders", 0, 0, 1, 2), *rows("orders", 1, 7, 8, 11), *rows("prices", 1, 3)]
    assert pq.read_table(tmp_path / file.path, schema=SCHEMA).to_pylist() == held
    assert (file.records, file.size) == (7, (tmp_path / file.path).stat().st_size)
    assert file.raw_bytes > 0
    newest = [int((LANDED_AT - timedelta(seconds=first)).timestamp() * 1000) for first in (0, 7, 3)]
    assert spans_from_text(file.spans) == [
        FileSpan(SourcePartition("orders", 1, 0), 0, 2, 0, 3, newest[0]),
        FileSpan(SourcePartition("orders", 1, 1), 7, 11, 3, 3, newest[1]),
        FileSpan(SourcePartition("prices", 1, 1), 3, 3, 6, 1, newest[2]),
    ]
    assert footer_spans(pq.read_metadata(tmp_path / file.path)) == spans_from_text(file.spans)
    stats = json.loads(file.stats)
    ends = [{name: stats[f"{end}Values"][name] for name in (*SOURCE_KEY, "offset")} for end in ("min", "max")]
    assert ends == [
        {"topic": "orders", "generation": 1, "partition": 0, "offset": 0},
        {"topic": "prices", "generation": 1, "partition": 1, "offset": 11},
    ]
    assert (stats["numRecords"], set(stats["nullCount"].values())) == (7, {0})
    assert stats["minValues"]["timestamp"] == stats_value(LANDED_AT - timedelta(seconds=11))


@pytest.mark.law("D")
def test_law_d_past_its_bound_a_file_ends_with_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_writer, "_GROUP_BYTES", 1_000)
    batches = [batch(rows("a", 0, *range(30)), rows("a", 1, *range(5))), batch(rows("a", 1, 5, 6), rows("a", 2, 0))]
    files = list(write_files(str(tmp_path), SCHEMA, iter(batches)))
    held = [[(span.source.partition, span.records) for span in spans_from_text(file.spans)] for file in files]
    assert held == [[(0, 30)], [(1, 7), (2, 1)]]
    footer = pq.read_metadata(tmp_path / files[0].path)
    assert footer.num_row_groups > 2, "a worker never holds more than a row group"
    assert [pq.read_table(tmp_path / file.path)["offset"].to_pylist() for file in files] == [
        list(range(30)),
        [*range(7), 0],
    ]
    apart = list(write_files(str(tmp_path), SCHEMA, iter(batches), apart=True))
    assert [file.records for file in apart] == [30, 7, 1]


def test_statistics_find_the_files_that_hold_a_position(tmp_path: Path) -> None:
    table, path = FolderTables(), str(tmp_path)
    table.create(path, RELAY)
    files = written(path, rows("orders", 0, *range(10)), rows("orders", 1, *range(5)), apart=True)
    table.commit(path, files, app_id="land", version=1, signature="first")
    table.commit(path, files, app_id="land", version=1, signature="again")
    assert [commit.get("userMetadata") for commit in table.history(path, 1)] == ["first"], "a batch counts once"
    known = {SourcePartition("orders", 1, 0): 10, SourcePartition("orders", 1, 1): 4}
    found = table.dataset(path, arrow_types(RELAY), RelayPart(known)).to_table(columns=["partition", "offset"])
    assert found.to_pydict() == {"partition": [1] * 5, "offset": [0, 1, 2, 3, 4]}
    later = RelayPart({}, since=LANDED_AT)
    assert table.dataset(path, arrow_types(RELAY), later).count_rows() == 15, "times are cut to ms: not skipped"
    assert (
        table.dataset(path, arrow_types(RELAY), RelayPart({}, since=LANDED_AT + timedelta(seconds=1))).count_rows() == 0
    )


@pytest.mark.law("E")
def test_law_e_a_file_of_several_partitions_is_left_out_only_where_all_of_them_are_past_it(tmp_path: Path) -> None:
    table, path = FolderTables(), str(tmp_path)
    table.create(path, RELAY)
    shared = pa.Table.from_batches([batch(rows("orders", 0, 3, 4), rows("orders", 1, 7), rows("orders", 2, 5))])
    write_deltalake(path, shared, mode="append")

    def found(*positions: int) -> int:
        known = {SourcePartition("orders", 1, number): position for number, position in enumerate(positions)}
        return len(table.files(path, RelayPart(known))[1])

    assert found(8, 8, 8) == 0
    assert found(8, 7, 8) == found(8, 8) == found() == 1

    def up_to(*ends: int, others: bool = False) -> int:
        known = {SourcePartition("orders", 1, number): 0 for number in range(len(ends))}
        part = RelayPart(known, ends=dict(zip(known, ends, strict=True)), others=others)
        return len(table.files(path, part)[1])

    # The file begins at offset 3, whose partition the statistics do not tell.
    assert up_to(3, 3, 3) == up_to(2) == 0
    assert up_to(3, 4, 3) == up_to(3, 3, others=True) == 1


@pytest.mark.law("F")
def test_law_f_a_file_that_a_worker_wrote_elsewhere_is_not_committed(tmp_path: Path) -> None:
    """A cluster whose workers have another folder under the same path."""
    files = written(tmp_path, rows("orders", 0, 1))
    require_seen(str(tmp_path), files)
    with pytest.raises(SafetyError, match="this process does not see") as refused:
        require_seen(str(tmp_path / "elsewhere"), files)
    assert "was not landed" in refused.value.consequence


def test_statistics_write_years_with_four_digits() -> None:
    assert stats_value(datetime(33, 4, 3, 15, tzinfo=timezone.utc)) == "0033-04-03T15:00:00.000Z"
