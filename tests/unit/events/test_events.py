"""What happened to a mirror, as its tables tell it: from when to when, by whom and why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.events import EventFeed, Events, OutageWatch
from mirrorlake.lake.audit import MAINTAIN, who
from mirrorlake.lake.schema import AUDIT
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.mirror import Mirror
from mirrorlake.model.control import CLEAR, PARK, RESUME, STREAM, Subject
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Change
from mirrorlake.procedure import DONE, Journal
from mirrorlake.timing import Timing
from tests.builders import NOON, mirror_config
from tests.kit.lake import LakeBuilder

FANOUT = Timing().compaction_fanout

S = timedelta(seconds=1)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = NOON

    def __call__(self) -> datetime:
        return self.at

    def to(self, seconds: float) -> None:
        self.at = NOON + seconds * S


class Lived:
    """A mirror over a lake of this machine, with the rows that a run would have written."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        config = mirror_config({}, {"source": "west", "target": "east"}, lake={"root": str(folder / "lake")})
        self.mirror = Mirror(config, now=self.clock, display=lambda: None)
        self.context = self.mirror._context
        self.lake = self.context.lake
        self.built = LakeBuilder(folder)
        self.away: set[str] = set()
        self.watch = self.watcher()

    def watcher(self, clusters: set[str] | None = None, **options: Any) -> OutageWatch:
        return OutageWatch(self.context, clusters, **{"ask": self._ask, **options})

    def _ask(self, alias: str) -> None:
        if alias in self.away:
            raise ClusterUnreachable(f"{alias} does not answer", alias=alias)

    def sampled(self, *seconds: float, away: str = "") -> None:
        looks = [
            {"observed_at": NOON + at * S, "subject": "cluster", "name": name, "complete": False, "positions": 1}
            | {"error": "no answer" if name == away else None}
            for at in seconds
            for name in ("east", "west")
        ]
        self.built.add("samples", *looks)

    def looks(self, *seconds: float, away: str = "") -> None:
        """Look at the clusters at these times, while one of them does not answer."""
        self.away = {away} - {""}
        for second in seconds:
            self.clock.to(second)
            self.watch.once()

    def upkeep(self) -> LakeUpkeep:
        return LakeUpkeep(self.lake, self.context.config.maintenance, now=self.clock)

    def events(self, since: float = 0, **options: Any) -> Events:
        return self.mirror.events(NOON + since * S, **options)

    def told(self, *kinds: str, since: float = 0) -> list[tuple[object, ...]]:
        """Return kind, subject, start and end of the events, in seconds from noon."""
        return [
            (one.kind, one.subject, round((one.at - NOON) / S, 3), one.until and round((one.until - NOON) / S, 3))
            for one in self.events(since)
            if not kinds or one.kind in kinds
        ]


def failure(cause: str) -> dict[str, Any]:
    return Parked(stream="", since=NOON, error="ClusterError", cause=cause).said()


@pytest.fixture
def lived(tmp_path: Path) -> Lived:
    return Lived(tmp_path)


def test_a_mirror_without_a_lake_has_no_events(tmp_path: Path) -> None:
    mirror = Mirror(mirror_config(lake={"root": str(tmp_path / "none")}), display=lambda: None)
    assert len(mirror.events("1h")) == 0
    assert "events" in str(mirror.events("1h"))


def test_a_parked_stream_is_one_event_over_its_attempts_with_the_times_of_the_stream_itself(lived: Lived) -> None:
    control, stream = lived.context.control(), Subject(kind=STREAM, name="east->west")
    for seconds, cause in ((12, "west is away"), (20, "west answers in part")):
        lived.clock.to(seconds)
        control.append(PARK, stream, value=failure(cause) | {"since": (NOON + 10 * S).isoformat()})
    lived.clock.to(110)
    assert lived.told() == [("parked", "east->west", 10, None)]
    control.append(CLEAR, stream, value={"since": (NOON + 45 * S).isoformat()})
    [event] = lived.events()
    assert lived.told() == [("parked", "east->west", 10, 45)]
    assert (event.why, event.effect, event.who) == ("west is away", "later: west answers in part", "")
    # Without a time of its own, and ended by a person.
    control.append(PARK, Subject(kind=STREAM, name="land east"), value=failure("no disk"))
    lived.clock.to(120)
    control.append(RESUME, Subject(kind=STREAM, name="land east"))
    assert lived.told()[1:] == [("parked", "land east", 110, 120)]
    assert lived.events()[1].ended_by
    assert lived.events()[1].cluster == "east"


