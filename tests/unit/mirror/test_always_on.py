"""Which streams a running mirror wants, and what a drain does with its flows once its sources are landed."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.context.running_flows import RunningFlows
from mirrorlake.errors import ConfigError, LanderReplaced, MirrorlakeError, SourceGap
from mirrorlake.lake.landing_commits import lander_replaced_error
from mirrorlake.mirror import always_on, runner
from mirrorlake.mirror.always_on import AlwaysOn
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult
from mirrorlake.mirror.runner import Runner
from mirrorlake.model.control import NOTHING_ASKED
from mirrorlake.progress import Board, ignore_progress
from mirrorlake.runtime import PeriodicTask
from tests.builders import NOON, mirror_config
from tests.unit.mirror.test_run_lines import Heard
from tests.unit.topics.kit import Table

FLOWS = [
    {"source": "east", "target": "central", "topics": "orders"},
    {"source": "central", "target": "east", "topics": "clicks"},
]


class OneBatch:
    """Streams that end after a batch of three records; they note the options of each start."""

    def __init__(self) -> None:
        self.options: list[dict[str, bool]] = []
        self.stop = threading.Event()
        self.faulty = ""

    def landing_identity(self, _: str) -> str:
        return "1"

    def flow_identity(self, flow: Any, _: Any) -> str:
        if flow.name == self.faulty:
            raise ConfigError([])
        return "1"

    def land(self, source: str, _: threading.Event, **options: Any) -> LandResult:
        self.options.append({name: value for name, value in options.items() if name not in ("once", "tell", "writer")})
        self.stop.set()
        return LandResult(source, 3)


@pytest.fixture
def context(tmp_path: Path) -> Any:
    table = Table()
    config = mirror_config(*FLOWS)
    return SimpleNamespace(
        config=config,
        stopped_by=lambda _: nullcontext(),
        read_at=NOON,
        now=lambda: NOON,
        metrics=None,
        control=lambda: table,
        lake=SimpleNamespace(relay_location=str),
        running_flows=RunningFlows(lambda: f"{tmp_path}/checkpoints", tmp_path, now=lambda: NOON),
        standing_session=lambda: None,
        require_classic_session=lambda: None,
    )


def names(context: Any, **selected: Any) -> list[str]:
    return [stream.name for stream in AlwaysOn(context, OneBatch(), **selected).wanted()]  # type: ignore[arg-type]


def test_a_call_runs_the_streams_it_was_asked_for(context: Any) -> None:
    assert names(context) == ["land central", "land east", "east->central", "central->east"]
    assert names(context, flow="east->central") == ["land east", "east->central"]
    assert names(context, sends=False, source="east") == ["land east"]
    assert names(context, lands=False, flow="east->central") == ["east->central"]
    assert names(context, sends=False, source="given_up") == []


def test_a_jvm_that_was_killed_over_its_start_ends_the_run(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = AlwaysOn(context, OneBatch())  # type: ignore[arg-type]
    assert streams.lost() is None, "Spark has not been started yet"
    monkeypatch.setattr(always_on, "is_host_gone", lambda: True)
    assert streams.lost() is not None, "the streams would ask a JVM that is gone for ever"


def test_settings_that_one_stream_cannot_be_made_of_end_that_stream_only(context: Any) -> None:
    streams = OneBatch()
    streams.faulty = "east->central"
    *_, faulty, other = AlwaysOn(context, streams).wanted()  # type: ignore[arg-type]
    assert (faulty.made_of[:5], other.made_of) == ("fault", "1")
    with pytest.raises(MirrorlakeError):
        faulty.call(threading.Event())


def test_a_secret_that_cannot_be_read_for_a_while_stops_no_stream_that_runs(context: Any) -> None:
    streams = OneBatch()
    work = AlwaysOn(context, streams)  # type: ignore[arg-type]
    before = [stream.made_of for stream in work.wanted()]
    streams.faulty = "east->central"
    assert [stream.made_of for stream in work.wanted()] == before


def test_a_run_adds_its_streams_up_and_rebuilds_at_the_first_start_only(context: Any) -> None:
    streams = OneBatch()
    work = AlwaysOn(context, streams, sends=False, source="east", first={"rebuild": True})  # type: ignore[arg-type]
    assert work.run(streams.stop, isolates=False) == Ran([LandResult("east", 3)], [])
    work.wanted()[0].call(threading.Event())
    assert streams.options == [{"rebuild": True}, {}]


def test_a_source_that_is_landed_alone_is_kept_small_and_says_its_stages(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, kept, heard = OneBatch(), threading.Event(), Heard()
    lands = streams.land

    def land(source: str, stop: threading.Event, **options: Any) -> LandResult:
        options["tell"](f"land {source}", 3, None)
        assert kept.wait(60), "upkeep is a duty of whoever lands"
        return lands(source, stop, **options)

    streams.land = land  # type: ignore[method-assign]
    context.admin = context.config.cluster
    context.board = lambda: Board(heard, clock=lambda: 0.0)
    context.start_spark = lambda ready: ready()
    duty = PeriodicTask(name="maintain", interval_s=60, run=kept.set)
    context.shared = lambda _: SimpleNamespace(make_newest_reader=lambda _: dict)
    monkeypatch.setattr("mirrorlake.maintenance.maintain_duty", lambda *_: duty)
    runner = Runner(context, streams)  # type: ignore[arg-type]
    assert runner.land("east", once=False, stop=streams.stop, rebuild=False) == LandResult("east", 3)
    assert {one.stage for one in heard.said} == {"spark", "ready"}


class Drained:
    """The streams of a mirror: landing fails as it is told, and flows are noted."""

    def __init__(self, **failures: Exception) -> None:
        self.failures = failures
        self.sent: set[str] = set()

    def land(self, source: str, *_: Any, **__: Any) -> LandResult:
        if source in self.failures:
            raise self.failures[source]
        return LandResult(source, 1)

    def republish(self, flow: Any, *_: Any, **__: Any) -> RepublishResult:
        self.sent.add(flow.source)
        return RepublishResult(flow.name, 1)


@pytest.mark.parametrize(
    ("failure", "sent"),
    [(lander_replaced_error("east"), {"west"}), (SourceGap("records left east", alias="east"), {"east", "west"})],
)
def test_a_drain_whose_source_was_taken_over_does_not_take_the_flow_from_the_one_that_did(
    failure: Exception, sent: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a drain asks besides its streams.
    nobody: Any = SimpleNamespace(tell=ignore_progress, update=ignore_progress, tick=lambda: None)
    nobody.control = lambda: SimpleNamespace(state=lambda: NOTHING_ASKED)
    monkeypatch.setattr(runner, "Notices", lambda _: nobody)
    streams: Any = Drained(east=failure)
    flows = mirror_config({"target": "central"}, {"source": "west", "target": "central"}).flows
    run = Runner(nobody, streams)
    with pytest.raises(type(failure)):
        run._drain(["east", "west"], flows, threading.Event(), nobody)
    assert streams.sent == sent
    assert isinstance(failure, LanderReplaced) == (sent == {"west"})
