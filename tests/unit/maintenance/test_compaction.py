"""Old files of a relay become large ones, and nobody who reads or writes it notices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import StoreError
from mirrorlake.lake import LiveFile, TableUpkeep
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.relay_files import read_in_order
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.relay_writer import write_files
from mirrorlake.lake.schema import RELAY
from mirrorlake.maintenance import compaction
from mirrorlake.maintenance.compaction import SentUpTo, compact_relay, kept_files, rewrite
from mirrorlake.maintenance.tiers import FANOUT, FULL, KeptFile, due
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.patterns import TopicPattern
from tests.unit.lake.test_relay_writer import NOON, SCHEMA, batch, rows

LATER = NOON + timedelta(hours=1)
DAY = timedelta(days=1)
ORDERS = SourcePartition("orders", 1, 0)
FLOW = FlowConfig(source="east", target="central", topics="orders").bound_to(TopicPattern(), adds_hops=False)


class Relay:
    """A relay in a folder with its upkeep."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.tables = FolderTables()
        self.tables.create(self.path, RELAY)
        self.batches = 0

    def land(self, *several: list[dict[str, Any]], fresh: bool = False) -> None:
        self.batches += 1
        files = list(write_files(self.path, SCHEMA, iter([batch(*several)]), fresh=fresh, apart=True))
        self.tables.commit(self.path, files, app_id="land", version=self.batches, signature="{}")

    def compact(self, *flows: SentUpTo, now: datetime = LATER) -> compaction.Compacted:
        return compact_relay(TableUpkeep(self.path), "east", flows, now=now, patience=DAY)

    def records(self) -> list[dict[str, Any]]:
        held = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return sorted(held, key=lambda row: (row["topic"], row["generation"], row["partition"], row["offset"]))

    def files(self) -> int:
        return len(DeltaTable(self.path).file_uris())


@pytest.fixture
def relay(tmp_path: Path) -> Relay:
    return Relay(tmp_path)


def up_to(position: int, **settings: Any) -> SentUpTo:
    return SentUpTo(flow=FLOW.model_copy(update=settings), positions={ORDERS: position})


@pytest.mark.law("C", "E")
def test_law_c_records_are_equal_after_a_compaction_and_readers_find_them_by_statistics(relay: Relay) -> None:
    for first in range(0, 3 * FANOUT, 3):
        relay.land(rows("orders", 0, *range(first, first + 3)), rows("clicks", 2, first, first + 2))
    before, log = relay.records(), RelayLog(relay.tables, relay.path)
    held = log.files({})
    version = relay.tables.version(relay.path)
    done = relay.compact(up_to(10_000))
    assert relay.tables.version(relay.path) == version + 1, "partitions share a commit"
    assert (done.files, done.into, done.waiting, relay.files()) == (2 * FANOUT, 2, 0, 2)
    assert relay.records() == before
    assert log.new_files({}) == [], "what was rewritten is not new"
    assert sum(len(part) for part in read_in_order(f for f in held if f.source == ORDERS)) == 3 * FANOUT, (
        "the files that a reader holds are there"
    )
    [file] = [f for f in RelayLog(relay.tables, relay.path).files({ORDERS: 50}) if f.source == ORDERS]
    assert (file.first_offset, file.last_offset, file.records, file.shared) == (0, 3 * FANOUT - 1, 3 * FANOUT, False)
    assert relay.compact(up_to(10_000)) == compaction.Compacted()


@pytest.mark.law("C", "D")
def test_law_c_what_was_landed_uncompressed_is_compressed_by_its_first_compaction(relay: Relay) -> None:
    for first in range(0, 3 * FANOUT, 3):
        relay.land(rows("orders", 0, *range(first, first + 3)), fresh=first % 2 == 0)
    before = relay.records()
    assert relay.compact(up_to(10_000)).into == 1
    [file] = DeltaTable(relay.path).file_uris()
    assert (codecs(file), relay.records()) == ({"ZSTD"}, before)


@pytest.mark.parametrize(("name", "is_touched"), [("part-1.zstd.parquet", False), ("part-1.fresh.parquet", True)])
def test_a_large_file_is_rewritten_only_while_it_is_not_compressed(name: str, is_touched: bool) -> None:
    one = {"size": FULL, "records": 1, "source": ORDERS, "first_offset": 0, "last_offset": 0, "landed_by": NOON}
    assert bool(due([KeptFile(path=name, **one)])) == is_touched  # type: ignore[arg-type]


def codecs(file: str) -> set[str]:
    footer = pq.ParquetFile(file.removeprefix("file://")).metadata
    return {footer.row_group(0).column(number).compression for number in range(footer.num_columns)}


@pytest.mark.law("F")
def test_law_f_nothing_past_the_slowest_flow_is_rewritten_until_it_stood_still_for_a_day(relay: Relay) -> None:
    for offset in range(2 * FANOUT):
        relay.land(rows("orders", 0, offset))
    assert relay.compact(up_to(10_000), up_to(FANOUT - 1)).into == 0
    assert relay.compact(up_to(10_000), SentUpTo(flow=FLOW, positions=None)).waiting == 2 * FANOUT
    assert relay.compact(up_to(FANOUT), SentUpTo(flow=FLOW, positions={}), now=NOON + timedelta(minutes=1)).waiting == 0
    assert relay.compact(up_to(10_000), up_to(FANOUT)).files == FANOUT
    assert relay.compact(up_to(0, execution="streaming"), now=NOON + 2 * DAY).into == 0, (
        "a stream reads commit by commit"
    )
    assert relay.compact(up_to(0), now=NOON + 2 * DAY).files == FANOUT + 1


