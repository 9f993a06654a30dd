"""Streams that follow what is wanted: started, stopped, parked, tried again and drained."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.errors import (
    ClusterError,
    ClusterUnreachable,
    ConfigError,
    LaneFenced,
    MirrorlakeError,
    NotAuthorized,
    RecordTooLarge,
    RegistryError,
    RegistryUnreachable,
    StartAbandoned,
    StoreError,
    TopicConflict,
)
from mirrorlake.mirror import parked_streams
from mirrorlake.mirror.parked_streams import Notices, ParkedStream, Stream
from mirrorlake.mirror.supervisor import Supervisor
from mirrorlake.model.parked import Parked
from tests.unit.topics.kit import NOON, Table


class Streams:
    """Streams that only wait for their stop; `made_of` may be changed while they run."""

    def __init__(self, **made_of: str) -> None:
        self.made_of = made_of
        self.log: list[str] = []
        self.stop = threading.Event()
        self.then: list[Callable[[], None]] = []

    def wanted(self) -> list[Stream]:
        # Each look waits until the streams of the last one are up, so that nothing depends on time.
        if self.then:
            self.then.pop(0)()
        else:
            self.stop.set()
        return [Stream(name=name, made_of=made, call=self._call(name, made)) for name, made in self.made_of.items()]

    def report(self, *_: object) -> None:
        pass

    def lost(self) -> MirrorlakeError | None:
        return None

    def _call(self, name: str, made: str) -> Callable[[threading.Event], str]:
        def call(stop: threading.Event) -> str:
            self.log.append(f"+{name}{made}")
            if made == "fails":
                raise LaneFenced("another")
            stop.wait(30)
            self.log.append(f"-{name}{made}")
            if made == "not begun":
                raise StartAbandoned("Spark was starting")
            if made == "away":
                raise ClusterUnreachable("gone", alias="gone")
            return made

        return call

    def run(self) -> Any:
        return Supervisor(self, self.stop, look_every_s=0.0).run()


def test_a_stream_whose_cluster_is_away_can_be_taken_out_without_ending_the_others() -> None:
    streams = Streams(a="1", b="away")

    def gone() -> None:
        streams.made_of = {"a": "1"}
        if "-baway" not in streams.log:
            streams.then.insert(0, gone)

    streams.then = [lambda: None, gone, lambda: None]
    assert streams.run() == {"a": ["1"]}


def test_without_isolation_a_failure_stops_the_others_after_their_batch_and_is_raised() -> None:
    streams = Streams(a="1", b="fails")
    streams.then = [lambda: None] * 1000
    with pytest.raises(LaneFenced):
        Supervisor(streams, streams.stop, look_every_s=0.0, isolates=False).run()
    assert "-a1" in streams.log


def test_a_stream_that_was_stopped_before_it_began_is_no_failure() -> None:
    streams = Streams(a="1", b="not begun")
    assert Supervisor(streams, streams.stop, look_every_s=0.0, isolates=False).run() == {"a": ["1"]}


class Failing:
    """Streams that do what a test says at each start; the table `control` beside them, and a look that goes on until `done`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **errors: list[Exception | None]) -> None:
        monkeypatch.setattr(parked_streams, "backoff_s", lambda *_, **__: 0.0)
        monkeypatch.setattr("mirrorlake.mirror.supervisor._TICK_S", 0.005)
        self.errors, self.starts = errors, dict.fromkeys(errors, 0)
        self.made_of = dict.fromkeys(errors, "1")
        self.table, self.stop, self.heard = Table(), threading.Event(), dict[str, Parked]()
        context: Any = SimpleNamespace(
            control=lambda: self.table,
            metrics=SimpleNamespace(parked=self.heard.update, running=lambda *_, **__: None),
            config=SimpleNamespace(flows=(), sources=()),
        )
        self.notices = Notices(context)
        self.done: Callable[[], bool] = lambda: False
        self.looks = 0

    def wanted(self) -> list[Stream]:
        self.looks += 1
        if self.done() or self.looks > 3000:
            self.stop.set()
        resumed = self.table.state().resumed
        return [
            Stream(name=name, made_of=made, resumed=resumed.get(name), call=partial(self.call, name))
            for name, made in self.made_of.items()
        ]

    def call(self, name: str, stop: threading.Event) -> None:
        errors, turn = self.errors[name], self.starts[name]
        self.starts[name] += 1
        if (error := errors[min(turn, len(errors) - 1)]) is not None:
            raise error
        stop.wait(30)

    def run(self, done: Callable[[], bool] = lambda: False) -> None:
        self.done = done
        Supervisor(self, self.stop, look_every_s=0.0, now=lambda: NOON).run()
        assert self.looks < 3000, "what was waited for never came"

    def lost(self) -> MirrorlakeError | None:
        return None

    def report(self, waiting: Mapping[str, ParkedStream], healthy: Mapping[str, datetime]) -> None:
        self.notices.update(self.table.state(), waiting, healthy)

    def parked(self) -> dict[str, Parked]:
        return dict(self.table.state().parked)


