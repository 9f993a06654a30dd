from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path

import pytest

from mirrorlake.runtime import Java, class_data


class Maker:
    """A command in Java's place: it writes what it is given down, and the archive where it `works`."""

    def __init__(self, folder: Path, *, works: bool = True) -> None:
        self.calls = folder / "calls"
        self.cache = folder / "cache" / "class-data"
        self.java = Java(executable=folder / "java", home=folder / "home", version=17, bundled=False)
        self.jar = folder / "a.jar"
        (self.java.home / "lib").mkdir(parents=True)
        (self.java.home / "lib" / "modules").write_bytes(b"1")
        self.jar.write_bytes(b"1")
        end = 'echo data > "${3#-XX:SharedArchiveFile=}"' if works else "exit 1"
        self.script = f'echo "$@" >> {self.calls}; {end}'

    def ask(self) -> list[str]:
        return class_data("broker", self.java, [self.jar], self._command)

    def _command(self, options: Sequence[str]) -> list[str]:
        return ["/bin/sh", "-c", self.script, "java", *options]

    def wait(self) -> None:
        """Wait for the end of what was begun: it holds its lock until then."""
        for lock in self.cache.glob("*.lock"):
            with lock.open("a") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX)

    def lines(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))


def test_an_archive_is_made_once_in_the_background_and_used_from_then_on(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    assert maker.ask() == []
    maker.wait()
    used = maker.ask()
    [archive] = maker.cache.glob("*.jsa")
    assert used == [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
    assert len(maker.lines()) == 1
    assert maker.lines()[0].split()[0] == "-Xshare:dump"
    # What it was made of is gone, but for its lock.
    assert {path.suffix for path in maker.cache.iterdir()} == {".jsa", ".lock"}


def test_what_cannot_be_made_is_not_tried_again_and_stops_nobody(tmp_path: Path) -> None:
    maker = Maker(tmp_path, works=False)
    for _ in range(3):
        assert maker.ask() == []
        maker.wait()
    assert len(maker.lines()) == 1
