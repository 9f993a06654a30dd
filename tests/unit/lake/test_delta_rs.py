"""Tables in a folder of this machine, and old rows that leave them."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from mirrorlake.lake import (
    BAD_RECORDS,
    POSITIONS,
    SAMPLES,
    FolderTables,
    Lake,
    LiveFile,
    TableMaintenance,
    WrittenFile,
    arrow_table,
    load_last_samples,
    prune_samples,
)
from tests.builders import NOON
from tests.kit.lake import LakeBuilder


def test_a_table_whose_folder_was_deleted_is_gone(tmp_path: Path) -> None:
    tables, place = FolderTables(), str(tmp_path / "samples")
    rows = arrow_table(SAMPLES, [{"name": "a->b", "observed_at": NOON}])
    tables.create(place, SAMPLES)
    for _ in range(3):
        tables.append(place, rows)
    assert (tables.has(place), tables.version(place)) == (True, 3)
    shutil.rmtree(place)
    assert not tables.has(place)
    tables.create(place, SAMPLES)
    assert (tables.has(place), tables.version(place)) == (True, 0), "the new table, not the one that was open"


@pytest.mark.parametrize("is_open", [True, False])
def test_a_listing_that_missed_a_commit_which_came_meanwhile_is_made_again(is_open: bool, tmp_path: Path) -> None:
    writer, reader, place = FolderTables(), FolderTables(), str(tmp_path / "samples")
    writer.create(place, SAMPLES)
    if is_open:
        assert reader.version(place) == 0
    for _ in range(3):
        writer.append(place, arrow_table(SAMPLES, [{"name": "a->b", "observed_at": NOON}]))
    # As a listing has it that passed the name of version 2 before it was there, and saw version 3.
    commit = Path(place, "_delta_log", f"{2:020}.json")
    missed = commit.rename(tmp_path / "missed.json")
    threading.Timer(0.02, missed.rename, [commit]).start()
    assert reader.version(place) == 3
    assert not list(Path(place, "_delta_log").glob("*.broken")), "nothing was put aside as broken"


def test_of_two_that_create_a_table_at_the_same_moment_both_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, met = DeltaTable.create, list[str]()

    def meets_another(path: str, *given: object, **chosen: object) -> object:
        """Let another process be first, once, as delta-rs says it then."""
        made = create(path, *given, **chosen)  # type: ignore[arg-type]
        if not met:
            met.append(path)
            raise CommitFailedError("Failed to commit transaction: Protocol changed since last commit")
        return made

    monkeypatch.setattr(DeltaTable, "create", meets_another)
    place = str(tmp_path / "samples")
    for _ in range(2):
        FolderTables().create(place, SAMPLES)
    assert met == [place]
    assert FolderTables().version(place) == 0


@pytest.mark.law("C", "F")
def test_law_f_rows_are_on_the_disk_before_the_commit_that_names_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between the two leaves a file that nobody names, never a commit that names an empty one."""
    place, fsync, flushed = Path(lake.meta_location(POSITIONS)), os.fsync, list[tuple[str, int]]()

    def noting(handle: int) -> None:
        commits = len(list(place.glob("_delta_log/*.json")))
        flushed.append((Path(f"/proc/self/fd/{handle}").resolve().name, commits))
        fsync(handle)

    def named(commit: int) -> list[str]:
        actions = map(json.loads, (place / f"_delta_log/{commit:020}.json").read_text().splitlines())
        return [action["add"]["path"] for action in actions if "add" in action]

    monkeypatch.setattr(os, "fsync", noting)
    rows = [{"source": "east", "kind": "landed", "position": at, "observed_at": NOON} for at in (1, 2, 3)]
    for at in range(0, 3, 2):
        lake.append(POSITIONS, rows[at : at + 2])
    lake.delete_rows(POSITIONS, "kind = 'landed' AND position > 1")
    assert [row.position for row in lake.query("SELECT position FROM {positions}")] == [1]
    for commit in range(1, 4):
        [name] = named(commit)
        assert (name, commit) in flushed, "the file, while the commit before was the newest"
        assert ("_delta_log", commit + 1) in flushed
    # A commit has its name once it is whole.
    assert [commit for file, commit in flushed if file.endswith(".json.tmp")] == [1, 2, 3]
    names = (".parquet", ".json", ".json.tmp", POSITIONS.name, "_delta_log")
    assert all(file.endswith(names) for file, _ in flushed)


