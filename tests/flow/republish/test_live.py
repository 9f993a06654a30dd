"""Always on: new topics and partitions are picked up while running; SIGTERM ends cleanly; progress is resumed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.processes import running, staying_on, wait_until
from tests.kit.records import (
    ABORTED,
    add_partitions,
    assert_equal_topics,
    consume,
    count,
    create_topic,
    produce,
    send_transactions,
    topic_name,
    topics_of,
)
from tests.servers.lakes import Pair


@pytest.mark.law("C", "D", "F")
def test_new_topics_and_partitions_are_mirrored_without_a_restart(pair: Pair) -> None:
    prefix, east, central = topic_name("grow"), pair.east, pair.central
    first, second = f"{prefix}-a", f"{prefix}-b"
    create_topic(east, first, 1)
    produce(east, first, 50, partitions=1)
    mirror = pair.mirror(topics=f"{prefix}-.*")
    with staying_on(mirror) as failures:
        wait_until(lambda: f"east.{first}" in topics_of(central) or failures, "the first topic is mirrored")
        create_topic(east, second, 3, retention_ms="86400000")
        produce(east, second, 300, partitions=3)
        add_partitions(east, first, 3)
        produce(east, first, 300, partitions=3, seed=2)
        wait_until(
            lambda: failures or (count(central, f"east.{first}"), count(central, f"east.{second}")) == (350, 300),
            "both topics with all their partitions are mirrored",
        )
        send_transactions(
            east, second, [([(b"kept", None, 0)], True), ([(ABORTED, None, partition) for partition in (0, 1)], False)]
        )
        wait_until(
            lambda: failures or all(row.state == "caught_up" for row in mirror.status()["east->central"]),
            "markers and aborted records at the ends are passed while running",
        )
    for name in (first, second):
        assert_equal_topics(consume(east, name), consume(central, f"east.{name}"))
    assert mirror.admin("central").configs([f"east.{second}"])[f"east.{second}"] == {"retention.ms": "86400000"}
    assert all(row.state == "caught_up" for row in mirror.status()["east->central"])


@pytest.mark.law("C", "D", "F")
def test_sigterm_ends_a_run_cleanly_and_the_next_one_goes_on(pair: Pair, tmp_path: Path) -> None:
    pair.create(1000)
    pair.mirror()
    with running(tmp_path / "run.log", "run", "--conf", pair.conf) as process:

        def is_under_way() -> bool:
            # The remote topic is made beside the records, and perhaps before a stream has begun to read.
            is_there = pair.remote in topics_of(pair.central) and "  ready: " in process.output
            return is_there or not process.is_running

        wait_until(is_under_way, "something is mirrored")
        assert process.terminate() == 0, process.output
        # What Spark, its workers and Kafka's clients said is in the log file that one of the first lines names.
        said = [line.partition("  ")[2].partition(":")[0] for line in process.output.splitlines()]
        assert {"run", "settings", "spark", "clusters", "lake", "ready", "stop"} <= {*said}, process.output
        for noise in ("WARNING:", "Setting default log level", "SLF4J", "Exception", "Traceback", "rdkafka"):
            assert noise not in process.output
        named = re.search(r"log of Spark and clients: (\S+)", process.output)
        assert named is not None
        assert "incubator" in Path(named[1]).read_text()
        assert re.search(r"^run: .* records landed · .* records republished$", process.output, re.MULTILINE)
        assert "Traceback" not in process.output
    done = pair.cli("run", "--once", "--json")
    assert done.returncode == 0, done.stderr
    pair.check()
