"""What earlier releases wrote is read, sent on and proven by this one: lakes, ledgers, checkpoint locations (`tests/upgrades`)."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.loading import load
from mirrorlake.lake import proven_until
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import Exact
from mirrorlake.sandbox import KafkaCluster, start_all
from tests.flow.kit import assert_equal_topics, consume, end_of
from tests.flow.map_check import assert_map_is_exact
from tests.upgrades.make import ARCHIVE, GROUP, POSITION, conf_of, topic_of

# Whether a release kept no version of the lake.
RELEASES = dict.fromkeys(("2026-11-21-first", "2026-11-21-last", "0.1.0"), True)
# The lakes that Structured Streaming goes on with, from the checkpoint locations that it finds; live tasks with the others.
STREAMS = {"2026-11-21-last", "0.1.0"}


class Past(NamedTuple):
    """The clusters of all releases, and the folder with the lake of each."""

    east: KafkaCluster
    central: KafkaCluster
    folder: Path


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    folder = tmp_path_factory.mktemp("past")
    with tarfile.open(ARCHIVE) as archive:
        # Python 3.11.4 brought filters, and 3.12 warns where none is named; the archive is our own.
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # noqa: S202
    clusters = [KafkaCluster(alias, directory=folder / alias) for alias in ("east", "central")]
    east, central = start_all(clusters)
    yield Past(east, central, folder)
    for cluster in clusters:
        cluster.stop()


@pytest.mark.law("A", "C", "D", "E", "F", "G")
@pytest.mark.parametrize("name", RELEASES)
def test_law_f_what_a_release_left_in_the_middle_goes_on_and_is_proven(
    past: Past, name: str, spark: SparkSession
) -> None:
    topic, remote = topic_of(name), f"east.{topic_of(name)}"
    conf = conf_of(name, past.folder, past.east.bootstrap_servers, past.central.bootstrap_servers)
    if name in STREAMS:
        # Written as the releases spell it.
        settings = json.loads(conf.read_text())
        settings["clusters"]["east"]["land"], settings["flows"][0]["feeder"] = {"live": False}, "spark"
        conf.write_text(json.dumps(settings))
    mirror = Mirror(load(conf), spark=spark)
    flow = mirror.config.flow(topic)
    before = consume(past.central, remote)
    [status] = mirror.status().values()
    waits = {row.partition: (row.source_end - row.landed, row.landed > row.republished) for row in status}
    assert waits == {0: (5, True), 1: (5, True)}, "20 records are landed and not sent, 10 not landed"
    place = mirror.translate(flow.name, topic=topic, partition=0, offset=0)
    assert place == Exact(before[0][0].offset, TopicPartition(remote, 0)), "a question needs no step"

    # Without a step by hand: a lake of version 1 goes on by itself.
    done = mirror.run(once=True)
    assert [landing.records for landing in done.landed] == [10]
    source, target = consume(past.east, topic), consume(past.central, remote)
    assert_equal_topics(source, target)
    assert all(target[partition][: len(records)] == records for partition, records in before.items()), "sent again"
    assert_map_is_exact(past.folder / name, flow.name, topic, source, target)

    [report] = mirror.verify()
    assert report.equal, report.differences
    assert report.verified == sum(map(len, source.values()))
    until = {one.partition: at for one, at in proven_until(mirror.lake, flow).items()}
    assert until == {partition: end_of(past.east, topic, partition) for partition in source}
    [group] = [one.resume for one in mirror[flow.name].groups() if one.group == GROUP]
    assert (group.upstream_offset, group.downstream_offset) == (POSITION, target[0][POSITION].offset)

    plan = mirror.plan()
    old = {note.name for note in plan.notes if note.kind == "setting"}
    assert old == ({"clusters.east.land.live", "flows[0].feeder"} if name in STREAMS else set())
    steps = [change.action for change in plan.changes if change.kind == "lake"]
    assert steps == (["record_version"] if RELEASES[name] else []), "law G: shown first"
    mirror.apply()
    assert not mirror.plan(), "law G: applied, and something is left"
