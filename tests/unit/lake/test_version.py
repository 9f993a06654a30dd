"""The version of a lake: looked at before anything else, and refused where it is another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import SafetyError
from mirrorlake.lake import GAPS, FolderTables, Lake, RelayPart
from mirrorlake.lake.schema import PROOFS
from mirrorlake.lake.version import VERSION_PROPERTY
from tests.kit.commands import run_cli
from tests.kit.lake import LakeBuilder


def set_version(lake: Lake, text: str) -> None:
    FolderTables().set_properties(lake.meta_location(GAPS), {VERSION_PROPERTY: text})


READS: dict[str, Callable[[Lake], Any]] = {
    "ask": lambda lake: lake.query("SELECT * FROM {proofs}"),
    "exists": lambda lake: lake.exists(lake.relay_location("east")),
    "missing": lambda lake: lake.missing(["east"]),
    "create_all": lambda lake: lake.create_all(["east"]),
    "relay": lambda lake: lake.query("SELECT * FROM {relay}", relay="east", part=RelayPart({})),
    "relay_log": lambda lake: lake.relay_log("east"),
    "upkeep": lambda lake: lake.open_maintenance(lake.relay_location("east")),
    "commits": lambda lake: list(lake.commits(lake.relay_location("east"))),
    "append": lambda lake: lake.append(PROOFS, [{"verification": "x"}]),
    "set_properties": lambda lake: lake.set_properties(lake.relay_location("east"), {"a": "b"}),
    "size": lambda lake: lake.size(lake.relay_location("east")),
}


@pytest.mark.parametrize("version", ["3", "later"])
@pytest.mark.parametrize("what", READS)
def test_a_lake_of_another_release_is_refused_before_anything_is_read_or_written(
    built: LakeBuilder, what: str, version: str
) -> None:
    READS[what](built.lake)
    set_version(built.lake, version)
    for _ in range(2):
        lake = built.mirror().lake
        with pytest.raises(SafetyError, match=f"its version is {version}, and this release reads only 4") as found:
            READS[what](lake)
        with pytest.raises(SafetyError):
            READS[what](lake)
    assert "docs/upgrades.md" in str(found.value)


def test_an_old_lake_which_kept_no_version_is_never_read_as_empty(built: LakeBuilder) -> None:
    [commit] = Path(built.location("gaps"), "_delta_log").glob("*.json")
    commit.write_text(commit.read_text().replace(VERSION_PROPERTY, "another"))
    with pytest.raises(SafetyError, match="its version is none"):
        built.mirror().lake.query("SELECT * FROM {gaps}")


@pytest.mark.parametrize(
    "command", [["pause", "--flow", "east->central"], ["lag"], ["resume", "--flow", "east->central"]]
)
def test_a_command_on_a_lake_of_another_release_ends_with_exit_3_cause_and_remedy(
    built: LakeBuilder, command: list[str]
) -> None:
    set_version(built.lake, "7")
    done = run_cli(*command, "--conf", str(built.folder / "mirror.yml"), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["error"], document["exit_code"]) == (3, "SafetyError", 3)
    assert "its version is 7" in document["cause"]
    assert document["consequence"]
    assert "docs/upgrades.md" in document["remedy"]


def test_a_table_that_was_not_made_holds_nothing_yet(built: LakeBuilder) -> None:
    lake = built.mirror().lake
    for table in ("proofs", "removed"):
        shutil.rmtree(built.location(table))
    text = "SELECT count(*) AS n FROM {gaps} AS g LEFT JOIN {proofs} AS p ON g.topic = p.topic"
    assert [row.n for row in lake.query(text)] == [0]
    assert lake.query("SELECT * FROM {removed}", missing_ok=True) == []
    FolderTables().create(lake.meta_location(PROOFS), PROOFS)
    lake.append(PROOFS, [{"topic": "orders"}])
    assert [row.topic for row in lake.query("SELECT topic FROM {proofs}")] == ["orders"], "made meanwhile"
