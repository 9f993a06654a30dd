"""One flow's trouble is its own: in a running mirror a stream that fails is parked, and the others never notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import mirrorlake as ml
from mirrorlake import Quarantined
from tests.kit.processes import queries, staying_on, wait_until
from tests.kit.records import (
    add_partitions,
    assert_equal_topics,
    consume,
    count,
    create_topic,
    produce,
    send,
    set_configs,
    topic_name,
)
from tests.servers.lakes import Pair


def dies_once(flag: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a rule's function that kills the Python worker in which it runs, the first time."""

    def function(records: pa.RecordBatch) -> pa.RecordBatch:
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return records

    return function


@pytest.mark.law("E", "F")
def test_what_fails_is_parked_and_comes_back_while_the_others_never_notice(
    pair: Pair, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "ready_interval_s=2,waiting_topics_interval_s=2")
    name, east, central = topic_name("isolated"), pair.east, pair.central
    topics = {kind: f"{name}-{kind}" for kind in ("good", "large", "conflict", "killed", "beside")}
    for topic in topics.values():
        create_topic(east, topic, 2, max_message_bytes="2000000")
        produce(east, topic, 20)
    send(east, topics["large"], [(os.urandom(200_000), b"large", 0)])
    produce(east, topics["large"], 20, seed=2)
    for prefix in ("east", "aside", "fed"):
        create_topic(central, f"{prefix}.{topics['large']}", 2, max_message_bytes="50000")
    for prefix in ("east", "fed"):
        create_topic(central, f"{prefix}.{topics['conflict']}", 1)

    ml.rule_function("dies-once", dies_once(tmp_path / "died"))
    plain = pair.flow(sync={"groups": False, "configs": False})
    not_grown = {"lanes": 1, "sync": {"groups": False, "configs": False, "partitions": False}}
    more: dict[str, Any] = {
        "waits": {"topics": [topics["conflict"], topics["large"], topics["beside"]], **not_grown},
        # Its checkpoint location would step over what waits.
        "fed": {
            "topics": [topics["conflict"], topics["large"], topics["beside"]],
            "policy": {"template": "fed.{topic}"},
            "execution": "streaming",
            **not_grown,
        },
        "killed": {"rules": [{"name": "fatal", "function": "dies-once"}]},
        "aside": {"topics": topics["large"], "policy": {"template": "aside.{topic}"}, "unsendable": "quarantine"},
    }
    flows = [
        {**plain, "name": kind, "topics": topics.get(kind), **more.get(kind, {})}
        for kind in ("good", "waits", "fed", "killed", "aside")
    ]
    held = {
        f"{flow}: topic {topics[kind]}": error
        for flow in ("waits", "fed")
        for kind, error in (("conflict", "TopicConflict"), ("large", "RecordTooLarge"))
    }
    mirror = pair.mirror(*flows)

    def arrived(kind: str, prefix: str = "east") -> int:
        return count(central, f"{prefix}.{topics[kind]}")

    with staying_on(mirror) as failures:

        def until(condition: Callable[[], Any], what: str) -> None:
            wait_until(lambda: failures or condition(), what)
            assert not failures, failures

        until(lambda: arrived("good") == 20, "the good flow sends")
        until(lambda: "republish good" in queries(spark), "its backfill is over")
        run_of_good, run_of_landing = queries(spark)["republish good"], queries(spark)["land east"]
        until(lambda: mirror.parked().keys() == held.keys(), "what cannot be sent waits by name")
        for prefix in ("east", "fed"):
            until(
                lambda prefix=prefix: arrived("beside", prefix) == 20, "a topic that waits holds no other of its flow"
            )
        assert (tmp_path / "died").exists()
        until(lambda: arrived("killed") == 20, "the flow whose worker was killed goes on by itself")
        until(lambda: arrived("large", "aside") == 40, "what is too large is put aside where the flow says so")

        assert {stream: (one.error, one.is_retried) for stream, one in mirror.parked().items()} == {
            stream: (error, True) for stream, error in held.items()
        }
        status = mirror.status()
        assert status["good"].verdict == "OK"
        assert status["waits"].state == status.state == "parked"
        assert status["waits"].verdict in ("STOP", "STALL")
        assert pair.cli("status", "--flow", "fed").returncode == 1
        told = {one["stream"]: one for one in status.as_dict()["flows"][1]["parked"]}
        large = told[f"waits: topic {topics['large']}"]
        assert f"{topics['large']}-0@10" in large["cause"]
        assert "max.message.bytes" in large["next"]
        assert large["cause"] in str(status)

        # Lanes move on while topics wait; one that waits gets nothing, and is passed over by nobody.
        for kind in ("good", "beside", "large", "conflict"):
            produce(east, topics[kind], 10, seed=3)
        until(lambda: arrived("good") == 30, "the good flow goes on")
        for prefix in ("east", "fed"):
            until(lambda prefix=prefix: arrived("beside", prefix) == 30, "so does the other topic")
            set_configs(central, f"{prefix}.{topics['large']}", **{"max.message.bytes": "2000000"})
            add_partitions(central, f"{prefix}.{topics['conflict']}", 2)
        for prefix in ("east", "fed"):
            until(lambda prefix=prefix: arrived("large", prefix) == 51, "the large record arrives, and nobody resumed")
            until(lambda prefix=prefix: arrived("conflict", prefix) == 30, "the conflict is over")
        until(lambda: mirror.parked() == {}, "nothing waits")
        assert queries(spark)["republish good"] == run_of_good, "it never stopped"
        assert queries(spark)["land east"] == run_of_landing, "nor did landing"
    for prefix, kinds in (("east", topics), ("fed", ("conflict", "large", "beside"))):
        for kind in kinds:
            assert_equal_topics(consume(east, topics[kind]), consume(central, f"{prefix}.{topics[kind]}"))
    [aside] = mirror.verify("aside")
    assert aside.equal, aside
    assert isinstance(mirror["aside"].offsets.translate(topics["large"], 0, 10), Quarantined)


