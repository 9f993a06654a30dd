"""The lines of an always-on run: what each says, and who draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.mirror import run_lines
from mirrorlake.mirror.run_lines import RunLines
from mirrorlake.progress import Board, Phase, RunMessage
from mirrorlake.status import Status
from tests.builders import NOON
from tests.unit.values import partition_status, status


class Heard:
    """A display that remembers lines."""

    def __init__(self) -> None:
        self.said: list[RunMessage] = []

    def show(self, phases: Sequence[Phase], _at: float, /) -> None: ...

    close = show

    def say(self, said: RunMessage, /) -> None:
        self.said.append(said)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [100.0]
    monkeypatch.setattr(run_lines.time, "monotonic", lambda: at[0])
    return at


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def lines(heard: Heard, clock: list[float]) -> RunLines:
    return RunLines(Board(heard, clock=lambda: clock[0]), now=lambda: NOON)


def texts(heard: Heard) -> list[str]:
    return [str(said) for said in heard.said]


def test_each_stage_says_its_seconds(lines: RunLines, heard: Heard, clock: list[float]) -> None:
    with lines.stage("lake", "tables are there"):
        clock[0] += 1.25
    with pytest.raises(ValueError, match="gone"), lines.stage("lake", "never said"):
        raise ValueError("gone")
    assert texts(heard) == ["lake: tables are there (1.2 s)"]
    told = {"at": NOON.strftime("%Y-%m-%dT%H:%M:%SZ"), "stage": "lake", "text": "tables are there", "seconds": 1.25}
    assert heard.said[0].as_dict() == told


def test_a_stream_is_ready_with_its_first_report_and_counts_over_its_starts(
    lines: RunLines, heard: Heard, clock: list[float]
) -> None:
    clock[0] += 8
    for phase, done in (("land east", 0), ("republish east->central", 0), ("land east", 70), ("land east", 5)):
        lines.tell(phase, done, None)
    assert texts(heard) == ["ready: landing from east (8.0 s)", "ready: flow east->central (8.0 s)"]
    [landed], [sent] = lines.ran()
    assert (landed.source, landed.records, sent.flow, sent.records) == ("east", 75, "east->central", 0)


def test_a_minute_says_in_out_rates_lag_and_the_worst_verdict(
    lines: RunLines, heard: Heard, clock: list[float]
) -> None:
    found = Status(flows=(status("a", partition_status("orders", state="behind", lag=40)),), observed_at=NOON)
    lines.tell("land east", 10, None)
    clock[0] += 60
    lines.minute(lambda: found)
    clock[0] += 60
    lines.tell("land east", 6010, None)
    lines.tell("republish a", 1200, None)
    lines.minute(lambda: found)
    said = [one for one in heard.said if one.stage == "running"]
    assert said[0].text == "10 records in, 0 out (0.2/s, 0/s) · lag 40 offsets, 40.0 s · WARNING"
    assert said[1].text == "6 000 records in, 1 200 out (100/s, 20/s) · lag 40 offsets, 40.0 s · WARNING"
    assert said[1].as_dict()["landed_per_s"] == 100
    assert said[1].facts.items() >= {"verdict": "WARNING", "offset_lag": 40, "time_lag_ms": 40000}.items()


def test_a_cluster_that_is_away_leaves_the_counts(lines: RunLines, heard: Heard, clock: list[float]) -> None:
    def away() -> Any:
        raise ClusterUnreachable("cluster east does not answer: e:1 connection refused")

    clock[0] += 60
    lines.minute(away)
    assert texts(heard) == [
        "running: 0 records in, 0 out (0/s, 0/s) · lag not known: cluster east does not answer: e:1 connection refused"
    ]
