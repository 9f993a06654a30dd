"""Intentions, edits of settings, what a checkpoint location has let pass, and the streams that follow."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.fingerprint import identity, plain
from mirrorlake.config.load import load, loads
from mirrorlake.errors import (
    ClusterError,
    ClusterUnreachable,
    ConfigError,
    LanderReplaced,
    LaneFenced,
    MirrorlakeError,
    RecordTooLarge,
    StoreError,
    TopicConflict,
    UsageError,
)
from mirrorlake.landing.retry import pause_s
from mirrorlake.mirror import parking
from mirrorlake.mirror.control_watch import ControlWatch
from mirrorlake.mirror.parking import Notices, ParkingPlace, Stream
from mirrorlake.mirror.supervisor import Supervisor, drain
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.control import ControlState, Intention, Pause, Subject, state_of
from mirrorlake.model.parked import Parked
from mirrorlake.topics import settings_in_force as control_step
from mirrorlake.topics.edits import edits

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SETTINGS = """
lake: {root: ./lake}
clusters:
  east:
    bootstrap_servers: "e:9092"
    client: {sasl.password: hunter2, sasl.mechanism: PLAIN, sasl.username: "${env:NOBODY:-me}", security.protocol: SASL_SSL}
  west: {bootstrap_servers: "w:9092"}
flows:
  - {source: east, target: west, topics: orders}
