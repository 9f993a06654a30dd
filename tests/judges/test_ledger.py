"""What must be refused rather than guessed: lost checkpoint locations, lost source records, lost ledgers, reborn topics."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mirrorlake import Exact, Mirror, NoRecord
from mirrorlake.errors import CheckpointLost, LedgerLost, SafetyError, SourceGap, TopicConflict
from tests.kit.deaths import dying
from tests.kit.records import consume, create_topic, delete_records, delete_topic, end_of, new_topic, produce
from tests.servers.lakes import Pair

FLOW = "east->central"


def forget(location: Path) -> None:
    """Remove what Spark would start anew without, leaving `metadata`."""
    shutil.rmtree(location / "offsets")
    shutil.rmtree(location / "commits")


def assert_mirrored(mirror: Mirror, pair: Pair) -> None:
    pair.check(with_map=True)
    assert all(one.equal for one in mirror.verify())


STEPS: dict[str, tuple[str, Callable[..., object]]] = {
    "land": ("land/east", lambda mirror, **options: mirror.land("east", once=True, **options)),
    "republish": ("republish/east.central", lambda mirror, **options: mirror.republish(FLOW, once=True, **options)),
}


@pytest.mark.law("C", "D", "F")
def test_law_f_a_lost_checkpoint_location_is_refused_and_rebuilt(pair: Pair) -> None:
    pair.create()
    # Queries of Spark's have checkpoint locations; live tasks have none to lose.
    mirror = pair.mirror(execution="streaming", east={"land": {"execution": "streaming"}})
    for count, seed in ((600, 1), (200, 2)):
        pair.produce(count, seed=seed)
        mirror.run(once=True)
    for seed, (step, (where, run)) in enumerate(STEPS.items(), 3):
        location = max((pair.lake / "checkpoints" / where).iterdir(), key=lambda folder: int(folder.name))
        if step == "land":
            # An older copy of the location, as a backup that was restored.
            newest = max(int(path.name) for path in (location / "offsets").iterdir() if path.name.isdigit())
            for folder in ("offsets", "commits"):
                (location / folder / str(newest)).unlink()
            with pytest.raises(CheckpointLost):
                run(mirror)
        forget(location)
        pair.produce(300, seed=seed)
        if step == "republish":
            mirror.land("east", once=True)
        with pytest.raises(CheckpointLost, match="--rebuild-checkpoint") as refused:
            run(mirror)
        assert refused.value.exit_code == 3
        run(mirror, rebuild_checkpoint=True)
        if step == "land":
            mirror.run(once=True)
        assert_mirrored(mirror, pair)


@pytest.mark.law("C", "D", "F")
def test_law_f_owners_die_and_the_ledger_loses_a_lane(pair: Pair) -> None:
    pair.create(partitions=4)
    ledger = "mirrorlake.east.central.ledger"

    two = pair.mirror(lanes=2)
    for seed, count in ((1, 400), (2, 40)):
        pair.produce(count, seed=seed)
        two.run(once=True)
    # Between two claims, while the lanes become more.
    pair.produce(40, seed=3)
    four = pair.mirror(lanes=4)
    four.land("east", once=True)
    with dying("send.claimed"):
        four.republish(FLOW, once=True)
    four.republish(FLOW, once=True)
    pair.check(with_map=True)

    # After a chunk was confirmed and before the lake knew it; then a lane of the ledger is lost.
    with pytest.raises(SafetyError, match="without --restore-ledger") as refused:
        four.republish(FLOW, once=True, restore_ledger=True)
    assert refused.value.exit_code == 3
    pair.produce(40, seed=4, partitions=1)
    four.land("east", once=True)
    with dying("ledger.copying"):
        four.republish(FLOW, once=True)
    newest = {n: json.loads(held[-1].value or b"") for n, held in consume(pair.central, ledger).items()}
    lane = next(n for n, record in newest.items() if not record["runs"])
    delete_records(pair.central, ledger, lane, end_of(pair.central, ledger, lane))
    with pytest.raises(LedgerLost, match=f"lane {lane} .* holds nothing.*--restore-ledger") as lost:
        four.republish(FLOW, once=True)
    assert lost.value.exit_code == 3
    four.republish(FLOW, once=True, restore_ledger=True)
    pair.check(with_map=True)

    # The whole ledger.
    delete_topic(pair.central, ledger)
    pair.produce(40, seed=5)
    four.land("east", once=True)
    with pytest.raises(LedgerLost, match="--restore-ledger"):
        four.republish(FLOW, once=True)
    four.republish(FLOW, once=True, restore_ledger=True)

    # The last full record of a lane: what moved since stands there.
    pair.produce(40, seed=6, partitions=1)
    two = pair.mirror(lanes=2)
    two.run(once=True)
    [(lane, (whole, part))] = [(n, held) for n, held in consume(pair.central, ledger).items() if len(held) == 2]
    assert ["full" in json.loads(one.value or b"") for one in (whole, part)] == [False, True]
    delete_records(pair.central, ledger, lane, part.offset)
    assert "lacks its last full record" in str(two.status())
    with pytest.raises(LedgerLost, match=f"lane {lane} .* lacks its last full record .*--restore-ledger"):
        two.republish(FLOW, once=True)
    two.republish(FLOW, once=True, restore_ledger=True)
    # Nothing was due: only claims are left.
    left = [json.loads(one.value or b"") for several in consume(pair.central, ledger).values() for one in several]
    assert [("full" in one, one["runs"]) for one in left] == [(False, [])] * 4
    assert_mirrored(two, pair)


@pytest.mark.law("E")
def test_law_e_retention_that_overtakes_a_stopped_lander(pair: Pair) -> None:
    topic = pair.topic
    pair.create(200)
    mirror = pair.mirror()
    mirror.run(once=True)
    pair.produce(200, seed=2)
    delete_records(pair.east, topic, 0, 150)
    with pytest.raises(SourceGap, match=rf"{topic}-0 100\.\.149") as refused:
        mirror.run(once=True)
    assert refused.value.exit_code == 3
    assert max(row["offset"] for row in pair.landed() if row["partition"] == 0) == 99

    mirror = pair.mirror(east={"land": {"on_gap": "record"}})
    mirror.run(once=True)
    found = [(g["kind"], g["partition"], g["first_offset"], g["last_offset"], g["missing"]) for g in pair.gaps()]
    assert found == [("expired", 0, 100, 149, 50)]
    target = pair.target()
    assert [len(target[0]), len(target[1])] == [150, 200]
    offsets = mirror[FLOW].offsets
    resume_at = target[0][99].offset + 1
    assert offsets.translate(topic, 0, 120) == NoRecord(resume_at, kind="expired")
    assert isinstance(offsets.translate(topic, 0, 150), Exact)
    assert mirror.verify()[0].equal


def test_a_topic_that_is_created_again_is_a_new_generation(pair: Pair) -> None:
    # By the next look one holds fewer records than before, the other more.
    refilled = {new_topic(pair.east, 200): 10, new_topic(pair.east, 200): 500}
    mirror = pair.mirror(topics=list(refilled))
    mirror.run(once=True)
    for topic, records in refilled.items():
        delete_topic(pair.east, topic)
        create_topic(pair.east, topic, 2)
        produce(pair.east, topic, records, seed=2)
    mirror.run(once=True)
    landed = Counter((row["topic"], row["generation"]) for topic in refilled for row in pair.landed(topic))
    assert landed == {(t, n): 200 if n == 1 else records for t, records in refilled.items() for n in (1, 2)}
    offsets = mirror[FLOW].offsets
    for topic, records in refilled.items():
        kinds = [row["kind"] for row in pair.gaps(topic)]
        assert kinds == ["recreated", "recreated"]
        old, new = offsets.translate(topic, 0, 3, generation=1), offsets.translate(topic, 0, 3)
        assert isinstance(old, Exact)
        assert isinstance(new, Exact)
        assert old.offset != new.offset
        target = pair.target(f"east.{topic}")
        assert sum(map(len, target.values())) == 200 + records
        by_offset = {record.offset: record for record in target[0]}
        assert (by_offset[old.offset].value or b"").startswith(b"v1-")
        assert (by_offset[new.offset].value or b"").startswith(b"v2-")
    assert mirror.verify()[0].equal


@pytest.mark.law("C", "D", "F")
def test_a_foreign_topic_with_fewer_partitions_is_refused_until_apply(pair: Pair) -> None:
    pair.create(90, partitions=3)
    create_topic(pair.central, pair.remote, 1)
    mirror = pair.mirror()
    with pytest.raises(TopicConflict, match="mirrorlake apply") as refused:
        mirror.run(once=True)
    assert refused.value.exit_code == 3
    assert [change.action for change in mirror.plan().changes if change.name == pair.remote] == ["add_partitions"]
    mirror.apply()
    mirror.run(once=True)
    pair.check()