def test_no_byte_of_a_record_gets_into_a_log(tmp_path: Path) -> None:
    """Statistics are not erased with their file: they name no key and no value."""
    tables, place = FolderTables(), str(tmp_path / "bad_records")
    tables.create(place, BAD_RECORDS)
    record = {"key": b"ada-17", "value": b"ada-17", "topic": "t"}
    tables.append(place, arrow_table(BAD_RECORDS, [record]))
    upkeep = TableMaintenance(place)
    assert upkeep.checkpoint(after=1)
    assert all(b"ada-17" not in file.read_bytes() for file in Path(place, "_delta_log").iterdir())


def test_a_file_is_found_by_whatever_column_is_asked_for(tmp_path: Path) -> None:
    """delta-rs passes over a file whose statistics lack the ends of a column, as if no value fitted."""
    table, tables, long = str(tmp_path / "samples"), FolderTables(), "é" * 300
    tables.create(table, SAMPLES)
    row = {"observed_at": NOON, "subject": "cluster", "name": "east", "complete": True, "error": long}
    tables.append(table, arrow_table(SAMPLES, [row]))
    held = DeltaTable(table).to_pyarrow_dataset()
    for name, value in row.items():
        assert held.to_table(filter=ds.field(name) == value).num_rows == 1, name


SAMPLED_AT, DAY = datetime(2026, 7, 1, 12, tzinfo=timezone.utc), timedelta(days=1)


def as_spark_writes_by_default(table: TableMaintenance) -> None:
    """Write the files of a table again with times of 96 bits, without the columns that came later."""
    for file in table.live().select(["path", "size_bytes"]).to_pylist():
        with table.open(file["path"]) as opened:
            rows = pq.read_table(opened).drop_columns(["record_timestamp"])
        path = Path(table.path, f"spark-{file['path']}")
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
        new = WrittenFile(path.name, path.stat().st_size, len(rows), rows.nbytes, json.dumps({"numRecords": len(rows)}))
        assert table.replace([LiveFile(file["path"], file["size_bytes"])], [new], why="test")


def test_rows_that_spark_wrote_by_its_defaults_leave_too(built: LakeBuilder, lake: Lake) -> None:
    for day in range(5):
        built.position("group", day, group_id="app", observed_at=SAMPLED_AT + day * DAY)
    upkeep = lake.open_maintenance(lake.meta_location(POSITIONS))
    assert upkeep is not None
    as_spark_writes_by_default(upkeep)
    assert not prune_samples(lake, before=SAMPLED_AT, now=SAMPLED_AT + 5 * DAY), "a new lake holds nothing old"
    assert prune_samples(lake, before=SAMPLED_AT + 3 * DAY, now=SAMPLED_AT + 7 * DAY)
    rows = lake.query("SELECT position, observed_at FROM {positions} ORDER BY position")
    assert [(row.position, row.observed_at) for row in rows] == [(day, SAMPLED_AT + day * DAY) for day in (2, 3, 4)]


def test_a_start_reads_the_last_samples_of_its_own_subjects_alone(built: LakeBuilder, lake: Lake) -> None:
    """One that is sampled no more would make every start read all rows since."""
    for name, day in (("retired", 0), ("east", 9)):
        at = SAMPLED_AT + day * DAY
        built.position("last_stable", day, source=name, observed_at=at)
        built.add("samples", observed_at=at, subject="cluster", name=name, complete=True, scope="mine", positions=1)
    assert load_last_samples(lake, "mine").standings.keys() == {("cluster", "retired"), ("cluster", "east")}
    last = load_last_samples(lake, "mine", {("cluster", "east"), ("cluster", "new")})
    assert last.completed_at == {("cluster", "east"): SAMPLED_AT + 9 * DAY}
    assert [position for position, _ in last.standings["cluster", "east"].values()] == [9]