"""


class Table:
    """The table `control` without a lake."""

    def __init__(self) -> None:
        self.rows: list[Intention] = []

    def state(self) -> ControlState:
        return state_of(self.rows)

    def append(self, action: str, subject: Subject, *, value: Any = None, reason: str = "") -> None:
        at = NOON + timedelta(seconds=len(self.rows))
        self.rows.append(Intention(at=at, who="me@here", action=action, subject=subject, value=value, reason=reason))


# -- pauses -----------------------------------------------------------------------------------------------------------

SUBJECTS = st.sampled_from(
    [
        Subject(kind="cluster", name="east"),
        Subject(kind="flow", name="east->west"),
        Subject(kind="topic", name="orders", flow="east->west"),
        Subject(kind="topic", name="orders", flow="west->east"),
    ]
)


@given(st.lists(st.tuples(SUBJECTS, st.sampled_from(["pause", "resume"])), max_size=20), st.randoms())
def test_the_newest_intention_of_a_subject_counts_in_whatever_order_rows_come(asked: Any, chance: Any) -> None:
    rows = [
        Intention(at=NOON + timedelta(seconds=second), who="me", action=action, subject=subject)
        for second, (subject, action) in enumerate(asked)
    ]
    last = dict(asked)
    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert set(state_of(shuffled).pauses) == {subject for subject, action in last.items() if action == "pause"}


@pytest.mark.law("G")
def test_a_pause_says_by_whom_since_when_why_and_how_it_ends() -> None:
    table, subject = Table(), Subject(kind="topic", name="orders", flow="east->west")
    held = control_step.pause(table, subject, reason="a full disk")  # type: ignore[arg-type]
    assert str(held) == (
        "topic orders of east->west is paused by me@here since 2026-01-01T12:00:00+00:00 (a full disk); "
        "resume with: mirrorlake resume --topic orders --flow 'east->west'"
    )
    assert control_step.pause(table, subject) == held  # type: ignore[arg-type]
    assert len(table.rows) == 1, "law G: applied twice it changes nothing"
    assert control_step.resume(table, subject) == held  # type: ignore[arg-type]
    assert control_step.resume(table, subject) is None  # type: ignore[arg-type]


def test_what_a_pause_of_each_kind_covers() -> None:
    def covered(subject: Subject) -> tuple[bool, bool, bool]:
        state = ControlState(pauses={subject: Pause(subject=subject, who="me", since=NOON)})
        by = state.covering("east->west", "east", "west")
        return bool(state.of_stream("east->west", "west")), bool(by("orders")), bool(by("clicks"))

    assert covered(Subject(kind="cluster", name="west")) == (True, True, True)
    assert covered(Subject(kind="cluster", name="east")) == (False, True, True), "what the relay holds may still go"
    assert covered(Subject(kind="flow", name="east->west")) == (True, True, True)
    assert covered(Subject(kind="topic", name="orders", flow="east->west")) == (False, True, False)
    assert covered(Subject(kind="topic", name="orders", flow="other")) == (False, False, False)


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"topic": "orders"},
        {"cluster": "east", "flow": "east->west"},
        {"cluster": "nrth"},
        {"flow": "nope"},
        {"flow": "east->west", "topic": "clicks"},
    ],
)
def test_what_the_settings_do_not_know_cannot_be_paused(named: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        control_step.subject_of(loads(SETTINGS), **named)


# -- settings ---------------------------------------------------------------------------------------------------------


def test_plain_content_holds_no_secret_and_tells_an_edited_one_apart() -> None:
    content = plain(loads(SETTINGS))
    assert "hunter2" not in json.dumps(content)
    assert "SASL_SSL" not in json.dumps(content), "options of clients are fingerprints, all of them"
    other = plain(loads(SETTINGS.replace("hunter2", "hunter3")))
    assert identity(content) != identity(other)
    [change] = edits(content, other)
    assert (change.kind, change.name, list(change.after)) == ("cluster", "east", ["client.sasl.password"])
    assert "hunter" not in str(change)


def test_plain_content_is_the_same_for_settings_that_mean_the_same() -> None:
    spelled = SETTINGS.replace("topics: orders", 'topics: ["orders"], lanes: 2, sync: {groups: true}')
    assert identity(plain(loads(spelled))) == identity(plain(loads(SETTINGS)))


def test_a_first_apply_shows_no_edits_and_a_second_one_changes_nothing() -> None:
    config, table = loads(SETTINGS), Table()
    assert not control_step.settings_plan(config, table)  # type: ignore[arg-type]
    assert control_step.put_in_force(config, table)  # type: ignore[arg-type]
    assert not control_step.put_in_force(config, table)  # type: ignore[arg-type]
    edited = loads(SETTINGS.replace("topics: orders", "topics: 'orders, clicks', rate: {records_per_second: 5}"))
    [change] = control_step.settings_plan(edited, table).changes  # type: ignore[arg-type]
    assert (change.where, change.kind, change.action, change.name) == ("settings", "flow", "change", "east->west")
    assert change.before == {"rate.records_per_second": None, "topics": ["orders"]}
    assert change.after == {"rate.records_per_second": 5, "topics": ["orders", "clicks"]}


def test_one_flow_can_be_put_in_force_alone() -> None:
    two = SETTINGS + "  - {name: back, source: west, target: east, topics: pay}\n"
    table = Table()
    control_step.put_in_force(loads(two), table)  # type: ignore[arg-type]
    edited = loads(two.replace("topics: orders", "topics: clicks").replace("topics: pay", "topics: rent"))
    assert [c.name for c in control_step.settings_plan(edited, table, flow="back").changes] == ["back"]  # type: ignore[arg-type]
    control_step.put_in_force(edited, table, flow="back")  # type: ignore[arg-type]
    assert [c.name for c in control_step.settings_plan(edited, table).changes] == ["east->west"]  # type: ignore[arg-type]
    removed = loads(SETTINGS)
    actions = [(c.action, c.name) for c in control_step.settings_plan(removed, table).changes]  # type: ignore[arg-type]
    assert actions == [("remove", "back")]


# -- checkpoint locations ---------------------------------------------------------------------------------------------

TOPICS = st.frozensets(st.sampled_from(["a", "b", "c"]))
CARRIED = st.builds(CheckpointScope, st.sampled_from(["", "one", "two"]), TOPICS)


@pytest.mark.law("E")
@given(CARRIED, CARRIED)
def test_law_e_a_stream_goes_on_only_where_nothing_it_carries_was_stepped_over(
    before: CheckpointScope, after: CheckpointScope
) -> None:
    assert CheckpointScope.read(before.text) == before
    everything = {"a", "b", "c"}
    if after.continues(before):
        assert before.selection == after.selection != ""
        assert everything - after.without <= everything - before.without


# -- streams ----------------------------------------------------------------------------------------------------------


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

    def _call(self, name: str, made: str) -> Callable[[threading.Event], str]:
        def call(stop: threading.Event) -> str:
            self.log.append(f"+{name}{made}")
            if made == "fails":
                raise LaneFenced("another")
            stop.wait(30)
            self.log.append(f"-{name}{made}")
            if made == "away":
                raise ClusterUnreachable("gone", alias="gone")
            return made

        return call

    def run(self) -> Any:
        return Supervisor(self, self.stop, look_every_s=0.0).run()


def test_only_what_changed_is_stopped_and_started_again() -> None:
    streams = Streams(a="1", b="1")

    def edit() -> None:
        streams.made_of = {"a": "1", "b": "2", "c": "1"}

    def settled() -> None:
        if "+b2" not in streams.log:
            streams.then.insert(0, settled)

    streams.then = [lambda: None, edit, settled]
    assert streams.run() == {"a": ["1"], "b": ["1", "2"], "c": ["1"]}
    assert [entry for entry in streams.log if "a" in entry] == ["+a1", "-a1"]
    assert streams.log.index("-b1") < streams.log.index("+b2")


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


class Failing:
    """Streams that do what a test says at each start; the table `control` beside them, and a look that goes on until `done`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **errors: list[Exception | None]) -> None:
        monkeypatch.setattr(parking, "pause_s", lambda *_, **__: 0.0)
        monkeypatch.setattr("mirrorlake.mirror.supervisor._TICK_S", 0.005)
        self.errors, self.starts = errors, dict.fromkeys(errors, 0)
        self.made_of = dict.fromkeys(errors, "1")
        self.table, self.stop, self.heard = Table(), threading.Event(), dict[str, Parked]()
        connections: Any = SimpleNamespace(
            control=lambda: self.table, metrics=SimpleNamespace(parked=self.heard.update)
        )
        self.notices = Notices(connections)
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

    def report(self, waiting: Mapping[str, ParkingPlace], healthy: frozenset[str]) -> None:
        self.notices.update(self.table.state(), waiting, healthy)

    def parked(self) -> dict[str, Parked]:
        return dict(self.table.state().parked)


