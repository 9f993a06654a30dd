"""Intentions, edits of settings, what a checkpoint location has passed, and a running mirror that follows its file."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config import identity, load, loads, plain
from mirrorlake.errors import UsageError
from mirrorlake.mirror.control_watch import ControlWatch
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.control import Intention, Subject, state_of
from mirrorlake.topics import settings_in_force as control_step
from mirrorlake.topics.edits import edits
from tests.unit.topics.kit import NOON, SETTINGS, Table

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


@pytest.mark.law("E")
def test_law_e_a_flow_of_another_settings_file_is_known_until_it_is_retired() -> None:
    table, mine = Table(), loads(SETTINGS)
    other = {"source": "east", "target": "west", "topics": ["orders"], "start": "latest"}
    later = {"source": "east", "target": "west", "topics": ["("], "of_a_later_release": True}

    def known() -> list[tuple[str, bool, bool]]:
        flows = control_step.flows_of_other_files(mine, table.state())
        return [(flow.name, flow.carries("orders"), flow.carries("clicks")) for flow in flows]

    control_step.record_flow(mine, table, mine.flows[0].name)  # type: ignore[arg-type]
    control_step.record_flow(mine, table, mine.flows[0].name)  # type: ignore[arg-type]
    assert (len(table.rows), known()) == (1, [])
    table.append("apply", Subject(kind="settings"), value={"flows": {"applied": other}})
    table.append("begin", Subject(kind="known_flow", name="begun"), value=later)
    # The file of the first one is applied again, without the other flow.
    table.append("apply", Subject(kind="settings"), value={"flows": {}})
    assert known() == [("applied", True, False), ("begun", True, True)]
    table.append("retire", Subject(kind="known_flow", name="applied"))
    assert known() == [("begun", True, True)]
    assert table.state().retired_flows == {"applied"}
    table.append("begin", Subject(kind="known_flow", name="applied"), value=other)
    assert (len(known()), table.state().retired_flows) == (2, frozenset()), "it runs again"


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


def test_flows_that_are_put_in_force_one_by_one_are_what_the_whole_file_says() -> None:
    two = SETTINGS + "  - {name: back, source: west, target: east, topics: pay}\nsampling: {every: 5s}\n"
    config, table = loads(two), Table()
    for flow in ("east->west", "back"):
        control_step.put_in_force(config, table, flow=flow)  # type: ignore[arg-type]
    assert not control_step.put_in_force(config, table), "nothing is left to be applied"  # type: ignore[arg-type]
    control_step.put_in_force(loads(two.replace("5s", "9s")), table, flow="back")  # type: ignore[arg-type]
    assert not control_step.put_in_force(config, table), "what belongs to no flow stays"  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SETTINGS.replace("orders", "rent"), "is not what was applied"),
        ("flows: [", "fault"),
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