def test_an_outage_is_stored_when_it_begins_and_ends_and_nothing_meanwhile(lived: Lived) -> None:
    def version() -> int:
        return lived.lake.version(lived.lake.meta_location(AUDIT))

    first = version()
    lived.looks(0, 5)
    assert version() == first, "nothing has changed"
    lived.looks(10, 15, 20, away="west")
    assert version() == first + 1
    assert lived.told() == [("cluster away", "west", 10, None)]
    lived.looks(25, 30)
    assert version() == first + 2
    assert lived.told() == [("cluster away", "west", 10, 25)]
    assert lived.events()[0].why == "west does not answer"


def test_an_outage_of_a_killed_mirror_ends_when_the_next_run_finds_the_cluster_back(lived: Lived) -> None:
    lived.looks(0, away="west")
    lived.clock.to(100)
    again = lived.watcher()
    again.once()
    assert lived.told() == [("cluster away", "west", 0, None)], "still the same outage"
    lived.away = set()
    lived.clock.to(200)
    lived.watcher().once()
    assert lived.told() == [("cluster away", "west", 0, 200)]


def test_two_processes_tell_an_outage_once(lived: Lived) -> None:
    other = lived.watcher()
    for seconds, away in ((0, set()), (5, {"west"}), (12, set())):
        lived.away = away
        for number, watch in enumerate((lived.watch, other)):
            lived.clock.to(seconds + number)
            watch.once()
    assert lived.told() == [("cluster away", "west", 5, 12)]
    # Both saw it at once, and neither the other's row.
    for seconds, action in ((20, "away"), (21, "away"), (30, "back"), (31, "back")):
        lived.clock.to(seconds)
        row = Change(where="west", kind="cluster", name="west", action=action, after="no" if action == "away" else None)
        lived.context.audit().record([row], command="run")
    assert lived.told()[1:] == [("cluster away", "west", 20, 30)]


class Observer:
    """A process of a mirror that reaches the clusters but those that are `away` for it, while it runs."""

    def __init__(self, lived: Lived, stack: ExitStack, name: str) -> None:
        self.lived, self.away = lived, set[str]()
        self.running = stack.enter_context(ExitStack())
        sign = self.running.enter_context(lived.context.running_flows.announce_running([name]))
        self.watch = lived.watcher(ask=self._ask, sign=sign)

    def _ask(self, alias: str) -> None:
        if alias in self.away:
            raise ClusterUnreachable(f"{alias} does not answer", alias=alias)

    def looks(self, seconds: float, *away: str) -> None:
        self.away = {*away}
        self.lived.clock.to(seconds)
        self.watch.once()


@pytest.fixture
def two(lived: Lived) -> Iterator[tuple[Observer, Observer]]:
    with ExitStack() as stack:
        yield Observer(lived, stack, "a"), Observer(lived, stack, "b")


def test_a_cluster_is_away_while_one_of_two_processes_does_not_reach_it(
    lived: Lived, two: tuple[Observer, Observer]
) -> None:
    a, b = two
    a.looks(0)
    b.looks(1)
    a.looks(5, "east")
    b.looks(6, "west")
    b.looks(11)
    assert lived.told() == [("cluster away", "east", 5, None), ("cluster away", "west", 6, 11)]
    # One that starts meanwhile, and a sample of who reaches it, end it no more than the other does.
    with ExitStack() as stack:
        Observer(lived, stack, "c").looks(12)
    lived.sampled(30)
    lived.clock.to(40)
    assert lived.told()[0] == ("cluster away", "east", 5, None)
    b.looks(45, "east")
    a.looks(50)
    assert lived.told()[0] == ("cluster away", "east", 5, None), "the other does not reach it now"
    b.looks(55)
    assert lived.told() == [("cluster away", "east", 5, 55), ("cluster away", "west", 6, 11)]


def test_a_process_ends_the_outage_of_one_that_no_longer_runs(lived: Lived, two: tuple[Observer, Observer]) -> None:
    a, b = two
    a.looks(0, "east")
    b.looks(5)
    assert lived.told() == [("cluster away", "east", 0, None)], "the other one may still run"
    a.running.close()
    # Signs of life are read at most once a second.
    time.sleep(1.1)
    b.looks(70)
    assert lived.told() == [("cluster away", "east", 0, 5)], (
        "it was found back before the other was known to have ended"
    )


def test_a_watch_of_no_cluster_asks_none(lived: Lived) -> None:
    lived.away = {"east", "west"}
    lived.watcher(set()).once()
    assert lived.told() == []


