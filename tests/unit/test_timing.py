"""`Timing`: what a test makes smaller from outside, read when it is used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mirrorlake.errors import UsageError
from mirrorlake.timing import Timing, timing


def test_the_environment_sets_some_values_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timing() == Timing()
    monkeypatch.setenv("MIRRORLAKE_TIMING", " hot_s=0, compaction_fanout=3,")
    assert timing() == Timing(hot_s=0.0, compaction_fanout=3)
    monkeypatch.delenv("MIRRORLAKE_TIMING")
    assert timing() == Timing()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hot=0", "MIRRORLAKE_TIMING has hot=0, a name that is unknown"),
        ("hot_s", "MIRRORLAKE_TIMING has hot_s=, no number of it"),
        ("hot_s=soon", "MIRRORLAKE_TIMING has hot_s=soon, no number of it"),
        ("compaction_fanout=2.5", "MIRRORLAKE_TIMING has compaction_fanout=2.5, no number of it"),
    ],
)
def test_what_is_no_value_of_it_is_refused(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", text)
    with pytest.raises(UsageError, match=said) as refused:
        timing()
    assert "name one of account_interval_s" in refused.value.remedy


def test_a_command_with_unknown_timing_starts_nothing() -> None:
    command = [sys.executable, "-m", "mirrorlake", "status"]
    done = subprocess.run(command, env={**os.environ, "MIRRORLAKE_TIMING": "hot=0"}, capture_output=True, text=True)
    assert (done.returncode, "a name that is unknown; nothing was started" in done.stderr) == (2, True), done.stderr
