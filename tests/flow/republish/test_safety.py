"""What must be refused rather than guessed: lost checkpoint locations, lost source records, lost ledgers, reborn topics."""

from __future__ import annotations

import shutil
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.errors import CheckpointLost, LedgerLost, SafetyError, SourceGap, StoreError, TopicConflict
from mirrorlake.kafka.lane.sender import LaneSender
from mirrorlake.lake.schema import GAPS
from mirrorlake.mirror import Mirror
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.offset_map import Exact, InHole
from mirrorlake.republish import fencing as ownership
from mirrorlake.republish.ledger_tables import LedgerCopy
from mirrorlake.republish.republisher import Republisher
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import (
    assert_equal_topics,
    consume,
    create_topic,
    delete_records,
    delete_topic,
    end_of,
    produce,
)
from tests.flow.map_check import assert_map_is_exact
from tests.flow.mirror.test_laws import topic_name
from tests.servers.lakes import MakeMirror


def forget(location: Path) -> None:
    """Remove what Spark would start anew without, leaving `metadata` (DESIGN 8)."""
    shutil.rmtree(location / "offsets")
    shutil.rmtree(location / "commits")


@pytest.fixture
def flow_of_one(east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror) -> tuple[Mirror, str]:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, 600, seed=1)
    mirror = make_mirror({"east": east, "central": central}, [{"source": "east", "target": "central", "topics": topic}])
    mirror.run(once=True)
    produce(east.bootstrap_servers, topic, 200, seed=2)
    mirror.run(once=True)
    return mirror, topic


def assert_mirrored(mirror: Mirror, topic: str, lake: Path, east: KafkaCluster, central: KafkaCluster) -> None:
    source, target = consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}")
    assert_equal_topics(source, target)
    assert_map_is_exact(lake, "east->central", topic, source, target)
    assert all(one.equal for one in mirror.verify())


@pytest.mark.law("C", "D", "F")
def test_law_f_a_lost_land_checkpoint_location_is_refused_and_rebuilt(
    flow_of_one: tuple[Mirror, str], tmp_path: Path, east: KafkaCluster, central: KafkaCluster
) -> None:
    mirror, topic = flow_of_one
    forget(tmp_path / "lake" / "checkpoints" / "land" / "east" / "1")
    produce(east.bootstrap_servers, topic, 300, seed=3)
    with pytest.raises(CheckpointLost, match="--rebuild-checkpoint") as refused:
        mirror.land("east", once=True)
    assert refused.value.exit_code == 3
    mirror.land("east", once=True, rebuild_checkpoint=True)
    mirror.run(once=True)
    assert_mirrored(mirror, topic, tmp_path / "lake", east, central)


@pytest.mark.law("F")
def test_law_f_an_older_land_checkpoint_location_is_refused(
    flow_of_one: tuple[Mirror, str], tmp_path: Path, east: KafkaCluster
) -> None:
    mirror, _ = flow_of_one
    location = tmp_path / "lake" / "checkpoints" / "land" / "east" / "1"
    newest = max(int(path.name) for path in (location / "offsets").iterdir() if path.name.isdigit())
    for folder in ("offsets", "commits"):
        (location / folder / str(newest)).unlink()
    with pytest.raises(CheckpointLost):
        mirror.land("east", once=True)


@pytest.mark.law("C", "D", "F")
def test_law_f_a_lost_republish_checkpoint_location_is_refused_and_rebuilt(
    flow_of_one: tuple[Mirror, str], tmp_path: Path, east: KafkaCluster, central: KafkaCluster
) -> None:
    mirror, topic = flow_of_one
    forget(tmp_path / "lake" / "checkpoints" / "republish" / "east.central" / "1")
    produce(east.bootstrap_servers, topic, 300, seed=3)
    mirror.land("east", once=True)
    with pytest.raises(CheckpointLost, match="--rebuild-checkpoint") as refused:
        mirror.republish("east->central", once=True)
    assert refused.value.exit_code == 3
    mirror.republish("east->central", once=True, rebuild_checkpoint=True)
    assert_mirrored(mirror, topic, tmp_path / "lake", east, central)