def test_samples_tell_outages_that_no_running_mirror_stored_and_end_those_of_killed_ones(lived: Lived) -> None:
    lived.sampled(0, 90)
    lived.sampled(30, 60, away="west")
    lived.clock.to(95)
    assert lived.told() == [("cluster away", "west", 30, 90)]
    lived.looks(95, away="east")
    lived.clock.to(130)
    lived.sampled(120)
    assert lived.told()[1:] == [("cluster away", "east", 95, 120)], "its mirror was killed"


def test_a_sampler_that_is_late_makes_no_second_outage(lived: Lived) -> None:
    lived.sampled(0, 60)
    lived.looks(10, away="west")
    lived.looks(29)
    lived.sampled(30, away="west")
    lived.clock.to(65)
    assert lived.told() == [("cluster away", "west", 10, 29)]


def test_times_without_samples_are_events(lived: Lived) -> None:
    lived.sampled(0, 30, 60, 600, 630)
    lived.clock.to(640)
    assert lived.told() == [("not sampled", "the mirror", 60, 600)]
    lived.clock.to(1000)
    assert lived.told()[1:] == [("not sampled", "the mirror", 630, None)]


def test_a_silence_that_began_before_the_window_is_an_event(lived: Lived) -> None:
    lived.sampled(0, 30)
    lived.clock.to(12_600)
    assert lived.told(since=9000) == [("not sampled", "the mirror", 30, None)], "no sample lies in the window"
    lived.sampled(12_610, 12_640)
    lived.clock.to(12_650)
    assert lived.told(since=9000) == [("not sampled", "the mirror", 30, 12_610)]
    assert lived.told(since=12_620) == [], "it ended before"


def test_a_feed_tells_the_end_of_a_silence_longer_than_it_looks_back(lived: Lived) -> None:
    feed = EventFeed(lived.mirror.events, mark=NOON)
    lived.sampled(0, 30)
    told = []
    for seconds in range(600, 12_000, 600):
        lived.clock.to(seconds)
        told += [one.until for one in feed.news()]
    lived.sampled(12_000, 12_030)
    lived.clock.to(12_040)
    told += [one.until for one in feed.news()]
    assert told == [None, NOON + 12_000 * S]


def test_changes_of_one_plan_are_one_event_and_an_operation_has_its_result(lived: Lived) -> None:
    made = [Change(where="west", kind="topic", name=f"t{n}", action="create", flow="east->west") for n in range(5)]
    lived.context.audit().record(made, command="apply")
    journal = Journal(lived.lake, ("failover",), flow="east->west", where="west", now=lived.clock)
    lived.clock.to(10)
    operation = journal.begin("failover")
    assert "not finished" in lived.events()[1].effect
    lived.clock.to(22)
    journal.write(
        operation, DONE, after={"rpo_s": 1.5, "rto_s": 12, "groups": [{"group": "billing", "action": "move"}]}
    )
    applied, failover = lived.events()
    assert (applied.kind, applied.subject, applied.cluster) == ("applied", "5 changes on west", "west")
    assert applied.effect == "create topic t0, create topic t1, create topic t2 and 2 more"
    assert (failover.kind, failover.seconds, failover.subject) == ("failover", 12.0, "east->west")
    assert failover.effect == "RPO 1.5 s, RTO 12.0 s, 1 group moved"
    lived.clock.to(5_000)
    table = Change(where="lake", kind="table", name=lived.lake.relay_location("east"), action="create")
    lived.context.audit().record([table], command="apply")
    assert lived.events()[-1].effect == "create table relay/east", "the place of the lake is known"


def told_by(feed: EventFeed) -> list[tuple[str, datetime, datetime | None]]:
    return [(one.kind, one.at, one.until) for one in feed.news()]


def test_an_operation_that_spans_the_window_keeps_its_begin_and_is_told_once(lived: Lived) -> None:
    feed, hours = EventFeed(lived.mirror.events, mark=NOON), 3600
    journal = Journal(lived.lake, ("cutover",), flow="east->west", where="west", now=lived.clock)
    lived.clock.to(50 * 60)
    operation = journal.begin("cutover")
    assert told_by(feed) == [("cutover", lived.clock.at, None)]
    for hour in (1, 2, 5):
        lived.clock.to(hour * hours)
        assert told_by(feed) + told_by(feed) == []
        lived.clock.to(hour * hours + 1200)
        operation = journal.write(operation, f"step {hour}")
        assert told_by(feed) == []
        assert lived.told(since=hour * hours + 600) == [("cutover", "east->west", 3000, None)]
    lived.clock.to(9 * hours + 1200)
    journal.write(operation, DONE, after={})
    assert told_by(feed) == [("cutover", NOON + 3000 * S, lived.clock.at)]
    assert lived.told(since=9 * hours + 600) == [("cutover", "east->west", 3000, 9 * hours + 1200)]
    assert lived.told(since=9 * hours + 1800) == []


