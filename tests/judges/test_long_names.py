"""A topic that can have no name on the target waits by name; the other topics of its flow go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.commands import run_cli, write_conf
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import count, create_topic, send, topics_of
from tests.servers.lakes import Pair


@pytest.mark.law("E", "G")
def test_law_e_a_topic_whose_name_is_too_long_for_the_target_waits_and_the_others_go_on(pair: Pair) -> None:
    longest, later = (f"{pair.topic}-{word}-".ljust(245, "x") for word in ("longest", "later"))
    pair.create(10)
    create_topic(pair.east, longest, 1)
    send(pair.east, longest, [(b"v", b"k", 0)])
    mirror = pair.mirror(topics=f"{pair.topic}.*")

    [held] = [change for change in pair.told("plan")["changes"] if change["action"] == "held"]
    assert (held["name"], held["after"]) == (f"east.{longest}", longest)
    assert "250 characters" in held["reason"]
    assert "exclude_topics" in held["reason"]
    assert pair.cli("apply").returncode == 0
    for _ in range(2):
        done = pair.cli("run", "--once", "--json")
        assert (done.returncode, json.loads(done.stdout)["error"]) == (3, "TopicNameError"), done.stderr
        assert "250 characters" in done.stderr
        assert "exclude_topics" in done.stderr
        pair.check()
    [flow] = pair.told("status", code=1)["flows"]
    [waits] = flow["parked"]
    assert (waits["stream"], waits["is_retried"]) == (f"east->central: topic {longest}", False)
    assert "250 characters" in waits["cause"]
    of_topic = {one["topic"]: one["offset_lag"] for one in flow["partitions"]}
    assert of_topic[longest] == 1
    assert not pair.told("verify", code=1)["flows"][0]["equal"]
    for command in (
        ["lag"],
        ["doctor"],
        ["groups", "--flow", "east->central"],
        ["topics", "--cluster", "east"],
        ["passport", "--cluster", "east", "--topic", longest, "--offset", "0"],
    ):
        assert pair.cli(*command).returncode in (0, 1), command

    # One that appears beside a running mirror parks no stream.
    with staying_on(mirror):
        pair.produce(10, seed=2)
        wait_until(lambda: count(pair.central, pair.remote) == 20, "the flow sends")
        create_topic(pair.east, later, 1)
        send(pair.east, later, [(b"v", b"k", 0)])
        wait_until(lambda: f"east->central: topic {later}" in mirror.parked(), "the new topic waits by name")
        pair.produce(10, seed=3)
        wait_until(lambda: count(pair.central, pair.remote) == 30, "the others go on")
        assert mirror.parked().keys() == {f"east->central: topic {name}" for name in (longest, later)}

    pair.mirror(topics=f"{pair.topic}.*", exclude_topics=[longest, later])
    assert pair.cli("run", "--once").returncode == 0
    assert pair.cli("status").returncode == 0, "whoever leaves it out is not told of it any more"


@pytest.mark.law("E")
def test_law_e_a_template_that_gives_a_topic_the_name_of_a_ledger_lets_it_wait(pair: Pair) -> None:
    pair.create(10)
    pair.mirror(policy={"template": "mirrorlake.{topic}.ledger"})
    [held] = [change for change in pair.told("plan")["changes"] if change["action"] == "held"]
    assert "internal topic" in held["reason"]
    done = pair.cli("run", "--once")
    assert (done.returncode, "internal topic" in done.stderr) == (3, True), done.stderr
    assert held["name"] not in topics_of(pair.central)
    # Nothing was lost meanwhile.
    pair.mirror()
    assert pair.cli("run", "--once").returncode == 0
    pair.check()


def test_aliases_that_leave_no_name_for_the_ledger_are_a_fault_of_the_settings(tmp_path: Path) -> None:
    east, central = "e" * 120, "c" * 120
    clusters = dict.fromkeys((east, central), "127.0.0.1:1")
    conf = write_conf(tmp_path, clusters, [{"source": east, "target": central, "topics": "orders"}])
    done = run_cli("plan", "--conf", str(conf))
    assert done.returncode == 2
    assert "at most 200" in done.stderr