@pytest.mark.law("F")
def test_law_f_of_two_compactors_one_replaces_the_files_also_at_the_same_moment(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(FANOUT):
        relay.land(rows("orders", 0, offset))
    before, first, second = relay.records(), TableUpkeep(relay.path), TableUpkeep(relay.path)
    group = sorted(kept_files(first.live()), key=lambda file: file.first_offset)
    removed = [LiveFile(file.path, file.size) for file in group]
    commit = DeltaTable.create_write_transaction

    def slow(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        relay.land(rows("orders", 0, FANOUT))
        assert first.replace(removed, [rewrite(first, "east", group)], why="compact")
        commit(*given, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", slow)
    assert not second.replace(removed, [rewrite(first, "east", group)], why="compact")
    assert relay.records()[:-1] == before


@pytest.mark.law("E", "F")
def test_law_f_a_compactor_that_dies_before_its_commit_leaves_nothing_to_see(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(FANOUT):
        relay.land(rows("orders", 0, offset))
    before = relay.records()

    def killed(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TableUpkeep, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            relay.compact()
    assert len(list(Path(relay.path).glob("*.parquet"))) == FANOUT + 1
    assert relay.records() == before
    assert relay.compact().files == FANOUT
    assert relay.records() == before


@pytest.mark.law("E")
def test_law_e_a_file_that_lacks_a_record_of_its_statistics_is_not_replaced(relay: Relay) -> None:
    for offset in range(FANOUT):
        relay.land(rows("orders", 0, offset, offset + 1000) if offset == FANOUT - 1 else rows("orders", 0, offset))
    newest = max(Path(relay.path).glob("*.parquet"))
    pq.write_table(pq.read_table(newest, schema=SCHEMA).slice(0, 1), newest)
    for offset in range(FANOUT):
        relay.land(rows("clicks", 0, offset))
    with pytest.raises(StoreError, match="do not hold what their statistics say"):
        relay.compact()
    assert relay.files() == FANOUT + 1, "the other partition was rewritten"
    assert len(list(Path(relay.path).glob("*.parquet"))) == 2 * FANOUT + 1, "and nothing was left behind"


@pytest.mark.law("C", "D")
def test_law_d_what_a_stranger_optimised_is_read_in_order_and_left_alone(relay: Relay) -> None:
    for offset in range(0, 4 * FANOUT, 2):
        relay.land(rows("orders", 0, offset, offset + 1), rows("orders", 1, offset))
    before, log = relay.records(), RelayLog(relay.tables, relay.path)
    log.files({})
    DeltaTable(relay.path).optimize.compact()
    relay.land(rows("orders", 0, 4 * FANOUT))
    assert [file.first_offset for file in log.new_files({})] == [4 * FANOUT]
    assert relay.compact().into == 0
    found = [file for file in RelayLog(relay.tables, relay.path).files({}) if file.source == ORDERS]
    offsets = [o for part in read_in_order(found) for o in part.column("offset").to_pylist()]
    assert offsets == list(range(4 * FANOUT + 1))
    assert relay.records()[:-1] != before
    assert [row for row in relay.records() if row["offset"] != 4 * FANOUT] == before


def test_a_stranger_s_order_within_a_file_is_mended(relay: Relay) -> None:
    for offset in range(0, 2 * FANOUT, 2):
        write_deltalake(
            relay.path, pa.Table.from_batches([batch(rows("orders", 0, offset + 1, offset))]), mode="append"
        )
    before = relay.records()
    assert relay.compact().files == FANOUT
    assert relay.records() == before
    [path] = DeltaTable(relay.path).file_uris()
    assert pq.read_table(path)["offset"].to_pylist() == list(range(2 * FANOUT))


@pytest.mark.law("C", "D", "E")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.tuples(st.integers(0, 1), st.integers(1, 3)), st.none()), min_size=8, max_size=40))
def test_law_e_any_sequence_of_batches_and_compactions_keeps_every_record_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: Iterable[tuple[int, int] | None]
) -> None:
    relay, ends = Relay(tmp_path_factory.mktemp("relay")), [0, 0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mirrorlake.maintenance.tiers.FANOUT", 2)
        for step in steps:
            if step is None:
                relay.compact()
                continue
            partition, count = step
            relay.land(rows("orders", partition, *range(ends[partition], ends[partition] + count)))
            ends[partition] += count
        relay.compact()
    expected = [row for partition in (0, 1) for row in rows("orders", partition, *range(ends[partition]))]
    assert relay.records() == expected
    for partition in (0, 1):
        mine = [f for f in RelayLog(relay.tables, relay.path).files({}) if f.source.partition == partition]
        assert [o for part in read_in_order(mine) for o in part.column("offset").to_pylist()] == list(
            range(ends[partition])
        )