class Died(BaseException):
    """The owner's process ends here."""


@pytest.mark.law("C", "D", "F")
def test_law_f_owners_die_and_the_ledger_loses_a_lane(
    tmp_path: Path,
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, name, servers = topic_name(), "east->central", east.bootstrap_servers
    create_topic(servers, topic, 4)

    def mirror(lanes: int) -> Mirror:
        flow = {"source": "east", "target": "central", "topics": topic, "lanes": lanes}
        return make_mirror({"east": east, "central": central}, [flow])

    two = mirror(2)
    for seed, count in ((1, 400), (2, 40)):
        produce(servers, topic, count, seed=seed, partitions=4)
        two.land("east", once=True)

    # In the first batch of a new checkpoint location.
    batches: list[int] = []
    send_batch = Republisher._republish_batch

    def counting(self: Republisher, frame: DataFrame, batch_id: int) -> None:
        batches.append(frame.count())
        if len(batches) == 1:
            raise RuntimeError("the process ends here")
        send_batch(self, frame, batch_id)

    monkeypatch.setattr(Republisher, "_republish_batch", counting)
    with pytest.raises(StoreError):
        two.republish(name, once=True)
    two.republish(name, once=True)
    assert batches == [40, 40], "the next start begins where the backfill ended, not at the relay's first version"
    monkeypatch.setattr(Republisher, "_republish_batch", send_batch)
    assert_mirrored(two, topic, tmp_path / "lake", east, central)

    # Between two claims, while the lanes become more.
    claim, claimed = LaneSender.claim, list[int]()

    def dying(self: LaneSender, record: LedgerRecord) -> LedgerRecord:
        if claimed:
            raise Died
        claimed.append(record.lane)
        return claim(self, record)

    produce(servers, topic, 40, seed=3, partitions=4)
    four = mirror(4)
    four.land("east", once=True)
    monkeypatch.setattr(LaneSender, "claim", dying)
    with pytest.raises(Died):
        four.republish(name, once=True)
    monkeypatch.setattr(LaneSender, "claim", claim)

    # The next owner's clock is ahead; those that follow it have the right one.
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime(2090, 1, 1, tzinfo=tz)

    with monkeypatch.context() as patch:
        patch.setattr(ownership, "datetime", Clock)
        four.republish(name, once=True, rebuild_checkpoint=True)
    assert_mirrored(four, topic, tmp_path / "lake", east, central)

    # After a chunk was confirmed and before the lake knew it; then a lane of the ledger is lost.
    with pytest.raises(SafetyError, match="without --restore-ledger") as refused:
        four.republish(name, once=True, restore_ledger=True)
    assert refused.value.exit_code == 3

    def keep_nothing(self: LedgerCopy, records: list[LedgerRecord]) -> None:
        if records:
            raise RuntimeError("the process ends here")

    produce(servers, topic, 40, seed=4, partitions=1)
    four.land("east", once=True)
    monkeypatch.setattr(LedgerCopy, "add", keep_nothing)
    with pytest.raises(StoreError):
        four.republish(name, once=True)
    monkeypatch.undo()
    ledger, lane = "mirrorlake.east.central.ledger", lane_of(topic, 1, lanes=4)
    delete_records(central.bootstrap_servers, ledger, lane, end_of(central.bootstrap_servers, ledger, lane))
    with pytest.raises(LedgerLost, match=f"lane {lane} .* holds nothing.*--restore-ledger") as lost:
        four.republish(name, once=True)
    assert lost.value.exit_code == 3
    four.republish(name, once=True, restore_ledger=True)
    assert_mirrored(four, topic, tmp_path / "lake", east, central)

    # The whole ledger.
    delete_topic(central.bootstrap_servers, ledger)
    produce(servers, topic, 40, seed=5, partitions=4)
    four.land("east", once=True)
    with pytest.raises(LedgerLost, match="--restore-ledger"):
        four.republish(name, once=True)
    four.republish(name, once=True, restore_ledger=True)
    assert_mirrored(four, topic, tmp_path / "lake", east, central)


@pytest.mark.law("E")
@pytest.mark.parametrize("policy", ["halt", "record"])
def test_law_e_retention_that_overtakes_a_stopped_lander(
    policy: str, east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, 200)
    flow = {"source": "east", "target": "central", "topics": topic}
    mirror = make_mirror({"east": east, "central": central}, [flow], east={"land": {"on_gap": policy}})
    mirror.run(once=True)
    produce(east.bootstrap_servers, topic, 200, seed=2)
    delete_records(east.bootstrap_servers, topic, 0, 150)
    if policy == "halt":
        with pytest.raises(SourceGap, match=rf"{topic}-0 100\.\.149") as refused:
            mirror.run(once=True)
        assert refused.value.exit_code == 3
        assert mirror.lake.relay("east").where("partition = 0 and offset >= 100").count() == 0
        return
    mirror.run(once=True)
    gaps = mirror.lake.meta(GAPS).where((F.col("topic") == topic) & (F.col("kind") == "expired")).collect()
    assert [(g.partition, g.first_offset, g.last_offset, g.missing) for g in gaps] == [(0, 100, 149, 50)]
    assert mirror.lake.meta(GAPS).where(F.col("topic") == topic).count() == 1
    target = consume(central.bootstrap_servers, f"east.{topic}")
    assert [len(target[0]), len(target[1])] == [150, 200]
    found = mirror["east->central"].offsets
    resume_at = target[0][99].offset + 1
    assert found.translate(topic, 0, 120) == InHole(resume_at, kind="expired")
    assert isinstance(found.translate(topic, 0, 150), Exact)
    assert mirror.verify()[0].equal


@pytest.mark.parametrize("refilled", [10, 500])
def test_a_topic_that_is_created_again_is_a_new_generation(
    refilled: int, east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, 200)
    mirror = make_mirror({"east": east, "central": central}, [{"source": "east", "target": "central", "topics": topic}])
    mirror.run(once=True)
    delete_topic(east.bootstrap_servers, topic)
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, refilled, seed=2)
    mirror.run(once=True)
    counts = {row.generation: row["count"] for row in mirror.lake.relay("east").groupBy("generation").count().collect()}
    assert counts == {1: 200, 2: refilled}
    kinds = [row.kind for row in mirror.lake.meta(GAPS).where(F.col("topic") == topic).collect()]
    assert kinds == ["recreated", "recreated"]
    offsets = mirror["east->central"].offsets
    old, new = offsets.translate(topic, 0, 3, generation=1), offsets.translate(topic, 0, 3)
    assert isinstance(old, Exact)
    assert isinstance(new, Exact)
    assert old.offset != new.offset
    target = consume(central.bootstrap_servers, f"east.{topic}")
    assert sum(map(len, target.values())) == 200 + refilled
    by_offset = {record.offset: record for record in target[0]}
    assert (by_offset[old.offset].value or b"").startswith(b"v1-")
    assert (by_offset[new.offset].value or b"").startswith(b"v2-")
    assert mirror.verify()[0].equal


@pytest.mark.law("C", "D", "F")
def test_a_foreign_topic_with_fewer_partitions_is_refused_until_apply(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 3)
    create_topic(central.bootstrap_servers, f"east.{topic}", 1)
    produce(east.bootstrap_servers, topic, 90, partitions=3)
    mirror = make_mirror({"east": east, "central": central}, [{"source": "east", "target": "central", "topics": topic}])
    with pytest.raises(TopicConflict, match="mirrorlake apply") as refused:
        mirror.run(once=True)
    assert refused.value.exit_code == 3
    assert [change.action for change in mirror.plan().changes if change.name == f"east.{topic}"] == ["add_partitions"]
    mirror.apply()
    mirror.run(once=True)
    assert_equal_topics(consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}"))
