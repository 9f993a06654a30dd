"""Tables in a folder of this machine."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import GAPS, HEARTBEATS, OFFSET_MAP, QUARANTINE
from mirrorlake.lake.table_schema import TableSchema

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def test_a_table_whose_folder_was_deleted_is_gone(tmp_path: Path) -> None:
    tables, place = FolderTables(), str(tmp_path / "heartbeats")
    rows = arrow_table(HEARTBEATS, [{"flow": "a->b", "observed_at": NOON}])
    tables.create(place, HEARTBEATS)
    for _ in range(3):
        tables.append(place, rows)
    assert (tables.has(place), tables.version(place)) == (True, 3)
    shutil.rmtree(place)
    assert not tables.has(place)
    tables.create(place, HEARTBEATS)
    assert (tables.has(place), tables.version(place)) == (True, 0), "the new table, not the one that was open"


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
    place = str(tmp_path / "heartbeats")
    for _ in range(2):
        FolderTables().create(place, HEARTBEATS)
    assert met == [place]
    assert FolderTables().version(place) == 0


def no_session() -> Any:
    raise AssertionError("nothing that only Spark could read is written")


@pytest.mark.law("F")
@pytest.mark.parametrize("table", [OFFSET_MAP, QUARANTINE], ids=lambda table: table.name)
def test_law_f_an_older_owner_is_fenced_without_a_session(table: TableSchema, tmp_path: Path) -> None:
    lake, tables = Lake(no_session, LakeConfig(root=str(tmp_path))), FolderTables()
    for one in (GAPS, table):
        tables.create(lake.meta_location(one), one)
    lake.fence(table, app_id="a->b", version=7)
    assert DeltaTable(lake.meta_location(table)).transaction_version("a->b") == 7
