"""The relay has one writer, and a record that it holds twice all the same is sent once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from mirrorlake.errors import LanderReplaced
from mirrorlake.lake import FencedRelayWriter
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.mirror import Mirror
from mirrorlake.model.owner import temporary_sign
from tests.kit.processes import wait_until
from tests.kit.records import assert_equal_topics, held
from tests.kit.records import commit as commit_group
from tests.servers.lakes import Pair


def places(mirror: Mirror, topic: str) -> Counter[int]:
    """Return how many places of a topic the relay holds how often."""
    rows = held(mirror.lake.relay_location("east"), topic)
    return Counter(Counter((row["generation"], row["partition"], row["offset"]) for row in rows).values())


@pytest.mark.law("C", "D", "F")
def test_law_f_of_two_landers_the_older_one_writes_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = pair.topic
    pair.create(200)
    fed = pair.flow(name="fed", policy={"template": "fed.{topic}"}, execution="streaming")
    mirror = pair.mirror(pair.flow(), fed)
    # Two landers in one session, which allows a name once; elsewhere they are two processes.
    numbers = count()
    named = DataStreamWriter.queryName
    monkeypatch.setattr(DataStreamWriter, "queryName", lambda query, name: named(query, f"{name} {next(numbers)}"))
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        idle = pool.submit(mirror.land, "east", stop=stop)
        try:
            wait_until(lambda: idle.done() or places(mirror, topic) == {1: 200}, "the first lander has landed")
            mirror.land("east", once=True, rebuild_checkpoint=True)
            pair.produce(100, seed=2)
            with pytest.raises(LanderReplaced, match="run only one lander") as refused:
                idle.result(timeout=400)
        finally:
            stop.set()
    assert refused.value.exit_code == 3
    # Two tasks drain the rest, each up to the ends of its own partition: the source has readers already (law H).
    commit_group(pair.east, "readers", topic, {0: 1})
    with monkeypatch.context() as patched:
        patched.setenv("MIRRORLAKE_TIMING", "max_records_in_process=0")
        pair.mirror(pair.flow(), fed, east={"land": {"tasks": 2}}).land("east", once=True)
    assert places(mirror, topic) == {1: 300}, "both landers saw the records, one has landed them"
    commits = mirror.lake.commits(mirror.lake.relay_location("east"), limit=10)
    assert {one.signature["group"] for one in commits if "group" in one.signature} == {0, 1}

    # A zombie: its workers have written a batch's files; before it commits them another lander takes over and goes on.
    pair.produce(100, seed=3)
    by_batches = pair.mirror(pair.flow(), fed, east={"land": {"execution": "streaming"}})
    commit = FolderTables.commit

    def late(tables: FolderTables, path: str, files: Any, **options: Any) -> None:
        if files:
            monkeypatch.setattr(FolderTables, "commit", commit)
            # Its clock is hours before that of the first one, and nothing of it was sampled since.
            earlier = Mirror(
                by_batches.config, spark=mirror.spark, now=lambda: datetime.now(timezone.utc) - timedelta(hours=5)
            )
            assert earlier.land("east", once=True, rebuild_checkpoint=True).records == 100
        commit(tables, path, files, **options)

    monkeypatch.setattr(FolderTables, "commit", late)
    with pytest.raises(LanderReplaced):
        by_batches.land("east", once=True)
    assert places(mirror, topic) == {1: 400}

    # A relay that holds records twice, from a release without a fence: in files that lie over one another, out of order.
    location = mirror.lake.relay_location("east")
    relay = mirror.lake.relay("east")
    again = relay.where("offset >= 100").withColumn("landed_at", F.col("landed_at") + F.expr("INTERVAL 1 SECOND"))
    mirror.lake.append(again.orderBy(F.desc("offset")).coalesce(1), location)
    mirror.lake.append(relay.where("offset BETWEEN 20 AND 120").repartition(1), location)
    doubled = places(mirror, topic)
    assert doubled[1] < 400
    mirror.republish("east->central", once=True)
    pair.check()

    assert pair.cli("repair", "--source", "east", "--check").returncode == 1
    assert places(mirror, topic) == doubled
    mirror.republish("fed", once=True)
    assert_equal_topics(pair.source(), pair.target(f"fed.{topic}"))
    done = mirror.repair("east")
    assert (done.rows, done.left) == (sum(n * (times - 1) for times, n in doubled.items()), 0)
    assert temporary_sign(FencedRelayWriter(mirror.lake, "east").newest_owner()), (
        "a lander that it replaces comes back after it"
    )
    assert places(mirror, topic) == {1: 400}
    assert mirror.repair("east").rows == 0
    pair.produce(50, seed=4)
    mirror.run(once=True)
    for remote in (pair.remote, f"fed.{topic}"):
        assert_equal_topics(pair.source(), pair.target(remote))
    assert mirror.lake.properties(location)["delta.appendOnly"] == "true"
