"""One pass of upkeep: logs, deleted files and side tables, while writers and readers go on."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mirrorlake.config.schema import MaintenanceConfig
from mirrorlake.lake import OFFSET_MAP, FolderTables, LandingCommit, RelayLog
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.maintenance.results import KeptTable
from mirrorlake.timing import Timing
from tests.kit.lake import LANDED_AT, Row, map_row, rows
from tests.unit.lake.kit import Relay, written

FANOUT = Timing().compaction_fanout

APP = "mirrorlake.land.east"


class World(Relay):
    """A lake in a folder, without Spark; time goes on as the test says."""

    def land_some(self, count: int = 1, **progress: Any) -> None:
        for number in range(self.batches + 1, self.batches + 1 + count):
            signed = LandingCommit(1, number, "owner", LANDED_AT, **progress).to_text()
            self.turn(rows("orders", 0, number), app_id=APP, signature=signed)

    def keep(self, after: timedelta = timedelta(0), **settings: Any) -> dict[str, KeptTable]:
        def now() -> datetime:
            return datetime.now(timezone.utc) + after

        upkeep = LakeUpkeep(self.lake, MaintenanceConfig(**settings), now=now)
        return {kept.table: kept for kept in upkeep.tables({"east": []}, published=[], plan=False)}

    def log(self) -> list[str]:
        return sorted(path.name for path in Path(self.path, "_delta_log").glob("*.json"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("mirrorlake.maintenance.maintain._CHECKPOINT_AFTER", 1)
    return World(tmp_path)


def grow_old(world: World) -> None:
    """Make everything in the relay as old as if it had been written an hour and a day ago."""
    past = time.time() - 90_000
    for path in (*Path(world.path).glob("*.parquet"), *Path(world.path, "_delta_log").iterdir()):
        os.utime(path, (past, past))


@pytest.mark.law("F")
def test_law_f_a_cleaned_log_keeps_the_fence_the_newest_signature_and_every_reader(world: World) -> None:
    world.land_some(FANOUT, read_to={})
    log = RelayLog(world.tables, world.path)
    held = log.files({})
    kept = world.keep()["relay of east"]
    assert (kept.compacted.into, kept.log_checkpoint, kept.why_not) == (1, True, "")
    grow_old(world)
    world.land_some(2, read_to={})
    world.keep()
    assert len(world.log()) > FANOUT, "no commit that stays would say all that was read"
    world.land_some(1, read_to={}, as_of=1)
    world.keep()
    assert len(world.log()) < FANOUT, "old commits are deleted"
    assert [file.first_offset for file in log.new_files({})] != [], "a reader whose commits were cleaned lists again"
    assert all(Path(file.uri.removeprefix("file://")).exists() for file in held), "and what it held is there"
    newest = [
        LandingCommit.from_document(commit.signature)
        for commit in world.lake.commits(world.lake.relay_location("east"))
    ]
    assert LandingCommit(1, FANOUT + 3, "owner", LANDED_AT, {}, 1) in newest
    fresh = FolderTables()
    fresh.commit(world.path, [], app_id=APP, version=FANOUT, signature="zombie")
    assert "zombie" not in str(fresh.history(world.path, 5)), "an older lander is still refused"
    assert DeltaTable(world.path).to_pyarrow_table().num_rows == FANOUT + 3


@pytest.mark.law("F")
def test_law_f_a_writer_that_slept_over_a_cleaned_log_commits_after_what_came_meanwhile(world: World) -> None:
    asleep = FolderTables()
    asleep.version(world.path)
    world.land_some(FANOUT)
    world.keep()
    grow_old(world)
    world.land_some()
    world.keep()
    assert f"{1:020}.json" not in world.log(), "the number after the one that the writer knows is free again"
    files = written(world.path, rows("orders", 0, 900))
    asleep.commit(world.path, files, app_id=APP, version=900, signature="{}")
    held = DeltaTable(world.path).to_pyarrow_table()["offset"].to_pylist()
    assert sorted(held) == [*range(1, FANOUT + 2), 900]


def test_the_log_of_a_source_that_has_fallen_silent_stays(world: World) -> None:
    world.land_some(2)
    world.keep()
    grow_old(world)
    world.keep(after=timedelta(days=2))
    assert f"{2:020}.json" in world.log(), "it says how far landing is"


@pytest.mark.law("E")
def test_law_e_only_what_was_removed_long_ago_or_never_committed_is_deleted(world: World) -> None:
    world.land_some(FANOUT)
    world.keep()
    assert len(list(Path(world.path).glob("*.parquet"))) == FANOUT + 1
    grow_old(world)
    [orphan], [about_to_commit] = (written(world.path, rows("orders", 0, offset)) for offset in (900, 901))
    os.utime(Path(world.path, orphan.path), (time.time() - 90_000,) * 2)
    assert world.keep()["relay of east"].deleted == 1, "removed a moment ago: readers may hold them"
    assert not Path(world.path, orphan.path).exists()
    assert Path(world.path, about_to_commit.path).exists()
    world.tables.commit(world.path, [about_to_commit], app_id=APP, version=901, signature="{}")
    assert DeltaTable(world.path).to_pyarrow_table().num_rows == FANOUT + 1


def run_row(first: int) -> Row:
    more = {"ledger_seq": first, "committed_at": LANDED_AT + timedelta(microseconds=first)}
    more |= {"holes": [{"first": 1, "length": 2}] if first % 2 else [], "target_topic_id": "id" if first > 4 else None}
    return map_row([first], first, "orders", first % 3, **more)


@pytest.mark.law("A", "F")
def test_law_a_look_ups_in_a_rewritten_offset_map_stay_exact_and_its_fence_holds(world: World) -> None:
    place = world.lake.meta_location(OFFSET_MAP)
    for first in range(FANOUT):
        world.lake.append(OFFSET_MAP, [run_row(first)], app_id="ledger", version=first)
    before = sorted(DeltaTable(place).to_pyarrow_table().to_pylist(), key=lambda row: row["first_upstream"])
    kept = world.keep()["offset_map"]
    assert (kept.compacted.files, kept.files, kept.why_not) == (FANOUT, 1, "")
    after = DeltaTable(place).to_pyarrow_table().to_pylist()
    assert sorted(after, key=lambda row: row["first_upstream"]) == before
    asked = "SELECT first_downstream FROM {offset_map} WHERE source_partition = 1 AND first_upstream = :offset"
    assert [row.first_downstream for row in world.lake.query(asked, offset=7)] == [7]
    world.lake.append(OFFSET_MAP, [run_row(99)], app_id="ledger", version=FANOUT - 1)
    assert len(DeltaTable(place).file_uris()) == 1, "a zombie's append is refused"


def test_a_table_that_cannot_be_kept_is_named_and_the_others_are_kept(world: World) -> None:
    bad = {"table_name": "sales", "key": b"k", "value": b"v" * 1000}
    for number in range(FANOUT):
        world.add("samples", name=str(number), observed_at=LANDED_AT)
        world.add("bad_records", offset=number, **bad)
    world.land_some(FANOUT)
    min(Path(world.path).glob("*.parquet")).unlink()
    kept = world.keep()
    assert kept["relay of east"].why_not
    assert (kept["samples"].compacted.into, kept["bad_records"].compacted.into) == (1, 1)
    held = DeltaTable(world.location("bad_records")).to_pyarrow_table().to_pylist()
    assert sorted(row["offset"] for row in held) == [*range(FANOUT)]
    assert all(row.items() >= bad.items() for row in held), "bytes are what they were"
    [greatest] = DeltaTable(world.location("samples")).get_add_actions(flatten=True)["max.observed_at"]
    assert greatest.as_py() >= LANDED_AT
    asked = "SELECT count(*) AS rows FROM {samples} WHERE observed_at >= :since"
    assert world.lake.query(asked, since=LANDED_AT)[0].rows == FANOUT, "times in statistics are cut to milliseconds"
