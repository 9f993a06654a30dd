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
from mirrorlake.republish.follower_driver import LedgerOutages
from mirrorlake.republish.waiting_topics import WaitingTopics, topics_at_fault
from tests.builders import NOON, mirror_config
from tests.unit.republish.kit import owned_flow
from tests.unit.topics.kit import Table

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
    waiting = WaitingTopics(cast("Any", Table()), FLOW.name, now=lambda: NOON)
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
