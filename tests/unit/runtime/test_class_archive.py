from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.runtime import Java, class_data


def test_an_archive_is_made_by_a_jvm_that_ends_and_used_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))
    java = Java(executable=tmp_path / "java", home=tmp_path / "home", version=17, bundled=False)
    jar, modules = tmp_path / "a.jar", java.home / "lib" / "modules"
    modules.parent.mkdir(parents=True)
    modules.write_bytes(b"1")
    jar.write_bytes(b"1")
    java.executable.touch(mode=0o755)
    java.executable.write_text("#!/bin/sh\nexit 1\n")
    assert class_data("broker", java, [jar]) == [], "it would not start"
    java.executable.write_text("#!/bin/sh\n")

    [made, _] = class_data("broker", java, [jar])
    option, archive = made.split("=")
    assert option == "-XX:ArchiveClassesAtExit"
    Path(archive).write_bytes(bytes(100))
    assert class_data("broker", java, [jar])[0] == made, "its JVM was killed: the next one makes it"
    Path(archive).write_bytes(b"head" + bytes(100))
    assert class_data("broker", java, [jar])[0] == f"-XX:SharedArchiveFile={archive}"
    jar.write_bytes(b"22")
    assert class_data("broker", java, [jar])[0] != f"-XX:SharedArchiveFile={archive}", "other jars"
    jar.unlink()
    assert class_data("broker", java, [jar]) == [], "what cannot be made stops nobody"
