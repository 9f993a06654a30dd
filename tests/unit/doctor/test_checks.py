"""What is wrong with settings, a machine or a lake in a folder is found before a cluster is asked, and without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrorlake.doctor import machine_checks
from mirrorlake.lake import RELAY, FolderTables, Lake
from mirrorlake.runtime import cache_directory, inspect_jars
from tests.unit.doctor.kit import bad, context_of, settings

SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "mirror"}


def test_references_that_this_user_cannot_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(east={"client": {**SCRAM, "sasl.password": "${env:NO_SUCH_PASSWORD}"}})
    given["tracking"] = {"uri": "${env:NO_SUCH_URI}"}
    uri, password = bad(tmp_path, "settings.references", given=given)[::-1]
    assert password[:2] == ("failure", "clusters.east.client.sasl.password")
    assert "NO_SUCH_PASSWORD (not set)" in password[2]
    assert uri[:2] == ("warning", "tracking.uri")
    monkeypatch.setenv("NO_SUCH_PASSWORD", "x")
    monkeypatch.setenv("NO_SUCH_URI", "file:///runs")
    assert bad(tmp_path, "settings.references", given=given) == []


def test_java_spark_and_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(machine_checks, "version", lambda _: "4.1.1")
    [(severity, _, detail)] = bad(tmp_path, "spark.version")
    assert (severity, "loads Delta and the Kafka connector for 4.0" in detail) == ("warning", True)
    monkeypatch.setattr(machine_checks, "version", lambda _: "3.5.8")
    assert bad(tmp_path, "spark.version") == [("failure", "machine", "PySpark 3.5.8 is outside 4.0 to 4.2")]
    monkeypatch.setattr(machine_checks, "find_spec", lambda _: None)
    assert "not installed" in bad(tmp_path, "spark.version")[0][2]
    assert bad(tmp_path, "spark.jars") == [], "they come with the first start"
    folder, _ = inspect_jars("spark")
    folder.mkdir(parents=True)
    (folder / "kafka-clients-3.9.0.jar").write_bytes(b"half of i")
    [(_, _, detail)] = bad(tmp_path, "spark.jars")
    assert "kafka-clients-3.9.0.jar is not the one that was tested" in detail
    assert str(cache_directory()) in detail
    for where in ("JAVA_HOME", "PATH"):
        monkeypatch.setenv(where, str(tmp_path / "nowhere"))
    monkeypatch.setattr("mirrorlake.runtime.java._bundled", lambda: None)
    assert "no Java 17 or 21 was found" in bad(tmp_path, "java")[0][2]
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert bad(tmp_path, "java", "spark") == [], "the platform brings its own"


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def disk(free: int, files: int) -> list[tuple[str, str, str]]:
        def statvfs(path: Path) -> object:
            size = real(path).f_frsize
            return SimpleNamespace(f_bavail=free // size, f_frsize=size, f_files=1, f_favail=files)

        monkeypatch.setattr(os, "statvfs", statvfs)
        return bad(tmp_path, "disk.free")

    assert disk(3 * 10**9, 10**6)[0][:2] == ("warning", "lake")
    assert {one[0] for one in disk(10**8, 10**6)} == {"failure"}
    assert "room for 9 files only" in disk(10**11, 9)[0][2]
    assert disk(10**11, 10**6) == []


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").write_text("a file")
    _, subject, detail = bad(tmp_path, "folders.writable")[0]
    assert (subject, "is a file" in detail) == ("lake", True)
    (tmp_path / "lake").unlink()
    log = tmp_path / "lake" / "relay" / "east" / "_delta_log"
    log.mkdir(parents=True)
    assert bad(tmp_path, "folders.writable") == []
    real = os.access
    # Root may write everything, so the tests cannot take it away.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != log and real(path, mode))
    [(_, subject, detail)] = bad(tmp_path, "folders.writable")
    assert (subject, str(log) in detail) == ("lake", True)


@pytest.mark.law("A")
def test_groups_that_cannot_be_kept_in_step(tmp_path: Path) -> None:
    both = {"topics": "orders", "policy": "identity"}
    flows = [{"source": "east", "target": "west", **both}, {"source": "west", "target": "east", **both}]
    assert bad(tmp_path, "groups.held-back", given=settings(flows=flows)) == []
    flows[0]["delivery"] = "at_least_once"
    severity, subject, detail = bad(tmp_path, "groups.held-back", given=settings(flows=flows))[0]
    assert (severity, subject, "delivers at least once" in detail) == ("warning", "east->west", True)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    FolderTables().create(str(tmp_path / "lake" / "relay" / "east"), RELAY)
    return context_of(tmp_path).lake


def test_properties_that_cost_exactness(lake: Lake, tmp_path: Path) -> None:
    assert bad(tmp_path, "lake") == []
    lake.set_properties(
        lake.relay_location("east"),
        {"delta.autoOptimize.autoCompact": "true", "delta.setTransactionRetentionDuration": "interval 1 days"},
    )
    changed, forgets = (detail for _, _, detail in bad(tmp_path, "lake.properties"))
    assert "delta.autoOptimize.autoCompact=true" in changed
    assert "a batch may be landed twice" in forgets


def test_a_log_that_is_broken_and_tables_that_cannot_be_read(lake: Lake, tmp_path: Path) -> None:
    for commit in Path(lake.relay_location("east"), "_delta_log").glob("*.json"):
        commit.write_text("not a commit")
    [(*_, unread), (severity, subject, detail)] = bad(tmp_path, "lake.whole")
    assert (severity, subject, "its log has" in detail) == ("warning", "relay of east", True)
    assert "cannot be looked at" in unread, "what was found before it is told, too"
    [(severity, subject, detail)] = bad(tmp_path, "lake.properties")
    assert (severity, subject, "cannot be looked at" in detail) == ("failure", "east", True)
