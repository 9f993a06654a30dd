"""A turn of landing is one file, whatever the number of its partitions, and nobody who reads the relay notices."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.lake.file_spans import TAG, spans_from_text
from tests.kit.deaths import dying
from tests.kit.map_check import assert_map_is_exact
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import assert_equal_topics, consume, count, create_topic, held, produce, topic_name
from tests.servers.lakes import Pair

PARTITIONS, EACH = 10, 20


@pytest.mark.law("C", "D", "E", "F")
def test_law_c_turns_of_forty_partitions_are_mirrored_exactly_through_one_file_each(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "hot_s=0,compaction_fanout=3,compaction_max_waiting=3")
    topics = [topic_name(f"wide{number}") for number in range(4)]
    for topic in topics:
        create_topic(pair.east, topic, PARTITIONS)
    mirror = pair.mirror(pair.flow(topics=topics))
    location = Path(mirror.lake.relay_location("east"))
    made, compacted = Counter[int](), 0

    def write(seed: int) -> None:
        for topic in topics:
            produce(pair.east, topic, EACH, partitions=PARTITIONS, seed=seed)

    def landed() -> list[dict[str, Any]]:
        """Return the adds of the landing commits that are in the log."""
        found = []
        for commit in sorted((location / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            if any("txn" in action for action in actions):
                adds = [action["add"] for action in actions if "add" in action]
                made[len(adds)] += 1
                found += adds
        return found

    def check() -> None:
        for topic in topics:
            source, target = consume(pair.east, topic), consume(pair.central, f"east.{topic}")
            assert_equal_topics(source, target)
            assert_map_is_exact(pair.lake, "east->central", topic, source, target)
        rows = chain.from_iterable(held(str(location), topic) for topic in topics)
        places = Counter((row["topic"], row["partition"], row["offset"]) for row in rows)
        assert set(places.values()) == {1}, "each record stands in the relay once"

    with staying_on(mirror) as failures:
        for seed in range(1, 5):
            write(seed)
            wait_until(
                lambda: failures or all(count(pair.central, f"east.{topic}") == seed * EACH for topic in topics),  # noqa: B023
                "a round has arrived",
            )
            compacted += mirror.maintain().tables[0].compacted.files
    turns = landed()
    assert set(made) <= {0, 1}, "a commit adds one file"
    assert max(len(spans_from_text(add["tags"][TAG])) for add in turns) > 1, "of several partitions"
    assert compacted, "upkeep was at work meanwhile"
    check()

    # A death between a file and its commit.
    write(7)
    before = {file.name for file in location.glob("*.parquet")}
    with dying("land.file_written"):
        mirror.land("east", once=True)
    assert {file.name for file in location.glob("*.parquet")} - before, "it left a file that no commit names"
    mirror.land("east", once=True)

    # What it landed is cut before anybody sent it.
    newest = landed()[len(turns) :]
    assert sum(json.loads(add["stats"])["numRecords"] for add in newest) == len(topics) * EACH
    for add in newest:
        file = location / add["path"]
        file.write_bytes(file.read_bytes()[:-100])
    assert pair.cli("repair", "--source", "east", "--check").returncode == 1
    done = pair.cli("repair", "--source", "east", "--json")
    assert done.returncode == 0, done.stderr
    mended = json.loads(done.stdout)["broken"]
    assert sum(one["landed"] for one in mended) == len(topics) * EACH
    assert len(mended) >= len(topics) * PARTITIONS, "of each partition; a busy machine lands it in two turns"
    mirror.run(once=True)
    check()