CONFLICT = TopicConflict("east.orders does not fit", remedy="mend it")


@pytest.mark.parametrize("error", [StoreError("a worker died"), ClusterError("odd answer"), ValueError("who knows")])
def test_what_a_new_start_can_mend_is_tried_again_and_told_only_where_it_lasts(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    once = Failing(monkeypatch, a=[None], b=[error, None])
    once.run(lambda: once.starts["b"] == 2)
    assert (once.starts["a"], once.table.rows) == (1, [])
    caplog.clear()
    lasting = Failing(monkeypatch, a=[None], b=[error, error, error, None])

    def recovered() -> bool:
        if lasting.starts["b"] == 4 and "b" in lasting.parked():
            monkeypatch.setenv("MIRRORLAKE_TIMING", "healthy_s=0")
        return lasting.starts["b"] == 4 and "b" not in lasting.parked()

    lasting.run(recovered)
    assert [row.action for row in lasting.table.rows] == ["park", "clear"]
    assert all(row.value["is_retried"] for row in lasting.table.rows if row.action == "park")
    told = [line.getMessage().split()[0] for line in caplog.records if line.levelno == logging.WARNING]
    is_outage = isinstance(error, ClusterError)
    assert told == ["stream.parked"] * (1 if is_outage else 3) + ["stream.recovered"], "a line when it goes and is back"


AWAY = ClusterUnreachable("west is away", alias="west")


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ({"a": [CONFLICT], "b": [RecordTooLarge("huge")]}, 3),
        ({"a": [AWAY], "b": [RecordTooLarge("huge")]}, 4),
    ],
)
def test_where_all_are_parked_the_run_ends_with_the_worst_reason(
    errors: dict[str, list[Exception | None]], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Failing(monkeypatch, **errors)
    with pytest.raises(MirrorlakeError) as ended:
        streams.run()
    assert ended.value.exit_code == code
    assert streams.parked().keys() == errors.keys(), "told before the end"


NOT_ALLOWED = NotAuthorized("READ was taken away")


@pytest.mark.parametrize(
    "error", [AWAY, NOT_ALLOWED, ConfigError([]), RegistryUnreachable("no answer"), RegistryError("500")]
)
def test_a_cluster_or_registry_that_was_there_before_is_waited_for(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "setup_s=0")
    streams = Failing(monkeypatch, a=[error, error, error, None])
    streams.run(lambda: streams.starts["a"] == 4)


def test_a_stream_that_came_back_keeps_the_run_up_while_another_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first minute of a setup one missing permission is often found after the other."""
    streams = Failing(monkeypatch, a=[NOT_ALLOWED, None], b=[NOT_ALLOWED, NOT_ALLOWED, None])
    call = streams.call

    def one_after_the_other(name: str, stop: threading.Event) -> None:
        while name == "b" and streams.starts["a"] < 2 and not stop.wait(0.005):
            pass
        call(name, stop)

    monkeypatch.setattr(streams, "call", one_after_the_other)
    streams.run(lambda: streams.starts == {"a": 2, "b": 3})


def test_where_nothing_can_run_any_more_the_run_ends_instead_of_trying_for_ever() -> None:
    """The JVM was killed: every start in this process fails."""
    streams = Streams(a="1", b="fails")
    streams.then = [lambda: None] * 1000
    streams.lost = lambda: StoreError("the JVM has ended")  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="the JVM has ended"):
        streams.run()
    assert streams.log[-1] == "-a1", "what still runs ends in order"


def test_a_stop_that_reaches_the_jvm_first_is_no_failure() -> None:
    """As SIGTERM to a whole group of processes does."""
    streams = Streams(a="1", b="away")
    streams.then = [lambda: None]
    streams.lost = lambda: StoreError("the JVM has ended")  # type: ignore[method-assign]
    assert streams.run() == {"a": ["1"]}


def test_the_stop_button_of_a_notebook_stops_as_an_event_does() -> None:
    streams = Streams(a="1")

    def interrupt() -> None:
        raise KeyboardInterrupt

    streams.then = [lambda: None, interrupt]
    found = Supervisor(streams, streams.stop, look_every_s=0).run()
    assert streams.log == ["+a1", "-a1"]
    assert list(found) == ["a"]
