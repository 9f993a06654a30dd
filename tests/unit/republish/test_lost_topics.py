"""Lost remote topics: which are found, what a choice settles, and that an owner may die between any two claims (law F)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.errors import RemoteTopicLost, UsageError
from mirrorlake.lake.metadata import unseen_incarnations
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import LedgerRecord, merged_positions
from mirrorlake.model.remotes import (
    ACCEPT_EMPTY,
    SEND_AGAIN,
    LossChoice,
    LossResolution,
    LostTopic,
    Remote,
    detect_lost_topics,
    known_id,
    resolve_losses,
    truncated_id,
)
from mirrorlake.republish import Quarantine, quarantine, resolve_lost_topic
from tests.builders import ledger_record
from tests.unit.values import NOON

A, B = SourcePartition("a", 1, 0), SourcePartition("b", 1, 0)
Positions = Mapping[SourcePartition, int]


def all_in_one(_: str) -> str:
    return "all"


def own(topic: str) -> str:
    return f"east.{topic}"


def found_lost(known: Mapping[str, Remote], there: Mapping[str, str], remote_topic=own, sent=(A, B)) -> list[LostTopic]:  # type: ignore[no-untyped-def]
    return detect_lost_topics(
        flow="f", target="west", known=known, positions=sent, found=there, remote_topic=remote_topic
    )


@pytest.mark.law("F")
def test_law_f_another_id_or_none_is_found_and_everything_else_is_not() -> None:
    known = {"a": Remote("east.a", "1"), "b": Remote("east.b", "2")}
    assert found_lost(known, {"east.a": "1", "east.b": "2"}) == []
    assert [(one.remote, one.known, one.found) for one in found_lost(known, {"east.a": "9"})] == [
        ("east.a", "1", "9"),
        ("east.b", "2", None),
    ]
    # A ledger from before ids were kept, and a cluster that gives none.
    assert found_lost({}, {"east.a": "1", "east.b": "2"}) == []
    gone = found_lost({}, {"east.a": "1"})
    assert [one.remote for one in gone] == ["east.b"]
    waits = resolve_losses(
        lost=gone, choices=[], known={}, positions={A: 5, B: 5}, found={"east.a": "1"}, remote_topic=own
    )
    assert waits.remotes["a"] == Remote("east.a", "1")
    made_by_hand = {"east.a": "1", "east.b": "8"}
    assert [one.remote for one in found_lost(waits.remotes, made_by_hand)] == ["east.b"], "it is not another topic's id"
    assert found_lost(known, {"east.a": known_id("AAAAAAAAAAAAAAAAAAAAAA"), "east.b": "2"}) == []


@pytest.mark.law("F")
def test_law_f_source_topics_that_share_a_remote_topic_wait_together() -> None:
    known = {"a": Remote("all", "1"), "b": Remote("all", "1")}
    [held] = found_lost(known, {"all": "2"}, all_in_one)
    assert held.topics == ("a", "b")
    earlier = [LossChoice(flow="f", remote="all", known="0", action=SEND_AGAIN)]
    there = {"known": known, "positions": {A: 5}, "found": {"all": "2"}, "remote_topic": all_in_one}
    kept = resolve_losses(lost=[held], choices=earlier, **there)
    assert kept == LossResolution(positions={A: 5}, remotes=known, lost=(held,)), "a choice of an earlier loss is none"


@pytest.mark.law("E", "F")
def test_law_e_a_topic_that_is_carried_again_later_is_sent_again_with_those_that_it_shares_a_remote_topic_with() -> (
    None
):
    known = {"a": Remote("all", "1"), "b": Remote("all", "1"), "c": Remote("elsewhere", "3")}
    positions = {A: 5, B: 7, SourcePartition("c", 1, 0): 9}
    # The flow does not carry b now.
    held = found_lost(known, {"all": "2"}, all_in_one, sent=[A])
    assert [one.topics for one in held] == [("a",)]
    for action, left in ((SEND_AGAIN, {SourcePartition("c", 1, 0): 9}), (ACCEPT_EMPTY, positions)):
        choice = LossChoice(flow="f", remote="all", known="1", action=action)
        settled = resolve_losses(
            lost=held, choices=[choice], known=known, positions=positions, found={"all": "2"}, remote_topic=all_in_one
        )
        assert settled.positions == left, "law E: what b lost with the others would never be sent again"
        assert settled.remotes["b"] == Remote("all", "2")


@pytest.mark.law("F")
def test_law_f_no_end_of_an_earlier_life_counts_where_source_topics_share_a_remote_topic() -> None:
    # Of b nothing was sent since the topic was begun again before.
    known = {"a": Remote("all", "2"), "b": Remote("all", "2")}
    held = found_lost(known, {"all": "3"}, all_in_one, sent=[A])
    there = {"lost": held, "known": known, "positions": {A: 5}, "found": {"all": "3"}, "remote_topic": all_in_one}
    choice = LossChoice(flow="f", remote="all", known="2", action=SEND_AGAIN)
    again = resolve_losses(choices=[choice], **there)  # type: ignore[arg-type]
    assert again.remotes == {"a": Remote("all", "3"), "b": Remote("all", "3")}
    assert again.continuing(known) == frozenset()
    assert LossResolution(remotes={**known, "a": Remote("all", "3")}).continuing(known) == frozenset(), "b says it"
    assert LossResolution(remotes=known).continuing(known) == {"all"}
    waits = resolve_losses(choices=[], **there)  # type: ignore[arg-type]
    assert (waits.remotes, waits.lost_remotes, waits.continuing(known)) == (known, {"all"}, frozenset())


@pytest.mark.law("F")
@pytest.mark.parametrize("action", [SEND_AGAIN, ACCEPT_EMPTY])
@pytest.mark.parametrize("claims", [1, 2, 3])
def test_law_f_an_owner_that_dies_between_two_claims_leaves_no_doubt_about_a_choice(action: str, claims: int) -> None:
    def record(lane: int, epoch: int, positions: Positions, remotes: Mapping[str, Remote]) -> LedgerRecord:
        held = {"positions": positions, "remotes": remotes}
        return ledger_record(flow="f", lane=lane, lanes=3, epoch=epoch, owner=str(epoch), seq=epoch, **held)

    before = {"a": Remote("east.a", "1"), "b": Remote("east.b", "2")}
    sent = {A: 50, B: 70}
    ledger = {
        0: record(0, 1, {A: 50}, {"a": before["a"]}),
        1: record(1, 1, {B: 70}, {"b": before["b"]}),
        2: record(2, 1, {A: 9, B: 9}, before),
    }
    there = {"east.a": "7", "east.b": "2"}
    choice = LossChoice(flow="f", remote="east.a", known="1", action=action)
    for epoch in (2, 3):
        known = merged_positions(ledger, own)
        ends = {"known": known.remotes, "positions": known.positions, "found": there, "remote_topic": own}
        settled = resolve_losses(lost=found_lost(known.remotes, there), choices=[choice], **ends)
        for lane in range(claims if epoch == 2 else 3):
            ledger[lane] = record(lane, epoch, settled.positions, settled.remotes)
    expected = {B: 70} if action == SEND_AGAIN else sent
    after = merged_positions(ledger, own)
    assert after.positions == expected
    assert after.remotes == {"a": Remote("east.a", "7"), "b": before["b"]}
    assert (after.earlier, after.renamed, found_lost(after.remotes, there)) == ({}, {}, [])


@pytest.mark.law("E", "F")
@pytest.mark.parametrize("claims", [0, 1, 2])
@pytest.mark.parametrize("policy", [own, all_in_one])
def test_law_f_an_owner_that_dies_between_two_claims_keeps_the_positions_of_each_name_apart(
    policy: Callable[[str], str], claims: int
) -> None:
    def record(lane: int, epoch: int, **held: Any) -> LedgerRecord:
        return ledger_record(flow="f", lane=lane, lanes=2, epoch=epoch, owner=str(epoch), seq=epoch, **held)

    before = {"a": Remote("east.a", "1"), "b": Remote("east.b", "2")}
    every = Remote("all", "3")
    ledger = {
        0: record(0, 1, positions={A: 5}, remotes={"a": before["a"]}, earlier={every: {A: 2}}),
        1: record(1, 1, positions={B: 7}, remotes={"b": before["b"]}, earlier={every: {A: 2}}),
    }
    # A policy that nobody had before, or the one of the second topic; lanes beyond `claims` are those of the owner before.
    for epoch, named in ((2, lambda topic: f"new.{topic}"), (3, all_in_one)):
        sent = merged_positions(ledger, named)
        for lane in range(claims):
            ledger[lane] = record(lane, epoch, positions=sent.positions, remotes=sent.remotes, earlier=sent.earlier)
    kept = merged_positions(ledger, policy)
    if policy is own:
        assert (kept.positions, kept.remotes, kept.earlier) == ({A: 5, B: 7}, before, {every: {A: 2}})
    else:
        assert (kept.positions, kept.remotes) == ({A: 2}, {"a": every})
        assert kept.earlier == {before["a"]: {A: 5}, before["b"]: {B: 7}}
        assert kept.renamed.keys() == ({"b"} if claims else {"a", "b"})


@pytest.mark.law("F")
def test_law_f_a_topic_whose_log_went_back_waits_until_it_is_deleted() -> None:
    called = truncated_id("1", {0: (120, 216), 3: (0, 7)})
    known = {"a": Remote("east.a", called), "b": Remote("east.b", "2")}
    [held] = found_lost(known, {"east.a": "1", "east.b": "2"})
    assert held.is_truncated
    assert held.cause == (
        "the log of east.a on west was truncated; f had sent the records it lost: "
        "partition 0 ends at 120 and had records up to 216, partition 3 ends at 0 and had records up to 7"
    )
    assert held.remedy.startswith("delete east.a on west, then `mirrorlake republish")
    with pytest.raises(UsageError, match=r"delete east\.a on west"):
        resolve_lost_topic(Any, SimpleNamespace(name="f"), "east.a", [held], send_again=True)  # type: ignore[arg-type]
    there = {"known": known, "positions": {A: 5, B: 7}, "remote_topic": own}
    waits = resolve_losses(lost=[held], choices=[], found={"east.a": "1", "east.b": "2"}, **there)
    assert (waits.remotes, waits.waiting) == (known, {"a"}), "the claim keeps it, whatever the log's end says later"
    [gone] = found_lost(known, {"east.b": "2"})
    assert (gone.is_truncated, gone.cause.split(";")[0]) == (False, "east.a was deleted on west")
    choice = LossChoice(flow="f", remote="east.a", known=called, action=SEND_AGAIN)
    again = resolve_losses(lost=[gone], choices=[choice], found={"east.a": "3", "east.b": "2"}, **there)
    assert (again.positions, again.remotes["a"]) == ({B: 7}, Remote("east.a", "3"))


@pytest.mark.law("A")
def test_law_a_a_lost_life_that_nobody_saw_comes_before_what_was_seen() -> None:
    def seen(topic: str, topic_id: str, hour: int) -> SimpleNamespace:
        return SimpleNamespace(topic=topic, topic_id=topic_id, observed_at=NOON.replace(hour=hour))

    looked = [seen("east.a", "2", 3), seen("east.b", "1", 2), seen("east.b", "2", 3)]
    lost = {"east.a": "1", "east.b": "1", "east.c": "1"}
    found = {topic.name: (topic, at) for topic, at in unseen_incarnations(lost, looked, now=NOON)}
    assert found.keys() == {"east.a", "east.c"}
    assert found["east.a"][1] < NOON.replace(hour=3), "the new life is the present one"
    assert found["east.a"][0].topic_id == "1"


@pytest.mark.law("F")
def test_law_f_a_redrive_sends_nothing_to_a_topic_that_waits_for_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    waits = LostTopic(flow="f", target="west", remote="east.a", topics=("a",))
    context: Any = SimpleNamespace(
        lake=SimpleNamespace(create_all=lambda _: None),
        audit=lambda: SimpleNamespace(record=lambda *_, **__: sent.append(_)),
    )
    desk = Quarantine(context, SimpleNamespace(source="east"))  # type: ignore[arg-type]
    monkeypatch.setattr(quarantine, "find_lost_topics", lambda *_: [waits])
    monkeypatch.setattr(desk, "summary", lambda: [SimpleNamespace(topic="a")])
    with pytest.raises(RemoteTopicLost, match=r"--send-again"):
        desk.redrive()
    assert not sent
    monkeypatch.setattr(desk, "summary", lambda: [SimpleNamespace(topic="b")])
    monkeypatch.setattr(quarantine, "sending_settings", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        desk.redrive()
