"""Old files of a relay become large ones, and nobody who reads or writes it notices."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.crash_points import acting
from mirrorlake.errors import StoreError
from mirrorlake.lake import FolderTables, LiveFile, RelayFile, RelayLog, TableMaintenance, read_by_source, read_in_order
from mirrorlake.maintenance import compaction, splits
from mirrorlake.maintenance.compaction import SentUpTo, compact_relay, kept_files, rewrite
from mirrorlake.maintenance.splits import Split
from mirrorlake.maintenance.tiers import FULL, KeptFile, due
from mirrorlake.model.flow import SourcePartition
from mirrorlake.timing import Timing
from tests.builders import ORDERS, mirror_config
from tests.kit.lake import LANDED_AT, rows
from tests.unit.lake.kit import SCHEMA, Relay

FANOUT = Timing().compaction_fanout

LATER = LANDED_AT + timedelta(hours=1)
DAY = timedelta(days=1)
FLOW = mirror_config({"target": "central"}).flows[0]


class CompactedRelay(Relay):
    """A relay with its upkeep."""

    def compact(self, *flows: SentUpTo, now: datetime = LATER, plan: bool = False) -> compaction.Compacted:
        return compact_relay(TableMaintenance(self.path), "east", flows, now=now, max_wait=DAY, plan=plan)


@pytest.fixture
def relay(tmp_path: Path) -> CompactedRelay:
    return CompactedRelay(tmp_path)


def group_of(upkeep: TableMaintenance) -> tuple[list[LiveFile], Split]:
    """Return all live files of a relay, as those to remove and as what to write in their place."""
    group = sorted(kept_files(upkeep), key=lambda file: file.first_offset)
    return [LiveFile(file.path, file.size) for file in group], Split(
        tuple((file,) for file in group), (tuple(group),), 0
    )


def up_to(position: int, **settings: Any) -> SentUpTo:
    return SentUpTo(flow=FLOW.model_copy(update=settings), positions={ORDERS: position})


def parts(relay: CompactedRelay) -> dict[SourcePartition, list[RelayFile]]:
    """Return what is listed of each source partition, in offset order."""
    found: dict[SourcePartition, list[RelayFile]] = {}
    for file in sorted(RelayLog(FolderTables(), relay.path).files({})):
        found.setdefault(file.source, []).append(file)
    return found


@pytest.mark.law("C", "D", "E")
def test_law_c_turns_of_many_partitions_become_files_of_one_each(relay: CompactedRelay) -> None:
    for turn in range(FANOUT):
        several = [rows("orders", n, 2 * turn, 2 * turn + 1) for n in range(5) if (turn + n) % 7]
        relay.turn(*several, rows("clicks", 1, turn), uncompressed=turn % 2 == 0)
    relay.turn(rows("orders", 3, 2 * FANOUT))
    before, log = relay.records(), RelayLog(relay.tables, relay.path)
    held, version = log.files({}), relay.tables.version(relay.path)
    waits = SentUpTo(flow=FLOW, positions={SourcePartition("orders", 1, n): 2 * FANOUT - 3 for n in range(5)})
    assert relay.compact(waits).into == 0, "a turn waits as a whole for the flow that has not sent all of it"
    sent = SentUpTo(flow=FLOW, positions={SourcePartition("orders", 1, n): 10_000 for n in range(5)})
    planned = relay.compact(sent, plan=True)
    assert relay.tables.version(relay.path) == version
    done = relay.compact(sent)
    assert (done.files, done.into, relay.files()) == (FANOUT + 1, 6, 6) == (planned.files, planned.into, 6)
    assert (relay.records(), log.new_files({})) == (before, [])
    footers = [pq.ParquetFile(file.removeprefix("file://")).metadata for file in DeltaTable(relay.path).file_uris()]
    assert {one.row_group(0).column(n).compression for one in footers for n in range(one.num_columns)} == {"ZSTD"}
    found = parts(relay)
    assert all(len(files) == 1 and not files[0].shared for files in found.values())
    assert sum(len(rows) for _, rows in read_by_source(held)) == len(before), "those that a reader holds are there"
    assert relay.compact(sent) == compaction.Compacted()


def test_turns_of_more_partitions_than_turns_wait_until_they_are_large_or_many(
    relay: CompactedRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "compaction_fanout=4")
    for turn in range(4):
        relay.turn(*(rows("orders", n, turn) for n in range(5)))
    assert relay.compact().into == 0
    with monkeypatch.context() as patch:
        patch.setenv("MIRRORLAKE_TIMING", "compaction_fanout=4,compaction_max_waiting=4")
        assert relay.compact(plan=True).into == 5
    size = sum(Path(file.removeprefix("file://")).stat().st_size for file in DeltaTable(relay.path).file_uris())
    monkeypatch.setattr(splits, "LARGE", size)
    assert relay.compact(plan=True).into >= 5
    # One that is larger than memory is read part by part.
    monkeypatch.setattr(splits, "LARGE", 1)
    before = relay.records()
    assert relay.compact().into == 20
    assert (relay.records(), relay.files()) == (before, 20)


@pytest.mark.law("C", "D")
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.dictionaries(st.integers(0, 3), st.integers(1, 3), min_size=1), st.none() | st.integers(0, 20)),
        min_size=4,
        max_size=16,
    )
)
def test_law_d_whatever_is_split_when_no_two_files_of_a_partition_overlap(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[dict[int, int], int | None]]
) -> None:
    """Turns of some partitions, and passes of upkeep among them, up to a position that holds some files back."""
    relay, ends = CompactedRelay(tmp_path_factory.mktemp("relay")), dict.fromkeys(range(4), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIRRORLAKE_TIMING", "compaction_fanout=3")
        # Files of one partition among the turns stay where they are.
        patch.setattr(splits, "_SMALL", 0)
        for turn, position in turns:
            relay.turn(*(rows("orders", n, *range(ends[n], ends[n] + count)) for n, count in sorted(turn.items())))
            ends |= {n: ends[n] + count for n, count in turn.items()}
            if position is not None:
                relay.compact(
                    SentUpTo(flow=FLOW, positions={SourcePartition("orders", 1, n): position for n in range(4)})
                )
        relay.compact()
        relay.compact()
    for source, files in parts(relay).items():
        held = [(file.first_offset, file.last_offset) for file in files]
        assert all(before[1] < after[0] for before, after in pairwise(held)), held
        offsets = [row for _, part in read_by_source(files) for row in part["offset"].to_pylist()]
        assert offsets == list(range(ends.pop(source.partition)))
    assert not any(ends.values())


@pytest.mark.parametrize(("name", "is_touched"), [("part-1.zstd.parquet", False), ("part-1.fresh.parquet", True)])
def test_a_large_file_is_rewritten_only_while_it_is_not_compressed(name: str, is_touched: bool) -> None:
    one = {"size": FULL, "records": 1, "source": ORDERS, "first_offset": 0, "last_offset": 0, "landed_by": LANDED_AT}
    assert bool(due([KeptFile(path=name, **one)])) == is_touched  # type: ignore[arg-type]


@pytest.mark.law("F")
def test_law_f_nothing_past_the_slowest_flow_is_rewritten_until_it_stood_still_for_a_day(relay: CompactedRelay) -> None:
    for offset in range(2 * FANOUT):
        relay.turn(rows("orders", 0, offset))
    assert relay.compact(up_to(10_000), up_to(FANOUT - 1)).into == 0
    assert relay.compact(up_to(10_000), SentUpTo(flow=FLOW, positions=None)).waiting == 2 * FANOUT
    assert (
        relay.compact(up_to(FANOUT), SentUpTo(flow=FLOW, positions={}), now=LANDED_AT + timedelta(minutes=1)).waiting
        == 0
    )
    assert relay.compact(up_to(10_000), up_to(FANOUT)).files == FANOUT
    assert relay.compact(up_to(0, execution="streaming"), now=LANDED_AT + 2 * DAY).into == 0, "a stream reads commits"
    assert relay.compact(up_to(0), now=LANDED_AT + 2 * DAY).files == FANOUT + 1


@pytest.mark.law("F")
@pytest.mark.parametrize("is_plain", [True, False], ids=["our commit", "a commit of delta-rs"])
def test_law_f_of_two_compactors_one_replaces_the_files_also_at_the_same_moment(
    is_plain: bool, relay: CompactedRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(FANOUT):
        relay.turn(rows("orders", 0, offset))
    before, first, second = relay.records(), TableMaintenance(relay.path), TableMaintenance(relay.path)
    removed, split = group_of(first)
    monkeypatch.setattr("mirrorlake.lake.log_commits.is_plain_table", lambda _: is_plain)

    def replace_first() -> None:
        relay.turn(rows("orders", 0, FANOUT))
        assert first.replace(removed, rewrite(first, "east", split), why="compact")

    with acting("commit.prepared", replace_first):
        assert not second.replace(removed, rewrite(first, "east", split), why="compact")
    assert relay.records()[:-1] == before


@pytest.mark.law("E")
def test_law_e_a_file_that_lacks_a_record_of_its_statistics_is_not_replaced(relay: CompactedRelay) -> None:
    for offset in range(FANOUT):
        relay.turn(rows("orders", 0, offset, offset + 1000) if offset == FANOUT - 1 else rows("orders", 0, offset))
    newest = max(Path(relay.path).glob("*.parquet"))
    pq.write_table(pq.read_table(newest, schema=SCHEMA).slice(0, 1), newest)
    for offset in range(FANOUT):
        relay.turn(rows("clicks", 0, offset))
    with pytest.raises(StoreError, match="do not hold what their statistics say"):
        relay.compact()
    assert relay.files() == FANOUT + 1, "the other partition was rewritten"
    assert len(list(Path(relay.path).glob("*.parquet"))) == 2 * FANOUT + 1, "and nothing was left behind"


@pytest.mark.law("C", "D")
def test_law_d_what_a_stranger_optimised_is_read_in_order_and_left_alone(relay: CompactedRelay) -> None:
    for offset in range(0, 4 * FANOUT, 2):
        relay.turn(rows("orders", 0, offset, offset + 1), rows("orders", 1, offset))
    before, log = relay.records(), RelayLog(relay.tables, relay.path)
    log.files({})
    DeltaTable(relay.path).optimize.compact()
    relay.turn(rows("orders", 0, 4 * FANOUT))
    assert [file.first_offset for file in log.new_files({})] == [4 * FANOUT]
    assert relay.compact().into == 0
    found = [file for file in RelayLog(relay.tables, relay.path).files({}) if file.source == ORDERS]
    offsets = [o for part in read_in_order(found) for o in part.column("offset").to_pylist()]
    assert offsets == list(range(4 * FANOUT + 1))
    assert relay.records()[:-1] != before
    assert [row for row in relay.records() if row["offset"] != 4 * FANOUT] == before


def test_a_stranger_s_order_within_a_file_is_mended(relay: CompactedRelay) -> None:
    for offset in range(0, 2 * FANOUT, 2):
        relay.add("relay", *rows("orders", 0, offset + 1, offset))
    before = relay.records()
    assert relay.compact().files == FANOUT
    assert relay.records() == before
    [path] = DeltaTable(relay.path).file_uris()
    assert pq.read_table(path)["offset"].to_pylist() == list(range(2 * FANOUT))
