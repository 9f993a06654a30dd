"""Tables on an object store, by delta-rs and Arrow: neither a JVM nor a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from mirrorlake.config.loading import loads
from mirrorlake.errors import StoreError
from mirrorlake.lake import (
    GAPS,
    FencedRelayWriter,
    FolderTables,
    Lake,
    LandingLog,
    RelayClaim,
    check_store,
    read_in_order,
    read_landing_positions,
    relay_schema,
    write_files,
)
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.maintenance.side_tables import compact_side_table
from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import RunMarker, Store, attach_stores, find_store, open_folder
from tests.servers.store import SECRET_KEY, StoreServer, serving

SOURCE = SourcePartition("orders", 1, 0)
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
# An eighth of the files that become one, as each of them takes a dozen requests.
FANOUT = 4


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
    same = {"topic": "orders", "generation": 1, "partition": 0, "timestamp": NOW, "timestamp_type": 0, "key": b"k"}
    same |= {"headers": [{"key": "h", "value": b"1"}], "landed_at": NOW}
    plain = {name: [value] * (last - first) for name, value in same.items()}
    plain |= {"offset": [*range(first, last)], "value": [b"%d" % n for n in range(first, last)]}
    return pa.RecordBatch.from_pydict({name: (plain | columns)[name] for name in relay_schema().names}, relay_schema())


def claimed(lake: Lake, read: Mapping[SourcePartition, int] | None = None) -> RelayClaim:
    writer = FencedRelayWriter(lake, "east")
    writer.refresh()
    writer.claim("cluster", read)
    return writer.relay_claim()


def test_a_turn_costs_as_many_requests_whatever_the_log_holds(lake: Lake, store_server: StoreServer) -> None:
    def costs(do: Callable[[], object]) -> tuple[int, int]:
        """Count PUT and LIST, and GET and HEAD."""
        counted = store_server.counted(do)
        return counted["PUT"] + counted["POST"] + counted["LIST"], counted["GET"] + counted["HEAD"]

    seat, follower, tables = claimed(lake), lake.relay_log("east"), FolderTables()
    assert follower is not None
    landing, run_marker = LandingLog(seat), RunMarker(f"{lake.checkpoint_root()}/live/x", 1, interval_s=60.0)
    batches, gap, gaps = iter(range(1, 100)), pa.table({"source": ["east"]}), lake.meta_location(GAPS)

    def turn() -> None:
        number = next(batches)
        files = write_files(seat.path, relay_schema(), iter([rows(number, number + 1)]))
        landing.append([*files], number, NOW)

    turn()
    turn()
    # Two of its own and as many of others, so that none grows with the log.
    assert [costs(turn) for _ in range(4)] == [(5, 6)] * 4
    follower.files({})
    turn()
    assert costs(lambda: [list(read_in_order([one])) for one in follower.new_files({})])[1] == 7
    run_marker.create()
    assert costs(lambda: (follower.new_files({}), *(run_marker.exists() for _ in range(3)))) == (0, 2)
    tables.append(gaps, gap)
    assert costs(lambda: tables.append(gaps, gap)) == (5, 5)


@pytest.mark.law("F")
def test_law_f_writers_at_the_same_moment_lose_nothing(lake: Lake) -> None:
    gaps, other = lake.meta_location(GAPS), SourcePartition("orders", 1, 1)
    seat = claimed(lake, {SOURCE: 11, other: 2})
    assert read_landing_positions(lake, "east") == {SOURCE: 11, other: 2}

    def write(name: str) -> None:
        # Tables of its own: commits of one process otherwise wait for each other.
        tables = FolderTables()
        for version in (1, 1, 2, 2):
            gap = pa.table({"source": [name], "topic": [str(version)]})
            tables.append(gaps, gap, app_id=name, version=version)

    def land_some(group: int) -> None:
        landing, partition = LandingLog(replace(seat, group=group)), (SOURCE, other)[group]
        for number in range(1, 4):
            # A whole record of either group says what both have read.
            landing.append([], number, NOW, {partition: 20 + number}, is_whole=number == 3)

    with ThreadPoolExecutor() as pool:
        assert [*pool.map(write, "abc"), *pool.map(land_some, (0, 1))] == [None] * 5
    found = lake.query("SELECT source, count(*) AS n, count(DISTINCT topic) AS topics FROM {gaps} GROUP BY 1")
    assert sorted((row.source, row.n, row.topics) for row in found) == [(name, 2, 2) for name in "abc"]
    assert read_landing_positions(lake, "east") == {SOURCE: 23, other: 23}
    signed = [commit.signature for commit in islice(lake.commits(seat.path), 6)]
    assert [one["batch"] for one in signed] == [*range(5, -1, -1)]
    assert sorted(one["group"] for one in signed) == [0] * 3 + [1] * 3


@pytest.mark.law("C", "D", "F")
def test_old_files_become_large_ones(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", f"compaction_fanout={FANOUT}")
    seat = claimed(lake)
    landing, log = LandingLog(seat), lake.relay_log("east")
    for batch in range(1, FANOUT + 1):
        landing.append([*write_files(seat.path, relay_schema(), iter([rows(batch, batch + 1)]))], batch, NOW)
        lake.append(GAPS, [{"source": "east", "first_offset": batch}])
    opened: Any = [lake.open_maintenance(place) for place in (seat.path, lake.meta_location(GAPS))]
    assert log is not None
    table, gaps, before = *opened, log.files({})
    done = compact_relay(table, "east", [], now=NOW + timedelta(hours=1), max_wait=timedelta(days=1))
    assert (done.files, done.into, compact_side_table(gaps, GAPS).into) == (FANOUT, 1, 1)
    assert table.checkpoint(after=1)
    assert lake.query("SELECT count(DISTINCT first_offset) AS n FROM {gaps}")[0].n == FANOUT
    # A task that listed the small files before they were deleted reads what took their place.
    for small in before:
        table.delete(small.uri.rpartition("/")[2])
    for files in (log.files({}), before):
        read = [offset for batch in read_in_order(files) for offset in batch.column("offset").to_pylist()]
        assert read == list(range(1, FANOUT + 1))


def test_nobody_reads_the_keys_of_a_store_and_a_place_belongs_to_the_store_it_is_below(
    lake: Lake, store_server: StoreServer, bucket: str
) -> None:
    assert lake.store is not None
    assert find_store(lake.relay_location("east")) == lake.store
    shown = (lake.store, lake.relay_location("east"), loads(conf(store_server, f"s3a://{bucket}/x")))
    assert SECRET_KEY not in f"{shown!r} {lake.store}"
    written = store_server.objects(bucket)
    assert written
    assert not [name for name, content in written.items() if SECRET_KEY.encode() in content]
    places = ("s3://lake/mirror/relay/east", "s3a://lake/mirror2/relay", "gs://lake/mirror")
    assert [Store("s3a://lake/mirror", {}).holds(place) for place in places] == [True, False, False]
    assert find_store("/tmp") is None


@pytest.mark.law("F")
def test_what_a_store_refuses_and_one_that_puts_over_what_is_there_are_sentences(
    store_server: StoreServer, bucket: str, store_keys: None
) -> None:
    def looks(root: str, values: Mapping[str, str]) -> dict[str, str]:
        store = Store(root, values)
        attach_stores(store)
        found = [*check_store(store)]
        assert SECRET_KEY not in str(found)
        return {look.what: look.problem and f"{look.problem}; {look.fix}" for look in found}

    root, missing = f"s3a://{bucket}/works", f"s3a://none-{uuid4().hex[:8]}/mirror"
    assert looks(root, store_server.values) == dict.fromkeys(("write and list", "conditional put", "delete"), "")
    assert open_folder(f"{root}/doctor").names() == []
    with serving("overwrites=True") as server:
        found = looks(f"s3a://{server.make_bucket('careless')}/mirror", server.values)
    assert "records would be lost" in found["conditional put"]
    assert all(text in str(looks(missing, store_server.values)) for text in ("no such bucket", missing.split("/")[2]))
    assert "does not answer" in str(looks("s3a://closed/mirror", StoreServer(1).values))
    with serving(INITIAL_NO_AUTH_ACTION_COUNT="0") as strict:
        assert "refuses the credentials" in str(looks("s3a://strict/mirror", strict.values))
    lake = Lake(no_spark, loads(conf(store_server, missing.replace("mirror", "other"))).lake)
    with pytest.raises(StoreError, match="no such bucket") as raised:
        lake.create_all(["east"])
    assert raised.value.exit_code == 4