ODD = {"flow": "east->west", "rule": "redact", "rule_version": "1", "reason": "no JSON"}


def test_quarantined_records_of_an_hour_are_one_event_and_told_once(lived: Lived) -> None:
    feed, told = EventFeed(lived.mirror.events, mark=NOON), []
    for minute in (10, 30, 50, 70):
        at = NOON + minute * 60 * S
        for offset in range(5):
            lived.built.add("quarantine", **ODD, offset=offset, quarantined_at=at)
        lived.clock.to(minute * 60)
        told += told_by(feed)
    assert told == [("quarantined", NOON + minute * 60 * S, None) for minute in (10, 70)]
    assert lived.told(since=45 * 60) == [("quarantined", "orders", 600, None), ("quarantined", "orders", 4200, None)]
    assert [event.effect[:10] for event in lived.events()] == ["15 records", "5 records "]
    assert lived.told(since=71 * 60) == []


def test_lost_and_quarantined_records_upkeep_and_proofs_are_events(lived: Lived) -> None:
    built, later = lived.built, NOON + 7200 * S
    for partition, kind in ((0, "expired"), (1, "expired"), (0, "compacted")):
        built.add("gaps", partition=partition, first_offset=0, last_offset=6, missing=7, kind=kind)
    for minute in (1, 2, 3, 60):
        built.add("quarantine", **ODD, offset=1, quarantined_at=NOON + minute * 60 * S)
    left = {"removal": "r", "first_offset": 0, "last_offset": 9, "record_count": 10, "kind": "expired", "reason": "30d"}
    built.add("removed", **left, removed_at=later).add("removed", **left, removed_at=later, relay_version=4)
    proof = {"kind": "relay-target", "flow": "east->west"}
    built.add("proofs", **proof, verification="v", how="full", records=100, proven_at=later + S)
    built.add("proofs", **proof, verification="w", how="different", records=1, proven_at=later + 2 * S)
    lived.clock.to(8000)
    assert [(one.kind, one.subject, one.effect) for one in lived.events()] == [
        ("records lost", "orders of east", "14 offsets never landed"),
        ("quarantined", "orders", "3 records withheld from the target"),
        ("quarantined", "orders", "1 record withheld from the target"),
        ("upkeep", "relay of east", "10 records left by its retention"),
        ("verified", "east->west", "100 records compared, all equal"),
        ("verify failed", "east->west", "0 records compared, 1 range different"),
    ]


def test_passes_of_upkeep_that_rewrote_files_are_one_event_a_day(lived: Lived) -> None:
    def keep(seconds: float) -> None:
        lived.clock.to(seconds)
        assert [*filter(None, (one.why_not for one in lived.upkeep().tables({}, published=[], plan=False)))] == []

    keep(1)
    assert lived.told() == [], "a pass that had nothing to do is no event"
    for at in (60, 3600):
        for number in range(FANOUT):
            lived.sampled(at + number)
        keep(at)
        keep(at + 1)
    feed = EventFeed(lived.mirror.events, mark=NOON)
    [event] = [one for one in feed.news() if one.kind == "upkeep"]
    assert (event.at, event.last_at, event.until) == (NOON + 60 * S, NOON + 3600 * S, None)
    assert (event.subject, event.who) == ("the lake", who())
    assert event.effect == "2 passes until 13:00:00: 65 files became 2, most of them of samples"
    assert [len(lived.told("upkeep", since=since)) for since in (3000, 3700)] == [1, 0], "the newest pass decides"
    lived.clock.to(90_000)
    done = {"relay of east": {"files": 0, "into": 0, "deleted": 9}}
    lived.context.audit().record(
        [Change(where="lake", kind="lake", name="tables", action=MAINTAIN, after=done)], command=MAINTAIN
    )
    [other_day] = [one for one in feed.news() if one.kind == "upkeep"]
    assert other_day.effect == "1 pass: 9 old files deleted, most of them of relay of east"
    assert len(lived.told("upkeep")) == 2
