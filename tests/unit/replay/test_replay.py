"""Replays: what is asked for, what of it the relay holds, and what speaks against it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import Audit
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import TopicSpec
from mirrorlake.model.replay import Definition, chain
from mirrorlake.procedure import Journal
from mirrorlake.progress import Board
from mirrorlake.replay.flows import flow_of, view_of_replay
from mirrorlake.replay.plan import ReplayPlan
from mirrorlake.replay.register import COMMAND, END, Register
from mirrorlake.replay.replay import find_replay, plan_begun, plan_replay
from mirrorlake.replay.request import NO_CONSENT, ReplayConsent, ReplayRequest, flow_name, parse_header
from mirrorlake.replay.run import run_replay
from mirrorlake.rules import HopAdded, Restamped, view_of_flow
from mirrorlake.rules.view import Viewed
from tests.builders import ORDERS, batch_of, mirror_config
from tests.kit.lake import LakeBuilder, Row, rows
from tests.kit.memory_cluster import MemoryCluster

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


def settings(flow: Mapping[str, Any] | None = None, **east: Any) -> MirrorConfig:
    """Return settings of a flow from east to central."""
    return mirror_config({"target": "central", **(flow or {})}, east=east)


class Cluster(MemoryCluster):
    """A target whose brokers have settings of their own."""

    def __init__(self) -> None:
        super().__init__("central")
        self.broker: dict[str, str | None] = {"log.retention.hours": "168", "log.cleanup.policy": "delete"}

    def broker_configs(self) -> Mapping[str, str | None]:
        return self.broker

    def replayed(self, partitions: int, *, held: int = 0, **configs: str) -> None:
        """Hold the topic of the replay with so many partitions, offsets in each, and settings."""
        self.delete("orders.replayed")
        self.create(TopicSpec(name="orders.replayed", partitions=partitions, configs=configs))
        for log in self.topics["orders.replayed"].logs:
            log.end = held


class World:
    """A lake with ten records a partition of `orders`, a second apart, the newest at noon; and a target."""

    def __init__(self, folder: Path) -> None:
        self.built = LakeBuilder(folder)
        self.lake = self.built.lake
        self.cluster = Cluster()
        self.now = NOON
        self.built.turn(*(self.rows(partition, range(10)) for partition in range(2)))
        self.topic(configs={"retention.ms": "600000"})

    def rows(self, partition: int, offsets: Iterable[int], **more: Any) -> list[Row]:
        times = {at: NOON - timedelta(seconds=9 - at) for at in offsets}
        return [row for at, time in times.items() for row in rows("orders", partition, at, timestamp=time, **more)]

    def topic(self, **columns: Any) -> None:
        self.built.observe("orders", **{"partitions": 3, "observed_at": NOON - timedelta(hours=1), **columns})

    def context(self, config: MirrorConfig | None = None) -> Any:
        """Return a context with what a plan may ask: settings, lake, clock and the one cluster."""
        return SimpleNamespace(
            config=config or settings(),
            lake=self.lake,
            admin=lambda _: self.cluster,
            audit=lambda: Audit(self.lake, now=lambda: self.now),
            now=lambda: self.now,
            board=lambda: Board(None, clock=lambda: 0.0),
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def asked(**more: Any) -> ReplayRequest:
    return ReplayRequest(**{"source": "east", "topic": "orders", "into": "central:orders.replayed", **more})


def begin(world: World, definition: Definition) -> Journal:
    journal = Register(world.context()).journal(definition.name, target=definition.target)
    journal.begin(COMMAND, operation_id=definition.name, after=definition.as_dict())
    return journal


def plan(world: World, leave: ReplayConsent = NO_CONSENT, name: str | None = None, **more: Any) -> ReplayPlan:
    return plan_replay(world.context(), asked(timestamps="shifted", **more), name=name, leave=leave)


@pytest.mark.law("F")
def test_law_f_the_same_words_give_the_same_name_and_others_another() -> None:
    first, second = (flow_name(None, "orders", asked(**more).words()) for more in ({}, {"end": "-2h"}))
    assert first == flow_name(None, "orders", asked().words()) != second
    assert first.startswith("replay.orders.")
    assert flow_name("march", "", {}) == flow_name("replay.march", "", {}) == "replay.march"
    for wrong in ("", "../x", "a b", "x.redrive", "-x"):
        with pytest.raises(UsageError, match="is not a name"):
            flow_name(wrong, "", {})
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_header("kind")


@pytest.mark.law("F")
def test_law_f_a_name_belongs_to_what_was_begun_under_it(world: World) -> None:
    found = plan(world, name="march")
    begin(world, found.definition)
    world.built.turn(world.rows(0, [10, 11]))
    again = plan(world, name="march")
    assert (again.state, again.definition) == ("begun", found.definition), "what was begun is not planned anew"
    assert plan_begun(world.context(), find_replay(world.context(), "march")).definition == found.definition
    with pytest.raises(SafetyError, match="another end"):
        plan(world, name="march", end="now")
    late, world.now = replace(found.definition, planned_at_ms=1), NOON + timedelta(seconds=1)
    journal = begin(world, late)
    begun = Register(world.context()).all()["replay.march"]
    assert begun.definition == found.definition, "of two that begin at once, both send what the first wrote down"
    journal.write(begun.operation, END, after={"records": 20})
    assert plan(world, name="march").state == "done"
    assert not plan(world, name="march").refusals
    with pytest.raises(UsageError, match="no replay 'april' was begun"):
        find_replay(world.context(), "april")


def test_what_the_target_would_delete_or_refuse_is_said_before(world: World) -> None:
    world.topic(configs={"retention.ms": "60000"})
    world.now = NOON + timedelta(hours=2)

    def refusals(leave: ReplayConsent = NO_CONSENT, **more: Any) -> list[str]:
        return [one.why for one in plan_replay(world.context(), asked(**more), leave=leave).refusals]

    [why] = refusals()
    assert "keeps records for 1 min" in why
    with pytest.raises(SafetyError, match="--accept-expiry") as refused:
        run_replay(world.context(), plan_replay(world.context(), asked()), stop=threading.Event())
    assert refused.value.exit_code == 3
    assert refusals(ReplayConsent(accept_expiry=True)) == refusals(ReplayConsent(hold_retention=True)) == []
    assert refusals(timestamps="shifted") == refusals(timestamps="now") == []
    world.cluster.replayed(3, **{"message.timestamp.before.max.ms": "1000", "cleanup.policy": "compact"})
    [why] = refusals(ReplayConsent(accept_expiry=True))
    assert "message.timestamp.before.max.ms" in why
    world.cluster.replayed(3, **{"message.timestamp.type": "LogAppendTime"})
    assert refusals() == []
    world.topic()
    world.cluster.delete("orders.replayed")
    world.cluster.broker |= {"log.retention.ms": "1000"}
    [why] = refusals()
    assert "keeps records for 1" in why, "a new topic gets what the brokers say"


def test_a_topic_with_other_content_or_too_few_partitions_is_refused(world: World) -> None:
    world.cluster.replayed(2, held=5)
    fit, content = plan(world).refusals
    assert "2 partitions" in fit.why
    assert content.flag == "--append"
    world.cluster.replayed(3, held=5)
    assert plan(world, ReplayConsent(append=True)).refusals == ()
    world.cluster.replayed(3)
    assert plan(world).refusals == ()
    [why] = plan(world, into="central:east.orders").refusals
    assert "east->central writes east.orders" in why.why


def test_what_left_the_relay_is_said(world: World) -> None:
    world.built.add("removed", removal="a", first_offset=0, last_offset=3, kind="expired", record_count=4, reason="1d")
    [note] = plan(world).notes
    assert "4 records of orders-0 from offset 0 to 3 left the relay" in note
    assert plan(world, from_offset=4).notes == ()


@pytest.mark.law("D")
def test_law_d_a_log_that_went_back_is_replayed_as_its_source_holds_it(world: World) -> None:
    assert chain([(2, 4)], 1) == {1: (0, 4), 2: (4, None)}
    world.built.turn(world.rows(0, range(4, 7), generation=2))
    world.topic(partitions=2, cuts=[{"partition": 0, "generation": 2, "first_offset": 4}])
    spans = [(s.partition, s.generation, s.first, s.end) for s in plan(world).definition.spans]
    assert sorted(spans) == [(0, 1, 0, 4), (0, 2, 4, 7), (1, 1, 0, 10)]
    old = plan(world, generation=1).definition.spans
    assert sorted((s.partition, s.first, s.end) for s in old) == [(0, 0, 10), (1, 0, 10)]


def test_a_replays_flow_carries_its_topic_and_nothing_else(world: World) -> None:
    config = settings({"lanes": 5, "rules": [{"drop": "key = 'x'"}]})
    definition = plan_replay(world.context(config), asked(through="east->central", timestamps="now")).definition
    flow = flow_of(definition, config)
    assert (flow.carries("orders"), flow.carries("orders2"), flow.remote_topic("orders")) == (
        True,
        False,
        "orders.replayed",
    )
    assert (flow.lanes, [rule.action for rule in flow.rules]) == (5, ["drop"])
    assert view_of_replay(definition, flow) is not None
    begin(world, definition)
    changed = settings({"lanes": 5, "rules": [{"drop": "key = 'y'"}]})
    with pytest.raises(SafetyError, match="rules of east->central have changed"):
        plan_replay(world.context(changed), asked(through="east->central", timestamps="now"))


@pytest.mark.law("C")
def test_timestamps_and_hops_are_stages_that_say_what_they_do() -> None:
    records = batch_of([4, 5], values=[b"a", b"b"], stamps=[1000, -1], headers=[None, [{"key": "a", "value": b"1"}]])
    shifted = Restamped(shift_ms=500)(ORDERS, Viewed(records=records)).records
    assert shifted["timestamp"].cast(pa.int64()).to_pylist() == [1500, -1], "a record without a timestamp keeps none"
    assert Restamped(fixed_ms=7)(ORDERS, Viewed(records=records)).records["timestamp"].cast(pa.int64())[0].as_py() == 7
    hops = HopAdded(alias="east")(ORDERS, Viewed(records=records)).records["headers"].to_pylist()
    assert [one[-1]["value"] for one in hops] == [b"east/orders/0/4", b"east/orders/0/5"]
    assert hops[1][0] == {"key": "a", "value": b"1"}


@pytest.mark.law("F")
def test_law_f_a_topic_that_is_mirrored_both_ways_knows_where_replayed_records_come_from(world: World) -> None:
    there = {"source": "east", "target": "central", "topics": "orders.*", "policy": "identity"}
    context = world.context(mirror_config(there, {**there, "source": "central", "target": "east"}))
    found = plan_replay(context, asked(timestamps="shifted"))
    assert found.definition.hops
    view = view_of_replay(found.definition, flow_of(found.definition, context.config))
    assert view is not None
    sent = view(ORDERS, batch_of([4], values=[b"a"])).records
    back = view_of_flow(context.config.flow("central->east"))
    assert back is not None
    assert len(back(SourcePartition("orders.replayed", 1, 0), sent).records) == 0, "it goes back to where it came from"
    assert "keeps what comes from east from going back" in found.notes[0]
    assert plan_replay(context, asked(into="central:elsewhere", timestamps="shifted")).definition.hops is False
    [why] = plan_replay(context, asked(into="central:orders", timestamps="shifted")).refusals
    assert "east->central writes orders" in why.why
