"""What a relay's log says of its files, from commit to commit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from mirrorlake.lake import FolderTables, RelayFile, RelayLog, relay_log
from mirrorlake.lake.opening import read_commit
from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import Folder
from tests.kit.lake import rows
from tests.unit.lake.kit import Relay, batch

ORDERS = SourcePartition("orders", 1, 0)


@pytest.fixture
def relay(tmp_path: Path) -> Relay:
    return Relay(tmp_path)


def spans(files: Iterable[RelayFile]) -> list[tuple[str, int, int, int, int, bool]]:
    return sorted(
        (f.source.topic, f.source.partition, f.first_offset, f.last_offset, f.records, f.shared) for f in files
    )


def described(files: Iterable[RelayFile]) -> set[tuple[Any, ...]]:
    # Kafka's times have milliseconds, the columns of a test more.
    return {(file, file.first_row, int(file.newest.timestamp() * 1000) if file.newest else None) for file in files}


@pytest.mark.law("E")
@pytest.mark.parametrize("known_by", ["commit", "log checkpoint", "footer", "columns"])
def test_law_e_spans_are_known_by_the_log_the_footer_or_the_columns(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, known_by: str
) -> None:
    follower = RelayLog(relay.tables, relay.path)
    follower.files({})
    relay.turn(rows("a", 0, 0, 1, 2), rows("a", 3, 7), rows("b", 1, 5, 6))
    held = described(follower.new_files({}))
    assert {first_row for _, first_row, _ in held} == {0, 3, 4}
    commit = Path(relay.path, "_delta_log", f"{1:020}.json")
    if known_by == "log checkpoint":
        DeltaTable(relay.path).create_checkpoint()
        commit.unlink()
    elif known_by != "commit":
        # As delta-rs commits, and another writer writes.
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        [file] = [line["add"] for line in lines if "add" in line]
        del file["tags"]
        commit.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        place = Path(relay.path, file["path"])
        if known_by == "columns":
            pq.write_table(pq.read_table(place).replace_schema_metadata({}), place)
            held = {(file, None, newest) for file, _, newest in held}
    if known_by in ("commit", "log checkpoint"):
        monkeypatch.setattr(relay_log, "open_address", lambda uri: pytest.fail(f"{uri} was opened"))
    log = RelayLog(FolderTables(), relay.path)
    assert described(log.files({})) == held
    assert described(log.files({SourcePartition("a", 1, 0): 3})) == {one for one in held if one[0].source.partition}
    if known_by != "log checkpoint":
        assert described(RelayLog(FolderTables(), relay.path, 0).new_files({})) == held


@pytest.mark.law("E")
def test_law_e_files_of_a_stranger_are_opened_and_rewritten_ones_are_not_new(relay: Relay) -> None:
    relay.turn(rows("orders", 0, 1))
    log = RelayLog(relay.tables, relay.path)
    log.files({})
    long = "x" * 60
    write_deltalake(
        relay.path, pa.Table.from_batches([batch(rows("orders", 0, 5, 3, 4), rows(long, 2, 9))]), mode="append"
    )
    assert spans(log.new_files({})) == [("orders", 0, 3, 5, 3, True), (long, 2, 9, 9, 1, True)]
    DeltaTable(relay.path).optimize.compact()
    assert log.new_files({}) == [], "a rewritten file holds what was seen before"
    assert sum(file.records for file in RelayLog(relay.tables, relay.path).files({})) == 5


@pytest.mark.law("E")
def test_law_e_a_log_that_was_cleaned_is_replaced_by_all_files_past_the_positions(relay: Relay) -> None:
    relay.turn(rows("orders", 0, 1))
    log = RelayLog(relay.tables, relay.path)
    log.files({})
    relay.turn(rows("orders", 0, 2))
    relay.turn(rows("orders", 0, 3))
    DeltaTable(relay.path).create_checkpoint()
    Path(relay.path, "_delta_log", f"{2:020}.json").unlink()
    assert spans(log.new_files({ORDERS: 2})) == [("orders", 0, 2, 2, 1, False), ("orders", 0, 3, 3, 1, False)]


@pytest.mark.law("E")
def test_law_e_a_look_that_failed_halfway_is_made_again_as_a_whole(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay.turn(rows("orders", 0, 1))
    log = RelayLog(relay.tables, relay.path)
    log.files({})
    relay.turn(rows("orders", 0, 2))
    relay.turn(rows("orders", 1, 3))
    failing = {3}

    def commit(folder: Folder, version: int) -> str | None:
        if version in failing:
            failing.clear()
            raise OSError("the store did not answer")
        return read_commit(folder, version)

    monkeypatch.setattr(relay_log, "read_commit", commit)
    with pytest.raises(OSError, match="did not answer"):
        log.new_files({})
    found = spans(log.new_files({}))
    assert found == [("orders", 0, 2, 2, 1, False), ("orders", 1, 3, 3, 1, False)], "who asks again misses nothing"
