"""What is wrong with a settings file or with a machine is found before a cluster is asked."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Gauge

from mirrorlake.doctor import machine_checks
from mirrorlake.metrics import MetricsServer
from mirrorlake.runtime import cache_directory, inspect_jars
from tests.unit.doctor.kit import bad, examined, settings

SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "mirror"}
LINE = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="{}";'


def with_client(**client: str) -> dict[str, object]:
    return settings(east={"client": {key.replace("_", "."): value for key, value in client.items()}})


@pytest.mark.parametrize(
    ("client", "found"),
    [
        ({**SCRAM, "sasl.password": "hunter2"}, True),
        ({**SCRAM, "sasl.password": "${env:EAST_PASSWORD:-hunter2}"}, True),
        ({**SCRAM, "sasl.password": "${secret:kafka/east}"}, False),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": LINE.format("hunter2"),
            },
            True,
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": LINE.format("${env:P}"),
            },
            False,
        ),
    ],
)
def test_a_secret_in_the_file_is_found_and_not_shown(client: dict[str, str], found: bool, tmp_path: Path) -> None:
    report = examined(tmp_path, only=["settings.secrets-plain"], given=settings(east={"client": client}))
    assert [one.check for one in report.bad] == ["settings.secrets-plain"] * found
    assert "hunter2" not in str(report)
    if found:
        assert "${env:EAST_" in report.bad[0].fix or "${env:EAST_PASSWORD}" in report.bad[0].fix


def test_settings_of_an_earlier_release_are_named_with_what_took_their_place(tmp_path: Path) -> None:
    assert bad(tmp_path, "settings.superseded") == []
    [(place, detail)] = bad(tmp_path, "settings.superseded", given=settings(east={"land": {"live": False}}))
    assert place == "clusters.east.land.live"
    assert "`execution: streaming` took its place" in detail


def test_who_may_write_or_read_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mirror.yml"
    assert bad(tmp_path, "settings.file-mode") == []
    file.chmod(0o644)
    assert bad(tmp_path, "settings.file-mode") == [], "no secret is in it"
    plain = settings(east={"client": {**SCRAM, "sasl.password": "hunter2"}})
    [(_, detail)] = bad(tmp_path, "settings.file-mode", given=plain)
    assert "others may read the secrets" in detail
    file.chmod(0o606)
    [(_, detail)] = bad(tmp_path, "settings.file-mode")
    assert "everybody may write it" in detail


def test_references_that_this_user_cannot_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(east={"client": {**SCRAM, "sasl.password": "${env:NO_SUCH_PASSWORD}"}})
    [(place, detail)] = bad(tmp_path, "settings.references", given=given)
    assert place == "clusters.east.client.sasl.password"
    assert "NO_SUCH_PASSWORD (not set)" in detail
    monkeypatch.setenv("NO_SUCH_PASSWORD", "x")
    assert bad(tmp_path, "settings.references", given=given) == []


def test_a_password_in_the_open(tmp_path: Path) -> None:
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "m",
        "sasl.password": "${env:P}",
    }
    away = {"client": client, "bootstrap_servers": "kafka.example:9092"}
    assert [place for place, _ in bad(tmp_path, "settings.plain-login", given=settings(east=away))] == ["clusters.east"]
    assert bad(tmp_path, "settings.plain-login", given=settings(east={"client": client})) == [], "this machine alone"


def test_java_spark_and_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machine_checks, "version", lambda _: "4.1.1")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    [(_, detail)] = bad(tmp_path, "spark.version")
    assert "loads Delta and the Kafka connector for 4.0" in detail
    monkeypatch.setattr(machine_checks, "version", lambda _: "3.5.8")
    assert bad(tmp_path, "spark.version") == [("PySpark", "3.5.8 is outside 4.0 to 4.2")]
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


def test_disks_memory_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    monkeypatch.setattr(machine_checks, "_container_memory", lambda: 2 * 10**9)
    assert bad(tmp_path, "memory") == [("memory", "2.0 GB in all; a run takes 3 GB")]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert bad(tmp_path, "limits.open-files") == [("open files", "at most 256 (hard limit 4096)")]


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


@pytest.fixture
def stranger() -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_the_port_of_the_metrics(stranger: int, tmp_path: Path) -> None:
    def found(port: int, *running: str) -> list[str]:
        given = settings(metrics={"port": port})
        return [detail for _, detail in bad(tmp_path, "metrics.port", given=given, running=running)]

    assert found(stranger) == [f"something else listens at 127.0.0.1:{stranger}"]
    registry = CollectorRegistry()
    Gauge("mirrorlake_something", "A figure", registry=registry)
    ours = MetricsServer(registry, port=0).start()
    port = ours.port
    assert found(port) == []
    ours.stop()
    assert found(port) == []
    assert found(port, "east->west") == [f"127.0.0.1:{port} connection refused, though a mirror runs here"]


def test_the_store_of_runs(stranger: int, tmp_path: Path) -> None:
    def found(**tracking: object) -> list[str]:
        return [detail for _, detail in bad(tmp_path, "tracking.store", given=settings(tracking=tracking))]

    assert found() == found(uri=f"http://127.0.0.1:{stranger}") == found(enabled=False) == []
    assert found(uri="http://127.0.0.1:1") == ["127.0.0.1:1 connection refused"]
