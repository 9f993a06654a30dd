"""The relay has one writer, and a record that it holds twice all the same is sent once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from mirrorlake.errors import LanderReplaced
from mirrorlake.lake.lake import Lake
from mirrorlake.landing import lander as land
from mirrorlake.landing.land_query import start_landing
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import assert_equal_topics, consume, create_topic, produce, run_cli, wait_until
from tests.flow.mirror.test_laws import topic_name
from tests.servers.lakes import MakeMirror


def held(mirror: Mirror, topic: str) -> Counter[int]:
    """Return how many places of a topic the relay holds how often."""
    rows = mirror.lake.relay("east").where(F.col("topic") == topic).groupBy("generation", "partition", "offset").count()
    return Counter(row["count"] for row in rows.collect())


@pytest.mark.law("C", "D", "F")
def test_law_f_of_two_landers_the_older_one_writes_nothing(
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, 200)
    flows: list[dict[str, Any]] = [
        {"source": "east", "target": "central", "topics": topic},
        {
            "name": "fed",
            "source": "east",
            "target": "central",
            "topics": topic,
            "policy": {"template": "fed.{topic}"},
            "feeder": "spark",
        },
    ]
    mirror = make_mirror({"east": east, "central": central}, flows)
    # Two landers in one session, which allows a name once; elsewhere they are two processes.
    numbers = count()
    monkeypatch.setattr(
        land, "start_landing", lambda *a, name, **o: start_landing(*a, name=f"{name} {next(numbers)}", **o)
    )
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        idle = pool.submit(mirror.land, "east", stop=stop)
        try:
            wait_until(lambda: idle.done() or held(mirror, topic) == {1: 200}, "the first lander has landed")
            mirror.land("east", once=True, rebuild_checkpoint=True)
            produce(east.bootstrap_servers, topic, 100, seed=2)
            with pytest.raises(LanderReplaced, match="keep one lander") as refused:
                idle.result(timeout=120)
        finally:
            stop.set()
    assert refused.value.exit_code == 3
    mirror.land("east", once=True)
    assert held(mirror, topic) == {1: 300}, "both landers saw the records, one has landed them"

    # A zombie: while it is about to write a batch, another lander takes over, lands the same records and goes on.
    produce(east.bootstrap_servers, topic, 100, seed=3)
    append = Lake.append

    def late(lake: Lake, frame: Any, location: str, **options: Any) -> None:
        if options.get("version", 0) & 0xFFFFFFFF:
            monkeypatch.setattr(Lake, "append", append)
            # Its clock is hours before that of the first one, and nothing of it was sampled since.
            earlier = Mirror(mirror.config, spark=mirror.spark, now=lambda: _hours_ago(5))
            assert earlier.land("east", once=True, rebuild_checkpoint=True).records == 100
        append(lake, frame, location, **options)

    monkeypatch.setattr(Lake, "append", late)
    with pytest.raises(LanderReplaced):
        mirror.land("east", once=True)
    assert held(mirror, topic) == {1: 400}

    # A relay that holds records twice, from a release without a fence: in files that lie over one another, out of order.
    location = mirror.lake.relay_location("east")
    relay = mirror.lake.relay("east")
    again = relay.where("offset >= 100").withColumn("landed_at", F.col("landed_at") + F.expr("INTERVAL 1 SECOND"))
    mirror.lake.append(again.orderBy(F.desc("offset")).coalesce(1), location)
    mirror.lake.append(relay.where("offset BETWEEN 20 AND 120").repartition(1), location)
    doubled = held(mirror, topic)
    assert doubled[1] < 400
    source = consume(east.bootstrap_servers, topic)
    mirror.republish("east->central", once=True)
    assert_equal_topics(source, consume(central.bootstrap_servers, f"east.{topic}"))

    conf = str(tmp_path / "mirror.yml")
    assert run_cli("repair", "--source", "east", "--check", "--conf", conf).returncode == 1
    assert held(mirror, topic) == doubled
    mirror.republish("fed", once=True)
    assert_equal_topics(source, consume(central.bootstrap_servers, f"fed.{topic}"))
    done = mirror.repair("east")
    assert (done.rows, done.left) == (sum(n * (times - 1) for times, n in doubled.items()), 0)
    assert held(mirror, topic) == {1: 400}
    assert mirror.repair("east").rows == 0
    produce(east.bootstrap_servers, topic, 50, seed=4)
    mirror.run(once=True)
    source = consume(east.bootstrap_servers, topic)
    for remote in (f"east.{topic}", f"fed.{topic}"):
        assert_equal_topics(source, consume(central.bootstrap_servers, remote))
    assert mirror.lake.properties(location)["delta.appendOnly"] == "true"


def _hours_ago(hours: int) -> datetime:
    return datetime.now(timezone.utc) - timedelta(hours=hours)
