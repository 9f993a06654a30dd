"""Which topics of a flow wait for an error, and which claims keep a stream from stepping over them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import (
    ClusterUnreachable,
    LoginRefused,
    MirrorlakeError,
    NotAuthorized,
    RecordTooLarge,
    StoreError,
    UnsendableRecord,
)
from mirrorlake.lake import KnownTopic
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.control import CLEAR, PARK, ControlState
from mirrorlake.model.parked import Parked, parked_of, whole_stream
from mirrorlake.republish.follower_driver import LedgerOutages
from mirrorlake.republish.waiting_topics import WaitingTopics, topics_at_fault
from tests.builders import NOON, mirror_config
from tests.unit.republish.kit import owned_flow

FLOW = mirror_config({"target": "central", "topics": "orders, clicks"}).flows[0]
KNOWN = ("orders", "clicks", "others")


@pytest.mark.parametrize(
    ("error", "topics"),
    [
        (RecordTooLarge("r", topic="east.orders", source_topic="orders"), {"orders"}),
        (UnsendableRecord("u", topic="orders", partition=0, offset=1), {"orders"}),
        (StoreError("cut", source_topic="clicks", broken_file="/lake/relay/east/a.parquet"), {"clicks"}),
        (NotAuthorized("no", resource="TOPIC", name="east.clicks"), {"clicks"}),
        (NotAuthorized("its ledger", resource="TOPIC", name=FLOW.ledger_topic), set()),
        (NotAuthorized("its lane", resource="TRANSACTIONAL_ID", name="mirrorlake.east.central.0"), set()),
        (ClusterUnreachable("away"), set()),
        (StoreError("the lake is full"), set()),
    ],
    ids=lambda value: str(value)[:12],
)
def test_an_error_of_one_topic_is_told_from_one_that_stops_the_flow(error: MirrorlakeError, topics: set[str]) -> None:
    assert topics_at_fault(error, FLOW, KNOWN) == topics


class Control:
    """The table `control` of one test."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.parked: dict[str, Parked] = {}

    def state(self) -> ControlState:
        return ControlState(parked=self.parked)

    def append(self, action: str, subject: Any, *, value: Any) -> None:
        self.rows.append((action, subject.name))
        if action == PARK:
            self.parked[subject.name] = parked_of(subject.name, NOON, value)
        else:
            self.parked.pop(subject.name)


def test_what_waits_is_told_once_and_cleared_when_it_goes_on() -> None:
    control = Control()
    waiting = WaitingTopics(cast("Any", control), FLOW.name, now=lambda: NOON)
    assert not waiting.begin_check(), "nothing waits"
    large = RecordTooLarge("r", remedy="raise it", topic="east.orders", source_topic="orders")
    waiting.add({"orders": large}, limit="50000")
    waiting.publish()
    name = "east->central: topic orders"
    assert control.rows == [(PARK, name)]
    assert (waiting.limit("orders"), control.parked[name].is_retried) == ("50000", True)
    waiting.add({"clicks": UnsendableRecord("u", topic="clicks")})
    assert [whole_stream(one) for one in control.parked] == [FLOW.name, FLOW.name]
    assert "mirrorlake resume --flow 'east->central'" in control.parked["east->central: topic clicks"].next_step
    waiting.release("orders")
    waiting.release("clicks")
    assert control.rows[-2:] == [(CLEAR, name), (CLEAR, "east->central: topic clicks")]
    assert not waiting


class Remotes:
    """Remote topics of which some do not answer, and one still has the limit of before."""

    def __init__(self, *, limits: dict[str, str], silent: str = "") -> None:
        self.limits, self.silent = limits, silent

    def max_message_bytes(self, remote: str) -> str:
        if remote == self.silent:
            raise ClusterUnreachable("away")
        return self.limits[remote]

    def ensure(self, *_: Any, **__: Any) -> None:
        pass


@pytest.mark.law("D")
def test_law_d_what_is_released_is_said_to_be_due_also_where_another_topic_cannot_be_checked() -> None:
    waiting = WaitingTopics(cast("Any", Control()), FLOW.name, now=lambda: NOON)
    known = {name: KnownTopic(name=name, topic_id=name, partitions=1) for name in ("orders", "clicks", "third")}
    for name in known:
        waiting.add({name: RecordTooLarge("r", topic=f"east.{name}", source_topic=name)}, limit="5")
    remotes = Remotes(limits={"east.orders": "9", "east.third": "5"}, silent="east.clicks")
    owned = owned_flow(
        settings=SimpleNamespace(flow=FLOW),
        topics=SimpleNamespace(load=lambda: known, known=known),
        remotes=remotes,
        claims=SimpleNamespace(positions={}, claim=SimpleNamespace(scope=CheckpointScope())),
        waiting=waiting,
    )
    assert owned.release_topics(), "whoever asks sends what the relay holds of it before what is new"
    assert {*waiting} == {"clicks", "third"}
    assert {source.topic for source in owned.ready} == {"orders"}
    remotes.silent, remotes.limits["east.clicks"] = "", "5"
    assert not owned.release_topics(), "the limit is the same"


def test_a_ledger_that_is_away_waits_and_a_refused_login_ends_the_tasks() -> None:
    with LedgerOutages("east->central").tolerated():
        raise ClusterUnreachable("central does not answer")
    with pytest.raises(LoginRefused), LedgerOutages("east->central").tolerated():
        raise LoginRefused("central: SASL fails")
