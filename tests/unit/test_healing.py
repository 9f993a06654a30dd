"""A stream outlasts a cluster that goes away, and no mistake in the settings."""

import threading

import pytest

from mirrorlake.errors import ClusterUnreachable, LaneFenced
from mirrorlake.streams import healing

AWAY = ClusterUnreachable("west is away", alias="west")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healing, "pause_s", lambda _: 0.0)


class Clock:
    """Each failure comes `step` seconds after the one before."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        return self.now

    def fail(self) -> None:
        self.now += self.step
        raise AWAY


def test_a_cluster_that_goes_away_later_is_waited_for() -> None:
    clock, turns = Clock(100.0), []

    def stream() -> str:
        turns.append(1)
        if len(turns) < 4:
            clock.fail()
        return "ended"

    assert healing.outlast(stream, threading.Event(), what="a->b", clock=clock) == "ended"
    assert len(turns) == 4


def test_a_cluster_that_was_never_there_is_told_at_once() -> None:
    clock = Clock(15.0)
    with pytest.raises(ClusterUnreachable):
        healing.outlast(clock.fail, threading.Event(), what="a->b", clock=clock)
    assert clock.now == 15.0


def test_what_a_new_start_cannot_mend_is_raised() -> None:
    def fenced() -> None:
        raise LaneFenced("the lane belongs to another")

    with pytest.raises(LaneFenced):
        healing.outlast(fenced, threading.Event(), what="a->b", clock=Clock(0))


def test_a_stop_ends_the_waiting() -> None:
    clock, stop = Clock(100.0), threading.Event()

    def stream() -> None:
        stop.set()
        clock.fail()

    with pytest.raises(ClusterUnreachable):
        healing.outlast(stream, stop, what="a->b", clock=clock)
