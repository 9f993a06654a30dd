"""Replay: from the relay alone, after the source has forgotten everything and is gone (laws C, D, F)."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake import Mirror
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.sandbox import KafkaCluster, start_all
from tests.kit.commands import told
from tests.kit.processes import Process, wait_until
from tests.kit.records import (
    Record,
    assert_equal_topics,
    commit,
    consume,
    count,
    create_topic,
    delete_records,
    odd_record,
    produce,
    send,
    send_transactions,
    set_configs,
    topics_of,
)
from tests.servers.lakes import MakeMirror

FLOW = "east->central"
PARTITIONS = 3
SEED = 20261122
Records = dict[int, list[Record]]


@dataclass(frozen=True)
class World:
    """Two topics that were landed and mirrored; then the source forgot them, and was stopped."""

    central: KafkaCluster
    mirror: Mirror
    conf: str
    orders: Records
    at: datetime


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, make_shared_mirror: MakeMirror, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    east, central = start_all(KafkaCluster(alias) for alias in ("east", "central"))
    try:
        rng = random.Random(SEED)
        create_topic(east, "orders", PARTITIONS, retention_ms="604800000", compression_type="zstd")
        create_topic(east, "states", 1, cleanup_policy="compact")
        send(
            east, "states", [{"value": f"v{n}".encode() * 20, "key": f"k{n % 7}", "partition": 0} for n in range(6000)]
        )

        def odd(numbers: range) -> Iterator[tuple[list[dict[str, object]], bool]]:
            for number in numbers:
                records = [{**odd_record(rng, n), "partition": rng.randrange(PARTITIONS)} for n in range(400)]
                yield records, number % 4 != 3

        send_transactions(east, "orders", odd(range(6)))
        commit(east, "readers", "orders", {0: 20, 1: 0})
        mirror = make_shared_mirror(
            {"east": east, "central": central},
            [{"source": "east", "target": "central", "topics": "orders, states", "groups": "readers"}],
        )
        mirror.run(once=True)
        then = consume(east, "orders")
        wait_until(
            lambda: time.time() > max(r.timestamp for rs in then.values() for r in rs) / 1000, "the clock is past"
        )
        at = datetime.now(timezone.utc)
        # A record of the same millisecond would be of that time, too.
        wait_until(lambda: time.time() > at.timestamp() + 0.001, "the clock is past it")
        regions = [
            {
                "value": json.dumps({"region": "eu" if n % 3 else "us", "n": n}),
                "key": f"k{n % 5}",
                "headers": [("kind", b"sale" if n % 2 else b"refund")],
                "partition": n % PARTITIONS,
            }
            for n in range(300)
        ]
        send(east, "orders", regions)
        commit(east, "readers", "orders", {0: 60, 1: 40, 2: 10})
        mirror.run(once=True)
        mirror.sample()
        orders = consume(east, "orders")
        for partition, records in orders.items():
            delete_records(east, "orders", partition, records[-1].offset + 1)
        assert count(east, "orders") == 0, "the source has forgotten everything"
        east.stop()
        conf = str(mirror.config.path)
        yield World(central, mirror, conf, orders, at)
    finally:
        east.kill()
        central.kill()


def cli(world: World, *arguments: str, code: int = 0) -> Any:
    """Return the document of a command that ends with this code."""
    return told(*arguments, "--conf", world.conf, code=code)


@pytest.mark.law("C", "D", "F", "G")
def test_law_f_a_replay_needs_no_source_and_ends_with_each_record_once(world: World) -> None:
    asked = ("replay", "--source", "east", "--topic", "orders", "--into", "central:orders.replayed")
    plan = cli(world, *asked, "--dry-run")
    assert (plan["records"], plan["refusals"]) == (sum(map(len, world.orders.values())), [])
    assert "orders.replayed" not in topics_of(world.central), "law G: looking changes nothing"
    [made] = plan["changes"]
    assert (made["after"]["partitions"], made["after"]["configs"]["compression.type"]) == (PARTITIONS, "zstd")

    done = cli(world, *asked, "--verify")
    assert (done["proof"]["equal"], done["proof"]["verified"]) == (True, plan["records"])
    assert (done["total"], done["missing"], done["done"]) == (plan["records"], 0, True)
    assert_equal_topics(world.orders, consume(world.central, "orders.replayed"))
    found = cli(world, "verify", "--flow", plan["name"])
    assert (found["equal"], found["flows"][0]["verified"]) == (True, plan["records"])
    assert [one["verified"] for one in found["flows"][0]["partitions"]] == [len(rows) for rows in world.orders.values()]
    cli(world, "verify", "--flow", "replay.never", code=2)

    # The same command again, and its name alone: it is done, and nothing is sent.
    for again in (asked, ("replay", "--name", plan["name"])):
        repeated = cli(world, *again)
        assert (repeated["sent"], repeated["plan"]["state"]) == (0, "done")
    assert count(world.central, "orders.replayed") == plan["records"]

    # Its own offset map is exact, and nothing else of the mirror minds it.
    first, last = world.orders[1][0], world.orders[1][-1]
    for record in (first, last):
        found = world.mirror.translate(plan["name"], topic="orders", partition=1, offset=record.offset)
        at = {r.offset: r for r in consume(world.central, "orders.replayed")[1]}[found.offset]
        assert at.content == record.content
    cli(world, "offsets", "--flow", plan["name"], "--topic", "orders", "--partition", "1", "--offset", "0")
    assert {p.group for p in world.mirror.plan_groups(FLOW, recorded=True)} == {"readers"}

    with pytest.raises(SafetyError, match="another"):
        world.mirror.replay(source="east", topic="orders", into="central:elsewhere", name=plan["name"])
    create_topic(world.central, "taken", PARTITIONS)
    produce(world.central, "taken", 3)
    refused = cli(world, "replay", "--source", "east", "--topic", "orders", "--into", "central:taken", code=3)
    assert ("--append" in str(refused), count(world.central, "taken")) == (True, 3)
    cli(world, "replay", "--source", "east", "--topic", "orders", "--into", "central:east.orders", code=3)


@pytest.mark.law("C", "F")
def test_law_f_a_replay_of_what_a_predicate_is_true_for(world: World, tmp_path: Path) -> None:
    chosen = {
        p: [r for r in rs if r.key in (b"k1", b"k2") and ("kind", b"sale") in r.headers and b'"eu"' in (r.value or b"")]
        for p, rs in world.orders.items()
    }
    wanted = {
        "source": "east",
        "topic": "orders",
        "start": world.at,
        "keys": ["k1", "k2"],
        "headers": {"kind": "sale"},
        "where": "value.region = 'eu'",
    }
    assert any(chosen.values())
    before = time.time()
    done = world.mirror.replay(**wanted, into="central:orders.some", timestamps="shifted").run()
    found = consume(world.central, "orders.some")
    assert done.missing == 0
    assert {p: [r[1:4] for r in rs] for p, rs in found.items()} == {p: [r[1:4] for r in rs] for p, rs in chosen.items()}
    shifts = {f.timestamp - w.timestamp for p in found for f, w in zip(found[p], chosen[p], strict=True)}
    assert len(shifts) == 1, "law C: shifted timestamps keep their distances"
    assert max(r.timestamp for rs in found.values() for r in rs) / 1000 <= before + 60

    offsets = world.mirror.replay(
        source="east", topic="orders", into="central:orders.part", partitions=[2], from_offset=5, to_offset=20
    ).run()
    part = consume(world.central, "orders.part")
    expected = [r for r in world.orders[2] if 5 <= r.offset < 20]
    assert (offsets.total, len(part)) == (len(expected), PARTITIONS)
    assert [r.content for r in part[2]] == [r.content for r in expected]

    # Where workers may not read the relay's files, Spark feeds the lanes: through rules, and placed by key.
    settings = json.loads(Path(world.conf).read_text())
    settings["flows"][0] |= {
        "execution": "streaming",
        "rules": [{"name": "sales", "keep": "headers['kind'] = 'sale'"}],
        "placement": {"by": "key", "count": 5},
    }
    fed = tmp_path / "fed.yml"
    fed.write_text(json.dumps(settings))
    arguments = ["--source", "east", "--topic", "orders", "--into", "central:orders.fed", "--from-offset", "30"]
    for _ in range(2):
        assert told("replay", *arguments, "--through", FLOW, "--conf", str(fed))["missing"] == 0
    sold = [r for rs in world.orders.values() for r in rs if r.offset >= 30 and ("kind", b"sale") in r.headers]
    arrived = consume(world.central, "orders.fed")
    assert len(arrived) == 5
    assert sorted(r.content for rs in arrived.values() for r in rs) == sorted(r.content for r in sold)


@pytest.mark.law("D", "F")
def test_law_f_a_killed_replay_goes_on_with_the_same_command(world: World, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    total = sum(map(len, world.orders.values()))
    # A transaction for each record, so that it dies in the midst of them.
    settings = json.loads(Path(world.conf).read_text())
    settings["flows"][0]["chunk_records"] = 1
    slow = tmp_path / "slow.yml"
    slow.write_text(json.dumps(settings))
    asked = ["replay", "--source", "east", "--topic", "orders", "--into", "central:orders.killed", "--conf", str(slow)]
    for death in range(2):
        process = Process(tmp_path / f"{death}.log", *asked)
        try:
            before = count(world.central, "orders.killed")
            wait_until(lambda b=before: count(world.central, "orders.killed") > b, f"it sends: {process.output[-500:]}")
            threading.Event().wait(rng.uniform(0.0, 0.5))
        finally:
            process.kill()
    assert 0 < count(world.central, "orders.killed") < total
    done = world.mirror.replay(source="east", topic="orders", into="central:orders.killed")
    assert done.plan.state == "begun"
    result = done.run()
    assert (result.total, result.missing) == (total, 0)
    assert 0 < result.sent < total
    assert_equal_topics(world.orders, consume(world.central, "orders.killed"))


@pytest.mark.law("E")
def test_law_e_a_replay_is_equal_also_after_its_target_has_compacted_it(world: World) -> None:
    again = world.mirror.replay(source="east", topic="states", into="central:states")
    assert again.run().total == count(world.central, "states") == 6000
    # What the cleaner may take is in closed segments: a record of somebody else closes the replayed one.
    small = {"segment_ms": "1", "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": "1"}
    set_configs(world.central, "states", **small)
    for n in range(2):
        send(world.central, "states", [(b"other", f"other{n}".encode(), 0)])
    wait_until(lambda: count(world.central, "states") < 100, "its cleaner has run")
    proof = again.verify()
    assert proof.equal, proof.differences[:3]
    assert 7 <= proof.verified < 100, "what is there is compared"
    assert proof.verified + proof.not_compared == 6000, "law E: and the rest is explained"


@pytest.mark.law("G")
def test_law_g_bad_input_is_said_before_anything_is_sent(world: World) -> None:
    known = {"source": "east", "into": "central:never"}
    for wrong, said in (
        ({"topic": "unknown"}, "holds nothing of a topic"),
        ({"topic": "orders", "from_offset": 10**9}, "no record of orders in this range"),
        ({"topic": "orders", "end": "1999-01-01"}, "no record of orders in this range"),
        ({"topic": "orders", "generation": 7}, "no generation 7"),
        ({"topic": "orders", "where": "value.region ="}, "predicate"),
        ({"topic": "orders", "where": "nonsense = 1"}, "nonsense"),
        ({"topic": "orders", "start": "-1h", "end": "-2h"}, "there is nothing from"),
        ({"topic": "orders", "timestamps": "yesterday"}, "is not a choice of timestamps"),
        ({"topic": "orders", "through": "no->flow"}, "no flow 'no->flow'"),
        ({"topic": "orders", "into": "central:a b"}, "not a legal topic name"),
        ({"topic": "orders", "start": "yesterday-ish"}, "not a time"),
        ({"topic": "orders", "into": "nowhere:x"}, "no cluster 'nowhere'"),
        ({"topic": "orders", "into": "central"}, "not a target of a replay"),
        ({"topic": "orders", "source": "central"}, "relay holds nothing of central"),
    ):
        with pytest.raises(UsageError, match=said):
            world.mirror.replay(**{**known, **wrong})
    assert "never" not in topics_of(world.central)
    old = world.mirror.replay(source="east", topic="orders", into="central:orders.old", timestamps="original")
    assert not old.plan.refusals
    create_topic(world.central, "short", PARTITIONS, retention_ms="60000")
    refused = cli(world, "replay", "--source", "east", "--topic", "orders", "--into", "central:short", code=3)
    assert ("--accept-expiry" in str(refused), count(world.central, "short")) == (True, 0)
