"""The version of a lake: kept, looked at before anything else, refused where it is newer, and brought up to date by a plan."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.errors import SafetyError
from mirrorlake.lake import (
    GAPS,
    SIDE_TABLES,
    WITHHELD,
    Control,
    FolderTables,
    Lake,
    RelayPart,
    StreamSign,
    flow_sign,
    lake_changes,
    migrate,
)
from mirrorlake.lake import lake as lake_module
from mirrorlake.lake import version as version_module
from mirrorlake.lake.made_tables import MadeTables
from mirrorlake.lake.schema import PROOFS
from mirrorlake.lake.version import VERSION_PROPERTY, Migration
from mirrorlake.mirror.control_watch import ControlWatch
from tests.commands import run_cli, write_conf
from tests.lakes import lake_in

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


def lake_at(folder: Path) -> Lake:
    return lake_in(folder, sees_all=lambda: True)


def old_lake(folder: Path) -> Lake:
    """Make a lake as release 0.1.0 does, which kept no version."""
    return lake_in(folder, *SIDE_TABLES, relays=["east"], sees_all=lambda: True)


def set_version(lake: Lake, text: str) -> None:
    FolderTables().set_properties(lake.meta_location(GAPS), {VERSION_PROPERTY: text})


READS: dict[str, Callable[[Lake], Any]] = {
    "ask": lambda lake: lake.query_rows("SELECT * FROM {proofs}"),
    "exists": lambda lake: lake.exists(lake.relay_location("east")),
    "missing": lambda lake: lake.missing(["east"]),
    "create_all": lambda lake: lake.create_all(["east"]),
    "relay": lambda lake: lake.query_rows("SELECT * FROM {relay}", relay="east", part=RelayPart({})),
    "relay_log": lambda lake: lake.relay_log("east"),
    "upkeep": lambda lake: lake.open_maintenance(lake.relay_location("east")),
    "commits": lambda lake: lake.commits(lake.relay_location("east")),
    "append_rows": lambda lake: lake.append_rows(PROOFS, [{"verification": "x"}]),
    "set_properties": lambda lake: lake.set_properties(lake.relay_location("east"), {"a": "b"}),
    "size": lambda lake: lake.size(lake.relay_location("east")),
}


@pytest.mark.parametrize("version", ["2", "1.5", "later"])
@pytest.mark.parametrize("what", READS)
def test_a_newer_lake_is_refused_before_anything_is_read_or_written(tmp_path: Path, what: str, version: str) -> None:
    made = old_lake(tmp_path)
    READS[what](made)
    set_version(made, version)
    for _ in range(2):
        lake = lake_at(tmp_path)
        with pytest.raises(
            SafetyError, match=f"has version {version}, but this release knows versions up to 1 only"
        ) as found:
            READS[what](lake)
        with pytest.raises(SafetyError):
            READS[what](lake)
    assert "docs/upgrades.md" in str(found.value)


@pytest.mark.parametrize(
    "command", [["pause", "--flow", "east->central"], ["lag"], ["resume", "--flow", "east->central"]]
)
def test_a_command_on_a_newer_lake_ends_with_exit_3_cause_and_remedy(tmp_path: Path, command: list[str]) -> None:
    clusters = {"east": "127.0.0.1:1", "central": "127.0.0.1:2"}
    flow = {"source": "east", "target": "central", "topics": "orders"}
    conf = write_conf(tmp_path, clusters, [flow])
    set_version(old_lake(tmp_path / "lake"), "7")
    done = run_cli(*command, "--conf", str(conf), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["error"], document["exit_code"]) == (3, "SafetyError", 3)
    assert "version 7" in document["cause"]
    assert document["consequence"]
    assert "pip install" in document["remedy"]


@pytest.mark.law("G")
def test_law_g_an_old_lake_goes_on_and_gets_its_version_by_a_plan_once(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    assert lake.query_rows("SELECT * FROM {proofs}") == []
    assert lake.create_all(["east"]) == [], "no step is needed: it goes on by itself"
    [change] = lake_changes(lake)
    assert (change.where, change.action, change.after) == ("lake", "record_version", 1)
    # Beside a mirror that lands, too: nothing else changes.
    StreamSign(lake, "east", now_ms=lambda: int(NOW.timestamp() * 1000)).write()
    migrate(lake, now=NOW)
    assert lake_changes(lake) == []
    before = lake.version(lake.meta_location(GAPS))
    migrate(lake, now=NOW)
    assert lake.version(lake.meta_location(GAPS)) == before, "law G: applied twice"
    assert lake_changes(lake_at(tmp_path / "elsewhere")) == [], "there is none yet"


def test_a_table_that_an_older_release_did_not_make_holds_nothing_yet(tmp_path: Path) -> None:
    lake = lake_in(tmp_path, GAPS, PROOFS, sees_all=lambda: True)
    text = "SELECT count(*) AS n FROM {gaps} AS g LEFT JOIN {withheld} AS w ON g.topic = w.topic"
    assert [row.n for row in lake.query_rows(text)] == [0]
    assert lake.query_rows("SELECT * FROM {removed}", missing_ok=True) == []
    FolderTables().create(lake.meta_location(WITHHELD), WITHHELD)
    lake.append_rows(WITHHELD, [{"topic": "orders"}])
    assert [row.topic for row in lake.query_rows("SELECT topic FROM {withheld}")] == ["orders"], "made meanwhile"


@pytest.mark.law("G")
def test_a_table_that_was_removed_by_hand_is_named_until_a_plan_forgets_it(tmp_path: Path) -> None:
    lake = old_lake(tmp_path)
    shutil.rmtree(lake.meta_location(PROOFS))
    assert lake.query_rows("SELECT * FROM {proofs}") == []
    assert lake.removed_tables() == (), "it may have come after the release that made this lake"
    lake.create_all(["east"])
    assert lake_at(tmp_path).removed_tables() == ()

    shutil.rmtree(lake.meta_location(PROOFS))
    assert lake.query_rows("SELECT * FROM {proofs}", missing_ok=True) == []
    assert lake.removed_tables() == ("proofs",)
    other = lake_at(tmp_path)
    assert other.removed_tables(other.missing(["east"]).values()) == ("proofs",)
    other.create_all(["east"])
    assert lake.removed_tables() == ("proofs",), "a stream made it again, empty"
    changes = {change.action: change.before for change in lake_changes(lake_at(tmp_path))}
    assert changes["forget_removed"] == "proofs"
    migrate(other, now=NOW)
    assert (lake.removed_tables(), lake_changes(lake)) == ((), [])

    shutil.rmtree(lake.meta_location(WITHHELD))
    other.create_all(["east"], is_shown=True)
    assert lake_changes(lake_at(tmp_path)) == [], "law G: apply made what its plan showed"


@pytest.mark.law("F")
def test_law_f_who_starts_beside_another_leaves_its_note_of_a_removed_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = old_lake(tmp_path), lake_at(tmp_path)
    for _ in range(2):
        lake.create_all(["east"])
        shutil.rmtree(lake.meta_location(PROOFS), ignore_errors=True)
    look = lake._made_tables

    def slow() -> MadeTables:
        monkeypatch.undo()
        found = look()
        other.create_all(["east"])
        return found

    monkeypatch.setattr(lake, "_made_tables", slow)
    lake.create_all(["east"])
    assert lake_at(tmp_path).removed_tables() == ("proofs",)
    version = lake.version(lake.meta_location(GAPS))
    lake.create_all(["east"])
    assert lake.version(lake.meta_location(GAPS)) == version, "no commit without news"


def test_status_names_removed_tables_while_other_threads_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = old_lake(tmp_path)
    for table in (PROOFS, WITHHELD):
        shutil.rmtree(lake.meta_location(table))
    assert lake.query_rows("SELECT * FROM {proofs}") == []
    look = lake.exists

    def beside(location: str) -> bool:
        monkeypatch.undo()
        assert lake.query_rows("SELECT * FROM {withheld}") == []
        return look(location)

    monkeypatch.setattr(lake, "exists", beside)
    assert lake.removed_tables() == ()


@pytest.mark.law("F", "G")
def test_law_g_steps_are_planned_and_needed_and_taken_with_nobody_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def break_once(_: Lake) -> None:
        taken.append(3)
        if taken.count(3) == 1:
            raise OSError("killed")

    steps = (
        Migration(to=2, reason="rows get a column that must not be null", do=lambda _: taken.append(2)),
        Migration(to=3, reason="one table becomes two", do=break_once),
    )
    lake = old_lake(tmp_path)
    running = lake_at(tmp_path)
    running.query_rows("SELECT * FROM {proofs}")
    for module in (version_module, lake_module):
        monkeypatch.setattr(module, "MIGRATIONS", steps)
    monkeypatch.setattr(version_module, "LAKE_VERSION", 3)
    assert [(change.action, change.before, change.after) for change in lake_changes(lake)] == [
        ("migrate", 1, 2),
        ("migrate", 2, 3),
    ]
    assert lake.query_rows("SELECT * FROM {proofs}") == [], "questions are answered as before"
    with pytest.raises(SafetyError, match="mirrorlake apply"):
        lake.create_all(["east"])

    for beside in ("east", flow_sign("east->central")):
        StreamSign(lake, beside, now_ms=lambda: int(NOW.timestamp() * 1000)).write()
        with pytest.raises(SafetyError, match=rf"a mirror used the lake 5 s ago \({beside}\)"):
            migrate(lake, now=NOW + timedelta(seconds=5))
        # By a clock that is a year ahead: no wait makes it old, so the person hears what does.
        StreamSign(lake, beside, now_ms=lambda: int((NOW + timedelta(days=365)).timestamp() * 1000)).write()
        with pytest.raises(SafetyError, match=rf"dated 31535995 s in the future \({beside}\)") as ahead:
            migrate(lake, now=NOW + timedelta(seconds=5))
        assert f"signs/{beside}, then mirrorlake apply" in ahead.value.remedy
        StreamSign(lake, beside, now_ms=lambda: 1).write()
    assert taken == []
    later = NOW + timedelta(minutes=2)
    with pytest.raises(OSError, match="killed"):
        migrate(lake, now=later)
    assert [change.after for change in lake_changes(lake)] == [3], "law F: what was done stands"
    migrate(lake, now=later)
    assert (taken, lake_changes(lake)) == ([2, 3, 3], [])
    assert lake.create_all(["east"]) == []

    # A mirror of the older release that runs looks every few seconds, ends, and writes nothing more.
    monkeypatch.setattr(version_module, "LAKE_VERSION", 1)
    control = Control(running, now=lambda: NOW)
    watch = ControlWatch(SimpleNamespace(control=lambda: control))  # type: ignore[arg-type]
    with pytest.raises(SafetyError, match="has version 3"):
        watch.look()
    with pytest.raises(SafetyError, match="has version 3"):
        running.append_rows(PROOFS, [{"verification": "x"}])
