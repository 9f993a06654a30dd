"""What a relay's log says of its files, from commit to commit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.relay_files import RelayFile
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.relay_writer import write_files
from mirrorlake.lake.schema import RELAY
from mirrorlake.model.flow import SourcePartition
from tests.unit.lake.test_relay_writer import SCHEMA, batch, rows

ORDERS = SourcePartition("orders", 1, 0)


class Relay:
    """A relay in a folder; `land` appends as a lander does."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.tables = FolderTables()
        self.tables.create(self.path, RELAY)
        self._batches = 0

    def land(self, *records: pa.RecordBatch) -> None:
        self._batches += 1
        files = list(write_files(self.path, SCHEMA, iter(records)))
        self.tables.commit(self.path, files, app_id="land", version=self._batches, signature="")


@pytest.fixture
def relay(tmp_path: Path) -> Relay:
    return Relay(tmp_path)


def spans(files: Iterable[RelayFile]) -> list[tuple[str, int, int, int, int, bool]]:
    return sorted(
        (f.source.topic, f.source.partition, f.first_offset, f.last_offset, f.records, f.shared) for f in files
    )


def test_files_are_found_by_position_and_then_by_commit(relay: Relay) -> None:
    relay.land(batch(rows("orders", 0, *range(10)), rows("orders", 1, *range(3))))
    relay.land(batch(rows("orders", 0, 10, 12)))
    log = RelayLog(relay.tables, relay.path)
    assert spans(log.files({ORDERS: 10})) == [("orders", 0, 10, 12, 2, False), ("orders", 1, 0, 2, 3, False)]
    assert log.new_files({}) == []
    relay.land(batch(rows("orders", 0, 13)), batch(rows("clicks", 5, 1)))
    relay.land()
    relay.land(batch(rows("orders", 0, 14)))
    new = log.new_files({})
    assert spans(new) == [
        ("clicks", 5, 1, 1, 1, False),
        ("orders", 0, 13, 13, 1, False),
        ("orders", 0, 14, 14, 1, False),
    ]
    assert [pq.read_table(file.uri.removeprefix("file:")).num_rows for file in new] == [1, 1, 1]
    assert log.new_files({}) == []


@pytest.mark.law("E")
def test_law_e_files_of_a_stranger_are_opened_and_rewritten_ones_are_not_new(relay: Relay) -> None:
    relay.land(batch(rows("orders", 0, 1)))
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
    relay.land(batch(rows("orders", 0, 1)))
    log = RelayLog(relay.tables, relay.path)
    log.files({})
    relay.land(batch(rows("orders", 0, 2)))
    relay.land(batch(rows("orders", 0, 3)))
    DeltaTable(relay.path).create_checkpoint()
    Path(relay.path, "_delta_log", f"{2:020}.json").unlink()
    assert spans(log.new_files({ORDERS: 2})) == [("orders", 0, 2, 2, 1, False), ("orders", 0, 3, 3, 1, False)]


@pytest.mark.law("E")
def test_law_e_a_look_that_failed_halfway_is_made_again_as_a_whole(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay.land(batch(rows("orders", 0, 1)))
    log = RelayLog(relay.tables, relay.path)
    log.files({})
    relay.land(batch(rows("orders", 0, 2)))
    relay.land(batch(rows("orders", 1, 3)))
    read, failing = log._commit, {3}

    def commit(version: int) -> str | None:
        if version in failing:
            failing.clear()
            raise OSError("the store did not answer")
        return read(version)

    monkeypatch.setattr(log, "_commit", commit)
    with pytest.raises(OSError, match="did not answer"):
        log.new_files({})
    found = spans(log.new_files({}))
    assert found == [("orders", 0, 2, 2, 1, False), ("orders", 1, 3, 3, 1, False)], "who asks again misses nothing"
