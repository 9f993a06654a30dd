"""Records leave a relay on an object store: by retention, by erasure, and by an erasure that was killed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from mirrorlake.config.loading import loads
from mirrorlake.config.schema import ClusterConfig, FlowConfig, MaintenanceConfig
from mirrorlake.lake import (
    POSITIONS,
    FencedRelayWriter,
    Lake,
    LandingLog,
    left_before,
    read_in_order,
    relay_schema,
    removed_from,
    write_files,
)
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.rows import position_row
from mirrorlake.lake.schema import RELAY
from mirrorlake.maintenance import Selector
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.erasure import Eraser
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.patterns import TopicPattern
from tests.kit.deaths import dying
from tests.servers.store import StoreServer
from tests.stores.test_tables import conf, no_spark, rows

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
SOURCE = SourcePartition("orders", 1, 0)
FLOW = FlowConfig(source="east", target="central", topics="orders").bound_to(TopicPattern(), adds_hops=False)
ADA = Selector(key=b"ada")
BATCHES = 4
END = BATCHES * 10


class World:
    """A relay with a batch of ten offsets a day; every tenth record is Ada's."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        writer = FencedRelayWriter(lake, "east")
        writer.refresh()
        writer.claim("cluster")
        self.path, self._landing = writer.relay_claim().path, LandingLog(writer.relay_claim())
        self.sent = SentUpTo(flow=FLOW, positions={SOURCE: END})

    def fill(self) -> None:
        for batch in range(1, BATCHES + 1):
            self.land(batch, [str(n).encode() for n in range(batch * 10 - 10, batch * 10)])

    def land(self, batch: int, values: list[bytes]) -> None:
        first, day = batch * 10 - 10, NOON + batch * DAY
        offsets = range(first, first + len(values))
        keys = [b"ada" if offset % 10 == 5 else b"%d" % offset for offset in offsets]
        days = [day] * len(values)
        landed = rows(first, offsets.stop, key=keys, value=values, timestamp=days, landed_at=days)
        self._landing.append(list(write_files(self.path, relay_schema(), iter([landed]))), batch, day)
        self.lake.append(POSITIONS, [position_row("east", SOURCE, "landed", offsets[-1] + 1, day)])

    def eraser(self) -> Eraser:
        return Eraser(self.lake, "east", [self.sent], on_target=lambda *_: "for ever", now=lambda: NOON + 30 * DAY)

    def offsets(self) -> list[int]:
        found = self.lake.query("SELECT offset AS at FROM {relay} ORDER BY 1", relay="east")
        return [row.at for row in found]

    def keys_on_the_store(self) -> set[bytes]:
        table = self.lake.open_maintenance(self.path)
        assert table is not None
        found: set[bytes] = set()
        for name in table.list_files():
            with table.open(name) as file:
                found.update(pq.read_table(file, columns=["key"]).column("key").to_pylist())
        return found


@pytest.fixture(scope="module")
def bucket(store_server: StoreServer) -> str:
    return store_server.make_bucket(f"removal-{uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def filled(store_server: StoreServer, bucket: str, store_keys: None) -> dict[str, bytes]:
    """Land the batches once."""
    lake = Lake(no_spark, loads(conf(store_server, f"s3a://{bucket}/filled/lake")).lake)
    FolderTables().create(lake.relay_location("east"), RELAY)
    lake.create_side_table(POSITIONS)
    World(lake).fill()
    return store_server.objects(f"{bucket}/filled/lake")


@pytest.fixture
def world(store_server: StoreServer, bucket: str, filled: Mapping[str, bytes]) -> World:
    place = f"{bucket}/{uuid4().hex[:6]}/lake"
    store_server.put(place, filled)
    return World(Lake(no_spark, loads(conf(store_server, f"s3a://{place}")).lake))


@pytest.mark.law("E")
def test_law_e_what_is_past_its_retention_leaves_a_store_and_is_explained(world: World) -> None:
    log = world.lake.relay_log("east")
    assert log is not None
    held = log.files({})
    clusters = {"east": ClusterConfig(bootstrap_servers="e:1", retention={"orders": {"age": "3d"}})}
    now = NOON + BATCHES * DAY + timedelta(hours=1)
    upkeep = LakeUpkeep(world.lake, MaintenanceConfig(keep_removed="1h"), now=lambda: now, clusters=clusters)
    kept = upkeep.relay("east", [world.sent], is_published=False, plan=False)
    assert kept is not None
    assert (kept.why_not, kept.expired.records) == ("", 10)
    assert world.offsets() == [*range(10, END)]
    assert left_before(world.lake, "east") == {SOURCE: 10}
    assert all(one.is_done for one in removed_from(world.lake, "east"))
    # Who holds the old list reads on: the files stay for `keep_removed`.
    assert sum(map(len, read_in_order(held))) == END


@pytest.mark.law("E", "F")
@pytest.mark.parametrize("step", ["announced", "committed", "confirming"])
def test_law_f_an_erasure_on_a_store_is_ended_by_the_next_one(world: World, step: str) -> None:
    with dying(f"remove.{step}"):
        world.eraser().erase("orders", ADA, "why")
    explained = {
        offset for one in removed_from(world.lake, "east") for offset in range(END) if one.ranges.contains(offset)
    }
    assert {*world.offsets()} | explained >= {*range(END)}
    done = world.eraser().erase("orders", ADA, "why")
    assert (done.records + done.finished, done.ok) == (BATCHES, True)
    assert world.offsets() == [offset for offset in range(END) if offset % 10 != 5]
    assert b"ada" not in world.keys_on_the_store(), "in no object, named or not"
    assert all(one.is_done for one in removed_from(world.lake, "east"))


@pytest.mark.law("C")
def test_law_c_a_file_of_several_parts_is_put_whole(world: World) -> None:
    """Arrow puts an object in parts of 10 MB; a backlog's files have more."""
    rng = random.Random(1)
    values = [rng.randbytes(1 << 20) for _ in range(25)]
    world.land(BATCHES + 1, values)
    log = world.lake.relay_log("east")
    assert log is not None
    [file] = [one for one in log.files({SOURCE: END}) if one.first_offset == END]
    read = [value for batch in read_in_order([file]) for value in batch.column("value").to_pylist()]
    assert read == values
