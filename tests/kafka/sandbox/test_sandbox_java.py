"""The Java that comes as a wheel carries brokers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mirrorlake.sandbox import KafkaCluster, broker, find_java


@pytest.fixture
def no_java_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_java_installed")
def test_a_broker_runs_on_the_java_of_the_wheel(
    make_cluster: Callable[..., KafkaCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_java().bundled
    # It would be made for this one broker, for 11 CPU-s.
    monkeypatch.setattr(broker, "_archived", lambda _: [])
    own = make_cluster().start()
    assert Path(f"/proc/{own.pid}/exe").resolve() == find_java().executable.resolve()


@pytest.mark.usefixtures("no_java_installed")
def test_the_wrapper_for_spark_drops_the_module_that_the_wheel_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "a cache"))
    home = find_java().spark_java_home
    done = subprocess.run(
        [
            home / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "-Dtold=a b",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "told = a b" in done.stderr
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java().bundled, "a session that set JAVA_HOME to the wrapper still runs the wheel's Java"
    assert find_java().spark_java_home == home
