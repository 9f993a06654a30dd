"""What is wrong with a lake in a folder is found without Spark."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config import load, loads
from mirrorlake.context import utc_now
from mirrorlake.doctor import lake_checks
from mirrorlake.doctor.registry import CHECKS
from mirrorlake.lake import OFFSET_MAP, RELAY, SAMPLES, Control, FolderTables, Lake
from mirrorlake.lake.schema import CONTROL
from mirrorlake.topics import settings_in_force
from tests.lakes import Relay, no_session, rows
from tests.unit.doctor.kit import NOON, bad, examined, settings


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    FolderTables().create(str(tmp_path / "lake" / "relay" / "east"), RELAY)
    # Writes the settings.
    examined(tmp_path, only=["settings.file"])
    return Lake(no_session, load(tmp_path / "mirror.yml").lake, sees_all=lambda: True)


def test_a_lake_as_it_was_made_has_no_finding(lake: Lake, tmp_path: Path) -> None:
    lake.create_side_table(SAMPLES)
    found = examined(tmp_path, only=["lake", "flow.paused", "flow.parked", "settings.drift"])
    assert found.bad == []
    assert {"lake.properties", "lake.relay-files", "lake.log-files", "lake.checkpoint-location"} <= {
        one.check for one in found
    }


def test_requests_of_a_mirror_on_a_store_are_told(tmp_path: Path) -> None:
    def told(trigger: str) -> str:
        text = f"""
lake: {{root: s3a://b/lake, storage: {{region: r}}}}
sampling: {{every: 60s}}
clusters: {{east: {{bootstrap_servers: "e:1", land: {{trigger: {trigger}}}}}, central: {{bootstrap_servers: "c:1"}}}}
flows: [{{source: east, target: central, topics: orders, trigger: {trigger}}}]
"""
        config = loads(text)
        inputs: Any = SimpleNamespace(config=config, lake=Lake(no_session, config.lake), is_lake=lambda _: False)
        [seen] = CHECKS["lake.requests"].run(inputs)
        return str(seen.detail)

    idle, busy = told("0s").split("; ")
    # Two looks a second, each two requests; a mark each 30 s, two appends a minute, whether to land on each 2 s.
    assert idle.startswith("about 17 520 requests an hour while none come")
    # With records a copy of the ledger each 30 s, too: in a folder it comes each 5 s.
    assert busy.startswith("about 55 320 requests"), busy
    assert told("10s").startswith("about 2 400 requests")
    assert [one.detail for one in examined(tmp_path, only=["lake.requests"])] == [
        "not on an object store with settings"
    ]


def test_a_side_table_that_was_removed_by_hand(lake: Lake, tmp_path: Path) -> None:
    lake.create_all(["east"])
    assert bad(tmp_path, "lake.tables") == []
    shutil.rmtree(lake.meta_location(OFFSET_MAP))
    for _ in range(2):
        [(subject, detail)] = bad(tmp_path, "lake.tables")
        assert (subject, "was removed by hand" in detail) == ("offset_map", True)
        lake.create_all(["east"])


def test_properties_that_cost_exactness(lake: Lake, tmp_path: Path) -> None:
    lake.set_properties(
        lake.relay_location("east"),
        {"delta.autoOptimize.autoCompact": "true", "delta.setTransactionRetentionDuration": "interval 1 days"},
    )
    (_, changed), (_, forgets) = bad(tmp_path, "lake.properties")
    assert "delta.autoOptimize.autoCompact=true" in changed
    assert "a batch may be landed twice" in forgets


def test_small_files_and_a_long_log_that_maintenance_had_a_chance_to_meet(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, written = Relay(lake.relay_location("east")), utc_now()
    monkeypatch.setattr(lake_checks, "_MANY_FILES", 2)
    monkeypatch.setattr(lake_checks, "_MANY_COMMITS", 2)
    for number in range(3):
        relay.land(rows("orders", 0, number))
    checks = ("lake.relay-files", "lake.log-files")
    young = [written + age for age in (timedelta(0), timedelta(minutes=11))]
    assert [bad(tmp_path, *checks, now=time) for time in young] == [[], []]
    (_, files), (_, commits) = found = bad(tmp_path, *checks, now=written + timedelta(minutes=13))
    assert files.startswith("its relay has 3 files, ")
    assert commits == "4 commits after its last log checkpoint"
    never = settings(maintenance={"every": "0s"})
    assert bad(tmp_path, *checks, given=never) == found, "nothing will meet them by itself"


def test_samples_that_nobody_takes_any_more(lake: Lake, tmp_path: Path) -> None:
    lake.create_side_table(SAMPLES)
    assert bad(tmp_path, "lake.samples", running=["east->west"]) == []
    lake.append_rows(SAMPLES, [{"observed_at": NOON, "subject": "cluster", "name": "east"}])
    later = NOON + timedelta(hours=3)
    assert bad(tmp_path, "lake.samples", now=later) == [], "nothing runs that could look"
    [(_, detail)] = bad(tmp_path, "lake.samples", now=later, running=["east->west"])
    assert detail == "the newest is 3 h 0 min old, though the mirror runs here"
    assert "from the future" in bad(tmp_path, "lake.samples", now=NOON - timedelta(hours=1))[0][1]


def test_pauses_parked_streams_and_settings_that_are_not_in_force(lake: Lake, tmp_path: Path) -> None:
    control = Control(lake, now=lambda: NOON)
    config = load(tmp_path / "mirror.yml")
    settings_in_force.put_in_force(config, control)
    assert bad(tmp_path, "settings.drift", "flow") == []
    edited = settings()
    edited["flows"][0]["lanes"] = 4
    [(_, detail)] = bad(tmp_path, "settings.drift", given=edited)
    assert detail == "1 change of the file not in force (flow east->west)"
    settings_in_force.pause(control, settings_in_force.subject_of(config, flow="east->west"), reason="a release")
    [(subject, detail)] = bad(tmp_path, "flow.paused", now=NOON + timedelta(days=9))
    assert (subject, detail.endswith("9 d 0 h ago (a release)")) == ("flow east->west", True)
    said = {"error": "RecordTooLarge", "cause": "too large", "remedy": "raise it", "exit_code": 4}
    control.append("park", settings_in_force.Subject(kind="stream", name="east->west"), value=said)
    [finding] = examined(tmp_path, only=["flow.parked"]).bad
    assert (finding.severity, "mirrorlake resume" in finding.fix) == ("failure", True)


def test_tables_that_cannot_be_read(lake: Lake, tmp_path: Path) -> None:
    for table in (CONTROL, OFFSET_MAP):
        lake.create_side_table(table)
    for commit in Path(lake.meta_location(CONTROL), "_delta_log").glob("*.json"):
        commit.write_text("not a commit")
    found = examined(tmp_path, only=["flow.paused", "lake.properties"])
    assert [one.check for one in found.bad] == ["flow.paused"]
    assert "cannot be looked at" in found.bad[0].detail
