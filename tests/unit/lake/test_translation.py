"""A question is translated once for all processes, and again where what translates it has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mirrorlake.lake import translation

_TEXT = "SELECT unix_millis(max(observed_at)) AS at FROM {positions} WHERE topic = :topic"
_ASKED = """
import sys
from mirrorlake.lake.translation import in_duckdb
print(in_duckdb(sys.argv[1]))
print("sqlglot" in sys.modules)
"""
# Another thread asks while the first one's dialect is half made.
_ASKED_BY_TWO = """
import sys, threading
from sqlglot.dialects import dialect
from mirrorlake.lake.translation import in_duckdb
made, said = dialect.new_trie, []
second = threading.Thread(target=lambda: said.append(in_duckdb("SELECT 2 WHERE :topic = 1")))
def new_trie(*given):
    if "sqlglot.dialects.duckdb" in sys.modules and second.ident is None:
        second.start()
        second.join(1)
    return made(*given)
dialect.new_trie = new_trie
in_duckdb("SELECT 1 WHERE :topic = 1")
second.join()
print(*said)
"""


def _asked(code: str = _ASKED) -> list[str]:
    command = [sys.executable, "-c", code, _TEXT]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_second_process_translates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path))
    first, second = _asked(), _asked()
    assert first[0] == second[0] == translation.in_duckdb(_TEXT)
    assert "epoch_us" in first[0].lower()
    assert (first[-1], second[-1]) == ("True", "False")


def test_two_threads_translate_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path))
    assert _asked(_ASKED_BY_TWO) == ["SELECT 2 WHERE $topic = 1"]


def test_what_a_crash_left_half_written_is_translated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path))
    whole = _asked()
    for kept in tmp_path.rglob("*.sql"):
        kept.write_text("")
    assert _asked() == whole


def test_another_translator_does_not_read_what_this_one_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path / "cache"))
    here = translation._folder.__wrapped__()
    assert here is not None
    assert here.is_relative_to(tmp_path / "cache")
    other = tmp_path / "sqlglot"
    other.mkdir()
    (other / "__init__.py").touch()
    (other / "_version.py").write_text("version = '0'")
    spec = type("Spec", (), {"origin": str(other / "__init__.py")})
    monkeypatch.setattr(translation, "find_spec", lambda _: spec)
    assert translation._folder.__wrapped__() != here
    (other / "_version.py").unlink()
    assert translation._folder.__wrapped__() is None, "what cannot be told apart is not kept"
