"""What is wrong with a lake in a folder is found without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.config import load
from mirrorlake.lake import RELAY, SAMPLES, FolderTables, Lake
from tests.lakes import no_session
from tests.unit.doctor.kit import bad, examined


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    FolderTables().create(str(tmp_path / "lake" / "relay" / "east"), RELAY)
    # Writes the settings.
    examined(tmp_path, only=["settings.file"])
    return Lake(no_session, load(tmp_path / "mirror.yml").lake, sees_all=lambda: True)


def test_a_lake_as_it_was_made_has_no_finding(lake: Lake, tmp_path: Path) -> None:
    lake.create_side_table(SAMPLES)
    found = examined(tmp_path, only=["lake"])
    assert found.bad == []
    assert {"lake.properties", "lake.tables", "lake.whole"} <= {one.check for one in found}


def test_properties_that_cost_exactness(lake: Lake, tmp_path: Path) -> None:
    lake.set_properties(
        lake.relay_location("east"),
        {"delta.autoOptimize.autoCompact": "true", "delta.setTransactionRetentionDuration": "interval 1 days"},
    )
    (_, changed), (_, forgets) = bad(tmp_path, "lake.properties")
    assert "delta.autoOptimize.autoCompact=true" in changed
    assert "a batch may be landed twice" in forgets


def test_tables_that_cannot_be_read(lake: Lake, tmp_path: Path) -> None:
    for commit in Path(lake.relay_location("east"), "_delta_log").glob("*.json"):
        commit.write_text("not a commit")
    found = examined(tmp_path, only=["lake.properties", "settings.references"])
    assert [one.check for one in found.bad] == ["lake.properties"]
    assert "cannot be looked at" in found.bad[0].detail
