"""The console against real brokers: a flow is set up by its buttons, then watched, explored and browsed."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.loading import load
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.mirror.results import RepublishResult
from mirrorlake.model.flow import TopicPartition
from mirrorlake.notebook.console import console
from mirrorlake.notebook.console.run import RunLook
from mirrorlake.notebook.console.window import Console
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import commit, create_topic, send, topic_name
from tests.unit.markup import unwrapped

EVIL = b"<script>alert(1)</script>"


def add_cluster(made: Console, alias: str, servers: str, never_leave: str = "") -> None:
    view = made.wizard.clusters
    view.new.click()
    view.alias.value, view.servers.value, view.never_leave.value = alias, servers, never_leave
    view.test.click()
    assert "answers" in view.result.value, view.result.value
    view.add.click()


@pytest.mark.law("G")
def test_the_wizard_makes_the_topics_that_it_showed(
    east: KafkaCluster, central: KafkaCluster, spark: SparkSession, empty_lake: Path, tmp_path: Path
) -> None:
    name = topic_name("console")
    topics = {name: 3, f"{name}.clicks": 1, f"{name}.tmp": 1, f"{name}.pii": 1}
    for topic, partitions in topics.items():
        create_topic(east, topic, partitions)
    send(east, name, [(EVIL if number == 2 else b"{}", str(number).encode(), 0) for number in range(4)])
    commit(east, f"{name}-group", name, {0: 3})
    shutil.copytree(empty_lake, tmp_path / "lake")
    target = ClusterAdmin("central", {"bootstrap.servers": central.bootstrap_servers})
    before = set(target.topic_names())

    with console(spark=spark) as made:
        wizard = made.wizard
        wizard.clusters.alias.value, wizard.clusters.servers.value = "east", "nonsense"
        wizard.clusters.test.click()
        assert "is not a host:port" in made.session.errors.errors[0]
        made.session.errors.clear()
        add_cluster(made, "east", east.bootstrap_servers, never_leave=f"{name}.pii")
        add_cluster(made, "central", central.bootstrap_servers)

        flow = wizard.flow
        flow.source.value, flow.target.value = "east", "central"
        flow.topics.value, flow.exclude.value = f"{name}.*", f"{name}.tmp"
        flow.name.value = name
        flow.keep.value = ""
        flow.look.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        for word in (f"east.{name}.clicks", "never_leave keeps it", "exclude_topics excludes it"):
            assert word in unwrapped(flow.preview.value)
        assert f"{name}-group" in flow.groups_there["east"]
        flow.policy.value, flow.template.value = "template", "all.{topic}"
        assert f"all.{name}.clicks" in unwrapped(flow.preview.value)

        review = wizard.review
        review.root.value, review.path.value = str(tmp_path / "lake"), str(tmp_path / "mirror.yml")
        review.review.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        assert f"all.{name}" in unwrapped(review.plan.value)
        assert set(target.topic_names()) == before, "law G: looking changes nothing"
        review.apply.click()
        assert review.apply.disabled
        assert set(target.topic_names()) == before
        review.save.click()
        review.confirm.value = name
        review.apply.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        wanted = {f"all.{name}": 3, f"all.{name}.clicks": 1}
        made_there = {topic: state.partitions for topic, state in target.describe(target.topic_names()).items()}
        # Kafka's own topics come with the first consumer that asks for its coordinator.
        assert {topic: n for topic, n in made_there.items() if topic not in before and not topic.startswith("__")} == {
            **wanted,
            f"mirrorlake.{name}.ledger": 2,
        }
        saved = load(tmp_path / "mirror.yml")
        assert made.mirror is not None
        assert saved.model_dump() == made.mirror.config.model_dump()
        assert not made.mirror.plan(name), "law G: applied twice changes nothing"

        flow.source.value, flow.target.value, flow.name.value = "east", "central", name
        assert "is a flow already" in flow.taken.value
        flow.use_free.click()
        flow.topics.value = f"{name}.tmp"
        review.review.click()
        review.confirm.value = f"{name}-2"
        review.apply.click()
        review.save.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        assert [one.name for one in load(tmp_path / "mirror.yml").flows] == [name, f"{name}-2"], "beside the first"

        wizard.run.once.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        assert "4 records landed" in wizard.run.said.value
        # As in a notebook: the loop runs, and clicks only start work in it.
        asyncio.run(runs_and_stops(made, lambda: send(east, f"{name}.clicks", [(b"{}", b"", 0)])))
        assert made.session.errors.errors == [], made.session.errors.errors
        asyncio.run(live(made))
        [row] = [one for one in made.status.rows.rows if len(one["parts"]) == 3]
        assert (row["cells"]["verdict"]["text"], row["cells"]["offset_lag"]["text"]) == ("OK", "0")
        answered = made.status.poller.pulse.reading
        assert (answered["problem"], answered["as_of"] is None) == (None, False)

        browser = made.topics
        browser.apart_s = 0
        browser.cluster.value, browser.matching.value = "east", f"{name}.*"
        browser.look.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        mirrored = {one["key"]: one["cells"]["mirrored"] for one in browser.rows.rows}
        assert mirrored[name]["text"] == f"central: all.{name}"
        assert "never_leave keeps it" in mirrored[f"{name}.pii"]["text"]
        browser.rows.selected = [name]
        browser.open.click()
        assert f"{name}-group" in unwrapped(browser.shown.value)

        made.groups.look.click()
        [row] = made.groups.grid.rows
        assert row["key"] == f"{name}-group"
        assert row["parts"][0]["cells"]["goes_on"]["text"] == f"all.{name}-0@3"
        made.groups.grid.selected = [f"{name}-group"]
        made.groups.choose.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        assert f"all.{name}-0" in unwrapped(made.groups.shown.value)

        records = made.records
        asyncio.run(records.on_topics())
        assert name in records.topic.options, records.topics_said.value
        records.topic.value = name
        records.partition.value = "0"
        for side in ("source", "relay", "target"):
            records.anchor.value = side
            records.seek.value, records.offset.value = "offset", 1
            records.look.click()
            assert made.session.errors.errors == [], made.session.errors.errors
            for name_of, one in records.sides.items():
                assert [row["cells"]["offset"]["text"] for row in one.grid.rows] == ["3", "2", "1"], (side, name_of)
                assert "<script>" in str(one.grid.rows[1]["cells"]["value"]), "text of a cell"
        for side, one in records.sides.items():
            one.grid.selected = ["0@2"]
            marked = {row["key"] for each in records.sides.values() for row in each.grid.rows if row["cells"]["mark"]}
            assert marked == {"0@2"}, "the same record on every side"
            assert made.session.errors.errors == [], made.session.errors.errors
            assert records.found is not None
            [outcome] = [one for one in records.found.outcomes if one.flow == name]
            assert (outcome.place, outcome.offset) == (TopicPartition(f"all.{name}", 0), 2), side
            assert "&lt;script" in records.passport.value
            assert "<script" not in records.passport.value

        records.seek.value, records.partition.value, records.where.value = "newest", "all", "offset = 2"
        records.look.click()
        assert made.session.errors.errors == [], made.session.errors.errors
        assert {row["key"] for one in records.sides.values() for row in one.grid.rows} == {"0@2"}


async def runs_and_stops(made: Console, send_one: Callable[[], None]) -> None:
    """Run by the buttons until one more record came through, refuse a second run meanwhile, and stop."""
    run = made.wizard.run
    run.run.click()
    await until(lambda: made.mirror is not None and made.mirror.running())
    await made.session.runner.run(run.on_once, run.once)
    assert "runs in this console already" in made.session.errors.errors[0]
    made.session.errors.clear()
    with Console(made.mirror) as other:
        await other.session.runner.run(other.wizard.run.on_once, other.wizard.run.once)
        assert f"process {os.getpid()}" in other.session.errors.errors[0], "law F: as for another process"
    send_one()
    await until(lambda: run.current and any(one.records for one in look_at(run.current.looks)))
    run.stop.click()
    await until(lambda: run.current is None)
    assert "1 record landed" in run.said.value


def look_at(looks: Sequence[RunLook]) -> list[RepublishResult]:
    return looks[-1].ran.republished if looks else []


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop go on until something holds."""
    while not condition():
        await asyncio.sleep(0.05)


async def live(made: Console) -> None:
    """Let the poller hear one answer, which does not come before the loop has gone on while it is asked for."""
    poller, goes_on = made.status.poller, threading.Event()
    ask = poller._ask

    def ask_beside() -> Any:
        assert goes_on.wait(60), "the kernel's thread was blocked"
        return ask()

    poller._ask = ask_beside
    made.start()
    await until(lambda: poller.reading.asking_since)
    goes_on.set()
    await until(lambda: poller.reading.value or poller.reading.problem)
    made.stop()
    assert poller.reading.problem is None, poller.reading.problem
