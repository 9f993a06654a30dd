"""A source whose log went back: an unclean election, a lost disk; and another cluster under its alias."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import ClusterIdMismatch, SourceGap
from mirrorlake.lake.schema import GAPS
from mirrorlake.mirror import Mirror
from mirrorlake.model.offset_map import Exact, NotYetRepublished
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import commit, consume, create_topic, end_of, held, produce, send, topic_name
from tests.servers.lakes import MakeMirror

# Not older than a segment may be, or the log would be cut into several.
_STAMP = int(time.time() * 1000)


def write(cluster: KafkaCluster, topic: str, values: Iterable[str]) -> None:
    """Write records to partition 0, each with one timestamp: only its bytes tell a record from another."""
    send(cluster, topic, ({"value": value.encode(), "partition": 0, "timestamp": _STAMP} for value in values))


def segment(cluster: KafkaCluster, topic: str) -> Path:
    [path] = (cluster.directory / "data" / f"{topic}-0").glob("*.log")
    return path


def landed(mirror: Mirror, topic: str) -> dict[int, list[str]]:
    """Return the values of partition 0 in the relay by generation, in offset order."""
    rows = [row for row in held(mirror.lake.relay_location("own"), topic) if row["partition"] == 0]
    found: dict[int, list[str]] = {}
    for row in sorted(rows, key=itemgetter("offset")):
        found.setdefault(row["generation"], []).append(row["value"].decode())
    return found


def gaps(mirror: Mirror, topic: str) -> list[tuple[Any, ...]]:
    rows = sorted(held(mirror.lake.meta_location(GAPS), topic), key=itemgetter("generation"))
    return [(g["kind"], g["generation"], g["partition"], g["first_offset"], g["last_offset"]) for g in rows]


@pytest.mark.law("A", "E")
def test_law_e_a_source_whose_log_went_back(
    make_cluster: Callable[..., KafkaCluster],
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = make_cluster("own").start()
    topic, conf = topic_name(), str(tmp_path / "mirror.yml")
    create_topic(own, topic, 2)
    old = [f"old-{number}" for number in range(200)]
    write(own, topic, old[:150])
    size = segment(own, topic).stat().st_size
    write(own, topic, old[150:])
    produce(own, topic, 100)
    # Partitions that the same restart makes suspects: with records, and two that hold none.
    wide = f"{topic}-wide"
    create_topic(own, wide, 62)
    produce(own, wide, 600, partitions=60)
    flow = {"source": "own", "target": "central", "topics": f"{topic}, {wide}"}

    def mirror_with(policy: str, clusters: dict[str, KafkaCluster]) -> Mirror:
        return make_mirror(clusters, [flow], own={"land": {"on_gap": policy}})

    both = {"own": own, "central": central}
    mirror = mirror_with("halt", both)
    mirror.run(once=True)
    first = landed(mirror, topic)
    assert first[1][:150] == old[:150]
    begun = len(first[1])

    # The end is before what was landed.
    own.kill()
    with segment(own, topic).open("r+b") as log:
        log.truncate(size)
    own.start()
    assert end_of(own, topic, 0) == 150
    for _ in range(2):
        caplog.clear()
        with (
            caplog.at_level("INFO", "mirrorlake.landing.truncations"),
            pytest.raises(
                SourceGap, match=rf"was truncated.*{topic}-0 landed up to {begun}, truncated at 150"
            ) as refused,
        ):
            mirror.land("own", once=True)
        assert refused.value.exit_code == 3
        said = [one.getMessage() for one in caplog.records if one.name == "mirrorlake.landing.truncations"]
        assert said == [
            "land.logs_compared source=own partitions=64 unchanged=63",
            f"land.log_compared source=own topic_partition={topic}-0 cut=150",
        ], "logs that have only grown are compared together"
    assert landed(mirror, topic) == first
    mirror = mirror_with("record", both)
    mirror.run(once=True)
    assert gaps(mirror, topic) == [("truncated", 1, 0, 150, begun - 1)]
    [standing] = [p for p in mirror.status()["own->central"] if (p.topic, p.partition) == (topic, 0)]
    assert (standing.source_end, standing.landed, standing.republished, standing.verdict) == (150, 150, 150, "OK")
    offsets = mirror["own->central"].offsets
    assert isinstance(offsets.translate(topic, 0, 149), Exact)
    assert isinstance(offsets.translate(topic, 0, 150), NotYetRepublished)
    new = [f"new-{number}" for number in range(150)]
    write(own, topic, new)
    mirror.run(once=True)
    assert landed(mirror, topic) == {1: first[1], 2: new}
    target = consume(central, f"own.{topic}")[0]
    assert [(record.value or b"").decode() for record in target] == [*first[1], *new]
    stands = {149: target[149].offset, 150: target[begun].offset, 299: target[begun + 149].offset}
    for upstream, downstream in stands.items():
        found = offsets.translate(topic, 0, upstream)
        assert isinstance(found, Exact)
        assert found.offset == downstream
    old_life = offsets.translate(topic, 0, 160, generation=1)
    assert isinstance(old_life, Exact)
    assert old_life.offset == target[160].offset
    table = mirror.spark.createDataFrame(
        [(topic, 0, offset) for offset in stands], "topic string, partition int, offset bigint"
    )
    answers = {row.offset: row.downstream_offset for row in offsets.translate_table(table).collect()}
    assert answers == stands
    commit(own, "before", topic, {0: 149})
    commit(own, "past", topic, {0: 151})
    moves = {one.group: one.resume.downstream_offset for one in mirror.plan_groups("own->central")}
    assert moves == {"before": target[149].offset, "past": target[begun + 1].offset}

    # The end is past what was landed, and the records before it are others; seen while running.
    other = [f"other-{number}" for number in range(450)]
    with staying_on(mirror):
        write(own, topic, ["last"])
        wait_until(lambda: landed(mirror, topic).get(2) == [*new, "last"], "the mirror lands")
        own.kill()
        for path in segment(own, topic).parent.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        own.start()
        write(own, topic, other)
        wait_until(lambda: landed(mirror, topic).get(3) == other, "the new history is landed")
    mirror.run(once=True)
    assert landed(mirror, topic) == {1: first[1], 2: [*new, "last"], 3: other}
    assert gaps(mirror, topic)[1:] == [("truncated", 2, 0, 0, 300)]
    target = consume(central, f"own.{topic}")[0]
    assert [(record.value or b"").decode() for record in target][begun + 151 :] == other
    assert mirror.land("own", once=True, rebuild_checkpoint=True).records == 0

    # Another cluster answers at the address.
    create_topic(east, topic, 2)
    mirror = mirror_with("record", {"own": east, "central": central})
    with pytest.raises(ClusterIdMismatch, match="but its relay holds records of"):
        mirror.land("own", once=True)
    assert run_cli("land", "--source", "own", "--once", "--conf", conf).returncode == 3
    assert any("but its relay holds records of" in one.detail for one in mirror.doctor() if not one.ok)
