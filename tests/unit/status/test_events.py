"""What happened to a mirror, as its tables tell it: from when to when, by whom and why."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.lake.audit import MAINTAIN, who
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.mirror import Mirror
from mirrorlake.model.control import CLEAR, PARK, RESUME, STREAM, Subject
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Change
from mirrorlake.procedure import DONE, Journal
from mirrorlake.status import EventFeed, Events
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

    def sampled(self, *seconds: float, away: str = "") -> None:
        looks = [
            {"observed_at": NOON + at * S, "subject": "cluster", "name": name, "complete": False, "positions": 1}
            | {"error": "no answer" if name == away else None}
            for at in seconds
            for name in ("east", "west")
        ]
        self.built.add("samples", *looks)

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


def told_by(feed: EventFeed) -> list[tuple[str, datetime, datetime | None]]:
    return [(one.kind, one.at, one.until) for one in feed.news()]


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


def test_a_cluster_is_away_from_the_first_look_that_it_does_not_answer_until_one_that_it_does(lived: Lived) -> None:
    lived.sampled(0, 90)
    lived.sampled(30, 60, away="west")
    lived.clock.to(95)
    assert lived.told() == [("cluster away", "west", 30, 90)]
    assert (lived.events()[0].cluster, lived.events()[0].why) == ("west", "no answer")
    feed = EventFeed(lived.mirror.events, mark=NOON)
    assert told_by(feed) == [("cluster away", NOON + 30 * S, NOON + 90 * S)]
    lived.sampled(*range(120, 7500, 60), away="east")
    for seconds in range(120, 7500, 600):
        lived.clock.to(seconds + 50)
        told = told_by(feed)
        assert told == ([("cluster away", NOON + 120 * S, None)] if seconds == 120 else []), "told once, however long"
    lived.sampled(7500)
    lived.clock.to(7510)
    assert told_by(feed) == [("cluster away", NOON + 120 * S, NOON + 7500 * S)]
    assert lived.told(since=7505) == [], "it ended before"
    assert lived.told(since=7300) == [("cluster away", "east", 7140, 7500)], "as far as its looks were read"
    gone = {"subject": "cluster", "name": "north", "complete": False, "positions": 1, "error": "no answer"}
    lived.built.add("samples", *({**gone, "observed_at": NOON + at * S} for at in (7300, 7360)))
    assert lived.told(since=7000)[-1] == ("cluster away", "north", 7300, 7360), "the settings lack it by now"


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


ODD = {"flow": "east->west", "kind": "quarantined", "rule": "redact", "rule_version": "1", "reason": "no JSON"}


def test_quarantined_records_of_an_hour_are_one_event_and_told_once(lived: Lived) -> None:
    feed, told = EventFeed(lived.mirror.events, mark=NOON), []
    for minute in (10, 30, 50, 70):
        at = NOON + minute * 60 * S
        lived.built.withhold(*range(5), **ODD, committed_at=at)
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
        built.withhold(1, **ODD, committed_at=NOON + minute * 60 * S)
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
    assert event.effect == "2 passes: 65 files became 2"
    assert [len(lived.told("upkeep", since=since)) for since in (3000, 3700)] == [1, 0], "the newest pass decides"
    lived.clock.to(90_000)
    done = {"relay of east": {"files": 0, "into": 0, "deleted": 9}}
    lived.context.audit().record(
        [Change(where="lake", kind="lake", name="tables", action=MAINTAIN, after=done)], command=MAINTAIN
    )
    [other_day] = [one for one in feed.news() if one.kind == "upkeep"]
    assert other_day.effect == "1 pass: 9 old files deleted"
    assert len(lived.told("upkeep")) == 2
