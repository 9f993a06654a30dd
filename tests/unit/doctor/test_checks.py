"""What is wrong with settings, a machine or a lake in a folder is found before a cluster is asked, and without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrorlake.doctor import machine_checks
from mirrorlake.lake import RELAY, FolderTables, Lake
from mirrorlake.runtime import cache_directory, inspect_jars
from tests.unit.doctor.kit import bad, context_of, examined, settings

SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "mirror"}


def test_references_that_this_user_cannot_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(east={"client": {**SCRAM, "sasl.password": "${env:NO_SUCH_PASSWORD}"}})
    [(place, detail)] = bad(tmp_path, "settings.references", given=given)
    assert place == "clusters.east.client.sasl.password"
    assert "NO_SUCH_PASSWORD (not set)" in detail
    monkeypatch.setenv("NO_SUCH_PASSWORD", "x")
    assert bad(tmp_path, "settings.references", given=given) == []


def test_java_spark_and_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machine_checks, "version", lambda _: "4.1.1")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    [(_, detail)] = bad(tmp_path, "spark.version")
    assert "loads Delta and the Kafka connector for 4.0" in detail
    monkeypatch.setattr(machine_checks, "version", lambda _: "3.5.8")
    assert bad(tmp_path, "spark.version") == [("machine", "PySpark 3.5.8 is outside 4.0 to 4.2")]
    monkeypatch.setattr(machine_checks, "find_spec", lambda _: None)
    assert "not installed" in bad(tmp_path, "spark.version")[0][1]
    assert bad(tmp_path, "spark.jars") == [], "they come with the first start"
    folder, _ = inspect_jars("spark")
    folder.mkdir(parents=True)
    (folder / "kafka-clients-3.9.0.jar").write_bytes(b"half of i")
    [(_, detail)] = bad(tmp_path, "spark.jars")
    assert "kafka-clients-3.9.0.jar is not the one that was tested" in detail
    assert str(cache_directory()) in detail


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("JAVA_HOME", "PATH"):
        monkeypatch.setenv(where, str(tmp_path / "nowhere"))
    monkeypatch.setattr("mirrorlake.runtime.java._bundled", lambda: None)
    [(_, detail)] = bad(tmp_path, "java")
    assert "no Java 17 or 21 was found" in detail


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"bytes": 3 * 10**9, "files": 10**6}
    real = os.statvfs

    def statvfs(path: Path) -> object:
        held = real(path)
        return SimpleNamespace(
            f_bavail=free["bytes"] // held.f_frsize, f_frsize=held.f_frsize, f_files=1, f_favail=free["files"]
        )

    monkeypatch.setattr(os, "statvfs", statvfs)
    [first, *_] = examined(tmp_path, only=["disk.free"]).bad
    assert (first.severity, first.subject) == ("warning", "lake")
    free["bytes"] = 10**8
    assert {one.severity for one in examined(tmp_path, only=["disk.free"]).bad} == {"failure"}
    free.update(bytes=10**11, files=9)
    assert "room for 9 files only" in bad(tmp_path, "disk.free")[0][1]
    free["files"] = 10**6
    assert bad(tmp_path, "disk.free") == []


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").write_text("a file")
    assert bad(tmp_path, "folders.writable")[0][0] == "lake"
    (tmp_path / "lake").unlink()
    log = tmp_path / "lake" / "relay" / "east" / "_delta_log"
    log.mkdir(parents=True)
    assert bad(tmp_path, "folders.writable") == []
    real = os.access
    # Root may write everything, so the tests cannot take it away.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != log and real(path, mode))
    [(subject, detail)] = bad(tmp_path, "folders.writable")
    assert (subject, str(log) in detail) == ("lake", True)


@pytest.mark.law("A")
def test_groups_that_cannot_be_kept_in_step(tmp_path: Path) -> None:
    both = {"topics": "orders", "policy": "identity"}
    flows = [{"source": "east", "target": "west", **both}, {"source": "west", "target": "east", **both}]
    assert bad(tmp_path, "groups.held-back", given=settings(flows=flows)) == []
    flows[0]["delivery"] = "at_least_once"
    found = bad(tmp_path, "groups.held-back", given=settings(flows=flows))
    assert "delivers at least once" in dict(found)["east->west"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    FolderTables().create(str(tmp_path / "lake" / "relay" / "east"), RELAY)
    return context_of(tmp_path).lake


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
