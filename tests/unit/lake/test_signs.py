"""The sign that a stream works."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.lake import StreamSign, signs
from mirrorlake.progress import ignore_progress


def sign_in(root: str, times: list[int]) -> StreamSign:
    lake: Any = SimpleNamespace(checkpoint_root=lambda: root)
    return StreamSign(lake, "east", now_ms=lambda: times[0])


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_a_sign_is_the_time_of_the_last_turn(tmp_path: Path, scheme: str) -> None:
    times = [5]
    sign = sign_in(f"{scheme}{tmp_path}/checkpoints", times)
    assert sign.read() is None, "landing never worked"
    heard: list[Any] = []
    tell = sign.signing(cast("Any", lambda *report: heard.append(report)), interval_s=3600)
    tell("land east", 0, None)
    times[0] = 6
    tell("land east", 10, 20)
    assert sign.read() == 5, "at its interval, not at every turn"
    times[0] = 7
    tell("land east", 20, 20)
    assert sign.read() == 7, "a drain that is done says so"
    assert [report[1] for report in heard] == [0, 10, 20]


def test_a_store_that_cannot_be_written_to_stops_no_landing(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where a folder should be")
    sign = sign_in(str(tmp_path / "checkpoints"), [5])
    sign.signing(ignore_progress, interval_s=1)("land east", 1, 1)
    assert sign.read() is None


def test_a_store_that_takes_long_to_refuse_holds_up_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, clock = [], [0.0]

    def slow(_: str) -> Any:
        asked.append(clock[0])
        clock[0] += 9
        raise OSError("no credentials")

    monkeypatch.setattr(signs, "open_folder", slow)
    monkeypatch.setattr(signs.time, "monotonic", lambda: clock[0])
    tell = sign_in("s3://lake/checkpoints", [5]).signing(ignore_progress, interval_s=20)
    for _ in range(400):
        tell("land east", 1, 1)
        clock[0] += 1
    assert asked == [0.0, 189.0, 378.0]