CONFLICT = TopicConflict("east.orders does not fit", remedy="mend it")


@pytest.mark.parametrize("act", ["resume", "edit"])
def test_a_stream_that_fails_is_parked_with_its_reason_until_a_person_acts(
    act: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    streams = Failing(monkeypatch, a=[None], b=[CONFLICT, None])
    asked: list[int] = []

    def done() -> bool:
        if "b" in streams.parked() and not asked:
            assert streams.parked()["b"].cause == streams.heard["b"].cause == CONFLICT.cause
            assert streams.starts == {"a": 1, "b": 1}
            asked.append(1)
            if act == "edit":
                streams.made_of["b"] = "2"
            else:
                subject = Subject(kind="flow", name="b")
                config = SimpleNamespace(flows_to=lambda _: ())
                [found] = control_step.resume_parked(config, streams.table, subject)  # type: ignore[arg-type]
                assert "mirrorlake resume --flow 'b'" in str(found)
        return bool(asked) and streams.starts["b"] == 2 and "b" not in streams.parked()

    streams.run(done)
    assert streams.starts == {"a": 1, "b": 2}, "the other never noticed, and nothing was tried by itself"
    assert caplog.text.count("stream.parked what=b") == 1
    assert [row.action for row in streams.table.rows] == ["park", "clear" if act == "edit" else "resume"]


@pytest.mark.parametrize("error", [StoreError("a worker died"), ClusterError("odd answer"), ValueError("who knows")])
def test_what_a_new_start_can_mend_is_tried_again_and_told_only_where_it_lasts(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Failing(monkeypatch, a=[None], b=[error, None])
    once.run(lambda: once.starts["b"] == 2)
    assert (once.starts["a"], once.table.rows) == (1, [])
    lasting = Failing(monkeypatch, a=[None], b=[error, error, error, None])

    def recovered() -> bool:
        if lasting.starts["b"] == 4 and "b" in lasting.parked():
            monkeypatch.setattr("mirrorlake.mirror.supervisor.HEALTHY_S", 0.0)
        return lasting.starts["b"] == 4 and "b" not in lasting.parked()

    lasting.run(recovered)
    assert [row.action for row in lasting.table.rows] == ["park", "clear"]
    assert all(row.value["is_retried"] for row in lasting.table.rows if row.action == "park")


def test_a_stream_that_another_owner_took_over_never_fights_back(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Failing(monkeypatch, a=[None], b=[LaneFenced("another")], c=[LanderReplaced("another")])
    streams.run(lambda: len(streams.parked()) == 2 and streams.looks > 50)
    assert streams.starts == {"a": 1, "b": 1, "c": 1}


AWAY = ClusterUnreachable("west is away", alias="west")


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ({"a": [CONFLICT], "b": [RecordTooLarge("huge")]}, 3),
        ({"a": [AWAY], "b": [RecordTooLarge("huge")]}, 4),
        ({"a": [ConfigError([])], "b": [AWAY]}, 4),
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


def test_a_cluster_that_was_there_before_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrorlake.mirror.supervisor.FIRST_S", 0.0)
    streams = Failing(monkeypatch, a=[AWAY, AWAY, AWAY, None])
    streams.run(lambda: streams.starts["a"] == 4)


def test_pauses_grow_up_to_a_bound() -> None:
    pauses = [pause_s(attempts, most_s=300.0) for attempts in range(1, 30)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1.0, 300.0)


def test_a_drain_goes_to_the_end_of_every_call(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LaneFenced("another owner", remedy="look")

    results, failures = drain({"a": lambda: 1, "b": fail, "c": lambda: 3})
    assert (results, [type(failure) for failure in failures]) == ([1, 3], [LaneFenced])
    assert "b why=another owner" in caplog.text
    assert drain({}) == ([], [])


# -- a running mirror and its file ------------------------------------------------------------------------------------


class OpenMirror:
    """What `ControlWatch` needs of a mirror's connections."""

    def __init__(self, path: Path, table: Table) -> None:
        self.config = load(path)
        self.read_at = NOON + timedelta(hours=1)
        self.table = table

    def control(self) -> Table:
        return self.table

    def adopt(self, config: Any) -> None:
        self.config = config


@pytest.fixture
def watched(tmp_path: Path) -> SimpleNamespace:
    path, table = tmp_path / "mirror.yml", Table()
    path.write_text(SETTINGS)
    control_step.put_in_force(load(path), table)  # type: ignore[arg-type]
    mirror = OpenMirror(path, table)
    watch = ControlWatch(mirror)  # type: ignore[arg-type]
    watch.look()

    def edit(text: str, *, apply: bool = True) -> None:
        path.write_text(text)
        if apply:
            control_step.put_in_force(load(path), table)  # type: ignore[arg-type]

    return SimpleNamespace(path=path, table=table, mirror=mirror, watch=watch, edit=edit)


EDITED = SETTINGS.replace("topics: orders", "topics: clicks")


def topics(watched: SimpleNamespace) -> str:
    watched.watch.look()
    return str(watched.mirror.config.flows[0].topics)


def test_an_edit_counts_when_it_is_applied(watched: SimpleNamespace) -> None:
    watched.edit(EDITED, apply=False)
    assert topics(watched) == "orders"
    watched.edit(EDITED)
    assert topics(watched) == "clicks"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SETTINGS.replace("orders", "rent"), "is not what was applied"),
        ("flows: [", "fault"),
        (SETTINGS.replace("topics: orders", "topcs: orders"), "topcs"),
    ],
)
def test_a_file_that_is_not_what_was_applied_is_told_once_and_adopted_when_it_is(
    text: str, says: str, watched: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    watched.edit(EDITED)
    watched.edit(text, apply=False)
    assert topics(watched) == topics(watched) == "orders"
    [record] = caplog.records
    assert says in record.getMessage()
    watched.edit(EDITED, apply=False)
    assert topics(watched) == "clicks"


def test_another_lake_or_an_unresolved_secret_does_not_end_what_runs(
    watched: SimpleNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.edit(SETTINGS.replace("./lake", "./other"))
    watched.watch.look()
    assert watched.mirror.config.lake.root == "./lake"
    assert "another lake is another mirror" in caplog.text
    watched.edit(EDITED.replace("hunter2", '"${env:NOT_SET_YET}"'))
    assert topics(watched) == "orders"
    assert "NOT_SET_YET" in caplog.text
    monkeypatch.setenv("NOT_SET_YET", "hunter2")
    assert topics(watched) == "clicks"


def test_a_table_that_cannot_be_read_ends_nothing(
    watched: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject = Subject(kind="flow", name="east->west")
    control_step.pause(watched.table, subject)
    assert watched.watch.look().pauses

    def fail() -> None:
        raise OSError("no store")

    monkeypatch.setattr(watched.table, "state", fail)
    assert watched.watch.look().pauses, "what was known holds on"
    assert "no store" in caplog.text
