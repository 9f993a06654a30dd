"""Tables on an object store, by delta-rs and Arrow: neither a JVM nor a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from mirrorlake.config.loading import loads
from mirrorlake.errors import SafetyError, StoreError
from mirrorlake.lake import (
    GAPS,
    FencedRelayWriter,
    Lake,
    LandingLog,
    check_store,
    read_landing_positions,
    relay_schema,
    write_files,
)
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.relay_files import read_in_order
from mirrorlake.lake.store_check import StoreCheck
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.maintenance.side_tables import compact_side_table
from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import RunMarker, Store, attach_stores, find_store, open_folder
from tests.servers.store import SECRET_KEY, StoreServer, serving

SOURCE = SourcePartition("orders", 1, 0)
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
# A quarter of the files that become one, as each of them takes a dozen requests.
FANOUT = 8


def conf(server: StoreServer, root: str) -> str:
    return f"""
lake: {{root: "{root}", storage: {server.settings}}}
clusters: {{east: {{bootstrap_servers: "e:1"}}, central: {{bootstrap_servers: "c:1"}}}}
flows: [{{source: east, target: central, topics: orders}}]
""".replace("True", "true")


def no_spark() -> Any:
    pytest.fail("a lake on a store has asked for Spark")


@pytest.fixture(scope="module")
def bucket(store_server: StoreServer) -> str:
    return store_server.make_bucket(f"lake-{uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def empty_lake(store_server: StoreServer, bucket: str, store_keys: None) -> dict[str, bytes]:
    """Make the tables once."""
    # Hadoop's and Amazon's spelling are one.
    Lake(no_spark, loads(conf(store_server, f"s3://{bucket}/made/lake")).lake).create_all(["east"])
    return store_server.objects(f"{bucket}/made/lake")


@pytest.fixture
def lake(store_server: StoreServer, bucket: str, empty_lake: Mapping[str, bytes]) -> Lake:
    place = f"{bucket}/{uuid4().hex[:6]}/lake"
    store_server.put(place, empty_lake)
    return Lake(no_spark, loads(conf(store_server, f"s3://{place}")).lake)


def rows(first: int, last: int, **columns: list[Any]) -> pa.RecordBatch:
    """Return rows of the relay with these offsets; `columns` are other ones than the plain."""
    count = last - first
    plain: dict[str, list[Any]] = {
        "topic": ["orders"] * count,
        "generation": [1] * count,
        "partition": [0] * count,
        "offset": list(range(first, last)),
        "timestamp": [NOW] * count,
        "timestamp_type": [0] * count,
        "key": [b"k"] * count,
        "value": [str(n).encode() for n in range(first, last)],
        "headers": [[{"key": "h", "value": b"1"}]] * count,
        "landed_at": [NOW] * count,
    }
    return pa.RecordBatch.from_pydict(plain | columns, relay_schema())


def test_a_lake_of_another_release_on_a_store_is_refused_without_spark(lake: Lake) -> None:
    gaps = lake.meta_location(GAPS)
    made = lake.version(gaps)
    lake.set_properties(gaps, {"mirrorlake.lakeVersion": "9"})
    assert lake.version(gaps) == (made or 0) + 1
    lake._is_version_checked = False
    with pytest.raises(SafetyError, match="its version is 9"):
        lake.append_rows(GAPS, [{"source": "east", "topic": "orders"}])
    with pytest.raises(SafetyError, match="its version is 9"):
        lake.relay_log("east")


def test_a_turn_costs_as_many_requests_whatever_the_log_holds(lake: Lake, store_server: StoreServer) -> None:
    def costs(do: Callable[[], object]) -> tuple[int, int]:
        """Count PUT and LIST, and GET and HEAD."""
        counted = store_server.counted(do)
        return counted["PUT"] + counted["POST"] + counted["LIST"], counted["GET"] + counted["HEAD"]

    writer, follower = FencedRelayWriter(lake, "east"), lake.relay_log("east")
    assert follower is not None
    writer.refresh()
    writer.claim("cluster")
    seat, batches = writer.relay_claim(), iter(range(1, 100))
    landing, run_marker = LandingLog(seat), RunMarker(f"{lake.checkpoint_root()}/live/x", 1, interval_s=60.0)
    schema, gap = relay_schema(), pa.table({"source": ["east"], "topic": ["orders"]})

    def turn() -> None:
        number = next(batches)
        files = write_files(seat.path, schema, iter([rows(number * 10, number * 10 + 10)]))
        landing.append(list(files), number, NOW)

    for _ in range(2):
        turn()
    # Two of its own and as many of others, so that none grows with the log.
    assert [costs(turn) for _ in range(4)] == [(5, 6)] * 4
    follower.files({})
    turn()
    assert costs(lambda: [list(read_in_order([one])) for one in follower.new_files({})])[1] == 7
    run_marker.create()
    looks = costs(lambda: (follower.new_files({}), run_marker.exists(), run_marker.exists(), run_marker.exists()))
    assert looks == (0, 2)
    tables, place = FolderTables(), lake.meta_location(GAPS)
    tables.append(place, gap)
    assert costs(lambda: tables.append(place, gap)) == (5, 5)


@pytest.mark.law("F")
def test_writers_at_the_same_moment_lose_nothing(lake: Lake) -> None:
    def write(name: str) -> None:
        # Tables of its own: commits of one process otherwise wait for each other.
        mine, place = FolderTables(), lake.meta_location(GAPS)
        for version in range(1, 9):
            gap = pa.table({"source": [name], "topic": [str(version)]})
            mine.append(place, gap, app_id=name, version=version)
            mine.append(place, gap, app_id=name, version=version)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lake.query_rows(
        "SELECT source, count(*) AS n, count(DISTINCT topic) AS topics FROM {gaps} GROUP BY 1 ORDER BY 1"
    )
    assert [(row.source, row.n, row.topics) for row in found] == [(name, 8, 8) for name in ("a", "b", "c")]


@pytest.mark.law("F")
def test_law_f_commits_carry_how_far_a_task_has_read(lake: Lake) -> None:
    assert read_landing_positions(lake, "east") == {}
    writer, other = FencedRelayWriter(lake, "east"), SourcePartition("orders", 1, 1)
    writer.refresh()
    writer.claim("cluster", {SOURCE: 5, other: 2})
    seat = writer.relay_claim()
    log = LandingLog(seat)
    log.append(list(write_files(seat.path, relay_schema(), iter([rows(5, 8)]))), 1, NOW, {SOURCE: 9})
    log.append([], 2, NOW, {SOURCE: 11})
    assert read_landing_positions(lake, "east") == {SOURCE: 11, other: 2}
    assert log.newest_landed_at() == NOW

    # Two groups at the same moment: one signs after the other, and a whole record of either says what both have read.
    writer.claim("cluster", {SOURCE: 11, other: 2})
    seat = writer.relay_claim()

    def land_some(group: int) -> None:
        mine, tp = LandingLog(replace(seat, group=group)), (SOURCE, other)[group]
        for number in range(1, 6):
            mine.append([], number, NOW, {tp: 20 + number}, is_whole=number == 5)

    with ThreadPoolExecutor() as pool:
        list(pool.map(land_some, (0, 1)))
    assert read_landing_positions(lake, "east") == {SOURCE: 25, other: 25}
    signed = [commit.signature for commit in lake.commits(seat.path)[:10]]
    assert [one["batch"] for one in signed] == [*range(9, -1, -1)]
    assert sorted(one["group"] for one in signed) == [0] * 5 + [1] * 5


@pytest.mark.law("C", "D", "F")
def test_old_files_become_large_ones(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", f"compaction_fanout={FANOUT}")
    writer, log = FencedRelayWriter(lake, "east"), lake.relay_log("east")
    assert log is not None
    writer.refresh()
    writer.claim("cluster")
    landing = LandingLog(writer.relay_claim())
    for batch in range(1, FANOUT + 1):
        files = write_files(writer.relay_claim().path, relay_schema(), iter([rows(batch * 10, batch * 10 + 10)]))
        landing.append(list(files), batch, NOW)
        lake.append_rows(GAPS, [{"source": "east", "first_offset": batch}])
    before = log.files({})
    table, gaps = (lake.open_maintenance(place) for place in (lake.relay_location("east"), lake.meta_location(GAPS)))
    assert table is not None
    assert gaps is not None
    done = compact_relay(table, "east", [], now=NOW + timedelta(hours=1), max_wait=timedelta(days=1))
    assert (done.files, done.into) == (FANOUT, 1)
    assert compact_side_table(gaps, GAPS).into == 1
    assert table.checkpoint(after=1)
    [file] = log.files({})
    assert sum(map(len, read_in_order([file]))) == FANOUT * 10
    assert lake.query_rows("SELECT count(DISTINCT first_offset) AS n FROM {gaps}")[0].n == FANOUT
    # A task that listed the small files before they were deleted reads what took their place.
    for small in before:
        table.delete(small.uri.rpartition("/")[2])
    read = [offset for batch in read_in_order(before) for offset in batch.column("offset").to_pylist()]
    assert read == list(range(10, FANOUT * 10 + 10))


def test_nobody_reads_the_keys_of_a_store(lake: Lake, store_server: StoreServer, bucket: str) -> None:
    store = lake.store
    assert store is not None
    assert find_store(lake.relay_location("east")) == store
    assert SECRET_KEY not in repr(store) + str(store) + lake.relay_location("east")
    assert SECRET_KEY not in repr(loads(conf(store_server, f"s3a://{bucket}/x")))
    written = store_server.objects(bucket)
    assert written
    assert not [name for name, content in written.items() if SECRET_KEY.encode() in content]


def test_a_store_that_works_is_said_to_work(lake: Lake, store_server: StoreServer) -> None:
    assert lake.store is not None
    assert [look.what for look in check_store(lake.store) if not look.problem] == [
        "write and list",
        "conditional put",
        "delete",
    ]
    assert open_folder(f"{lake.checkpoint_root()}/doctor").names() == []


@pytest.mark.law("F")
def test_a_store_that_puts_over_what_is_there_is_found_out() -> None:
    with serving("overwrites=True") as server:
        store = Store(f"s3a://{server.make_bucket('careless')}/mirror", server.values)
        attach_stores(store)
        [race] = [look for look in check_store(store) if look.problem]
    assert race.what == "conditional put"
    assert "records would be lost" in race.problem


def test_what_a_store_refuses_is_a_sentence(store_server: StoreServer, store_keys: None) -> None:
    def first_look(server: StoreServer, root: str) -> StoreCheck:
        store = Store(root, server.values)
        attach_stores(store)
        looks = list(check_store(store))
        assert SECRET_KEY not in str(looks)
        return looks[-1]

    missing = f"s3a://none-{uuid4().hex[:8]}/mirror"
    look = first_look(store_server, missing)
    assert "no such bucket" in look.problem
    assert missing.split("/")[2] in look.fix
    closed = StoreServer(1)
    look = first_look(closed, "s3a://closed/mirror")
    assert "does not answer" in look.problem
    with serving(INITIAL_NO_AUTH_ACTION_COUNT="0") as strict:
        look = first_look(strict, "s3a://strict/mirror")
    assert "refuses the credentials" in look.problem
    lake = Lake(no_spark, loads(conf(store_server, missing.replace("mirror", "other"))).lake)
    with pytest.raises(StoreError, match="no such bucket") as raised:
        lake.create_all(["east"])
    assert raised.value.exit_code == 4


def test_a_place_belongs_to_the_store_it_is_below(tmp_path: Path) -> None:
    store = Store("s3a://lake/mirror", {})
    assert store.holds("s3://lake/mirror/relay/east")
    assert not store.holds("s3a://lake/mirror2/relay")
    assert not store.holds("gs://lake/mirror")
    assert find_store(str(tmp_path)) is None
