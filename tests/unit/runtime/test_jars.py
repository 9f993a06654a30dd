"""Jar sets: what is asked for, what is accepted, and that it happens once."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from mirrorlake.errors import SandboxError, UsageError
from mirrorlake.runtime import classpath, jars
from mirrorlake.runtime import jar_files as jars_module
from mirrorlake.runtime.jar_files import JAR_SETS, expected_sums, sum_lines

GOOD = {"a-1.jar": b"alpha", "b-2.jar": b"beta"}


@pytest.fixture
def download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, bytes]], list[str]]:
    """Replace Ivy by files that are just there, and the checked-in sums by those of `GOOD`."""
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path))
    sums = {name: sha256(data).hexdigest() for name, data in GOOD.items()}
    monkeypatch.setattr(jars_module, "expected_sums", lambda _: sums)
    calls: list[str] = []

    def serve(files: dict[str, bytes]) -> list[str]:
        def resolve(set_name: str, directory: Path, *, say: Callable[[str], None]) -> None:
            calls.append(set_name)
            say(f"  {set_name}")
            directory.mkdir()
            for name, data in files.items():
                (directory / name).write_bytes(data)

        monkeypatch.setattr(jars_module, "resolve", resolve)
        return calls

    return serve


@pytest.mark.parametrize("set_name", JAR_SETS)
def test_every_set_has_sums_for_what_it_asks_for(set_name: str) -> None:
    sums = expected_sums(set_name)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums.values())
    for coordinate in JAR_SETS[set_name].coordinates:
        _, artifact, version, *other = coordinate.split(":")
        assert (f"{artifact}-{version}-{other[0].replace('@', '.')}" if other else f"{artifact}-{version}.jar") in sums
    checked_in = Path(jars_module.__file__).with_name(f"{set_name}.sha256").read_text()
    assert checked_in == sum_lines(sums), "the file is sorted and has one form"


def test_jars_are_downloaded_once_and_shown_once_also_for_many_at_once(
    download: Callable[[dict[str, bytes]], list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    calls = download(GOOD)
    with ThreadPoolExecutor(8) as pool:
        found, *others = pool.map(jars, ["broker"] * 8)
    assert others == [found] * 7
    assert [path.name for path in found] == sorted(GOOD)
    assert all(path.is_relative_to(tmp_path / "jars" / "broker") for path in found)
    first = capsys.readouterr()
    assert first.err.count("downloading the 2 jars of 'broker'") == 1
    assert first.out == ""

    assert classpath("broker") == ":".join(map(str, found))
    assert calls == ["broker"]
    assert capsys.readouterr() == ("", "")


def test_altered_jars_are_refused_and_nothing_stays(
    download: Callable[[dict[str, bytes]], list[str]], tmp_path: Path
) -> None:
    download(GOOD | {"a-1.jar": b"altered"})
    with pytest.raises(SandboxError, match=re.escape("different: a-1.jar")):
        jars("broker")
    assert list((tmp_path / "jars" / "broker").iterdir()) == []


def test_an_unknown_set_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="broker, mm2, spark"):
        jars("brokers")