@pytest.mark.law("F")
def test_a_topic_that_another_flow_filled_is_refused_by_name(pair: Pair) -> None:
    """A flow under a new name, or of another file, does not send once more what a first one sent; its other topics go on."""
    name, east, central = topic_name("filled"), pair.east, pair.central
    filled, beside, local = f"{name}-filled", f"{name}-beside", f"{name}-local"
    for topic in (filled, beside, local):
        create_topic(east, topic, 1)
        produce(east, topic, 20, partitions=1)
    create_topic(central, f"east.{local}", 1)
    produce(central, f"east.{local}", 1, partitions=1)
    plain = pair.flow(topics=f"{name}.*", sync={"groups": False, "configs": False})
    first = pair.mirror({**plain, "name": "first", "topics": filled})
    first.run(once=True)
    produce(east, filled, 5, partitions=1)

    renamed = pair.mirror({**plain, "name": "second"})
    with pytest.raises(ml.errors.TopicConflict, match="`existing: append` on second"):
        renamed.run(once=True)
    assert [count(central, f"east.{topic}") for topic in (filled, beside, local)] == [20, 20, 1]
    assert renamed.status()["second"].state == "parked"
    by_flow, by_producer = renamed.plan().conflicts
    assert [(one.name, one.flow) for one in (by_flow, by_producer)] == [
        (f"east.{filled}", "second"),
        (f"east.{local}", "second"),
    ]
    for conflict in (by_flow, by_producer):
        assert "its ledger does not say that second sent them" in conflict.reason
        assert "give it the old name back" in conflict.reason
    bad = renamed.doctor(only=["flow.filled"]).bad
    assert [one.subject for one in bad] == [f"east.{filled}", f"east.{local}"]
    told = pair.cli("run", "--once")
    assert (told.returncode, "`existing: append` on second" in told.stderr) == (3, True), told

    appending = pair.mirror({**plain, "name": "second", "existing": "append"})
    for _ in range(2):
        appending.run(once=True)
        assert [count(central, f"east.{topic}") for topic in (filled, local)] == [45, 21], "as asked for, and only once"
    assert not appending.plan().conflicts
