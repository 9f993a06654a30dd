"""Files of a relay that lie over one another give each record once, in order; and logs that went back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.lake import (
    COLUMNS,
    KnownTopic,
    RelayFile,
    read_by_source,
    read_in_order,
    relay_files,
    relay_writer,
    spans_from_text,
)
from mirrorlake.lake.fenced_writer import txn_version
from mirrorlake.lake.relay_files import build_files
from mirrorlake.landing.truncations import Extent, _TruncationSearch, partitions_to_compare
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import LogTruncation
from tests.kit.lake import rows
from tests.unit.lake.kit import batch
from tests.unit.lake.kit import written as write_turn

SOURCE, OTHER = SourcePartition("t", 1, 0), SourcePartition("t", 1, 1)
offsets_of_files = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=30), min_size=1, max_size=6)


def written(folder: Path, number: int, offsets: list[int]) -> RelayFile:
    path = folder / f"{number}.parquet"
    partitions = [SOURCE.partition if at % 3 else OTHER.partition for at in range(len(offsets))]
    plain: dict[str, Any] = {"key": None, "headers": None}
    held = [rows("t", p, o, value=str(o).encode(), **plain) for o, p in zip(offsets, partitions, strict=True)]
    pq.write_table(pa.Table.from_batches([batch(*held)]), path)
    mine = [offset for offset, partition in zip(offsets, partitions, strict=True) if partition == SOURCE.partition]
    return RelayFile(SOURCE, min(mine, default=0), max(mine, default=0), len(mine), f"file:{path}", shared=True)


@pytest.mark.law("D")
@given(offsets_of_files, st.integers(0, 60))
def test_law_d_doubled_files_give_each_record_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], position: int
) -> None:
    folder = tmp_path_factory.mktemp("relay")
    relay = [written(folder, number, offsets) for number, offsets in enumerate(files)]
    held = {offset for offsets in files for at, offset in enumerate(offsets) if at % 3 and offset >= position}
    rows = [row for batch in read_in_order(relay, position=position) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == sorted(held)
    assert all(row["value"] == str(row["offset"]).encode() for row in rows)


@pytest.mark.law("D")
@given(st.sets(st.integers(0, 60), min_size=1), st.integers(0, 70))
def test_law_d_a_file_of_many_row_groups_is_read_from_a_position_on(
    tmp_path_factory: pytest.TempPathFactory, offsets: set[int], position: int
) -> None:
    path = tmp_path_factory.mktemp("relay") / "0.parquet"
    rows_of_file = batch(rows("t", 0, *sorted(offsets)))
    pq.write_table(pa.Table.from_batches([rows_of_file]), path, row_group_size=5)
    file = RelayFile(SOURCE, min(offsets), max(offsets), len(offsets), f"file:{path}")
    found = [offset for part in read_in_order([file], position=position) for offset in part["offset"].to_pylist()]
    assert found == [offset for offset in sorted(offsets) if offset >= position]


class Opened:
    """Count how often files are opened, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Counter[str] = Counter()
        open_place = relay_files.open_address

        def counted(uri: str) -> Any:
            self.times[uri.rpartition("/")[2]] += 1
            return open_place(uri)

        monkeypatch.setattr(relay_files, "open_address", counted)


def landed(folder: Path, *turns: dict[int, list[int]], **options: Any) -> list[RelayFile]:
    """Write a file a turn; each holds offsets by partition."""
    found = []
    for turn in turns:
        for file in write_turn(folder, *(rows("t", p, *offsets) for p, offsets in turn.items()), **options):
            found += build_files(f"file:{folder}/{file.path}", spans_from_text(file.spans))
    return found


def read(files: list[RelayFile], **asked: Any) -> dict[int, list[int]]:
    """Return the offsets by partition, in the order in which they are read; their values are of the partition."""
    found: dict[int, list[int]] = {}
    for source, records in read_by_source(files, **asked):
        assert records.schema.names == list(COLUMNS)
        found.setdefault(source.partition, []).extend(records["offset"].to_pylist())
        assert records["key"].to_pylist() == [b"k" if at % 2 else None for at in records["offset"].to_pylist()]
    return found


@pytest.mark.law("D")
@given(
    turns=st.lists(st.dictionaries(st.integers(0, 5), st.integers(1, 9), min_size=1), min_size=1, max_size=6),
    wanted=st.sets(st.integers(0, 5), min_size=1),
    order=st.randoms(use_true_random=False),
)
def test_law_d_files_of_many_partitions_are_opened_once_each_and_read_in_order(
    tmp_path_factory: pytest.TempPathFactory, turns: list[dict[int, int]], wanted: set[int], order: Random
) -> None:
    ends: Counter[int] = Counter()
    given: list[dict[int, list[int]]] = []
    for turn in turns:
        given.append({partition: list(range(ends[partition], ends[partition] + n)) for partition, n in turn.items()})
        ends.update(turn)
    with pytest.MonkeyPatch.context() as patch:
        opened = Opened(patch)
        patch.setattr(relay_writer, "_GROUP_BYTES", 700)
        patch.setattr(relay_files, "_ROWS", 3)
        files = landed(tmp_path_factory.mktemp("relay"), *given)
        asked = [file for file in files if file.source.partition in wanted]
        order.shuffle(asked)
        found = read(asked)
        assert found == {partition: list(range(ends[partition])) for partition in sorted(wanted) if ends[partition]}
        assert opened.times == Counter({file.uri.rpartition("/")[2] for file in asked})


@pytest.mark.law("D")
def test_law_d_what_upkeep_has_merged_comes_before_the_turns_that_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = landed(tmp_path, {0: [10], 1: [5], 2: [3]}, {0: [11], 1: [6]}, {1: [7], 2: [4]})
    merged = landed(tmp_path, {0: [*range(10)], 1: [*range(5)]}, apart=True)
    opened = Opened(monkeypatch)
    assert read([*turns, *merged]) == {0: [*range(12)], 1: [*range(8)], 2: [3, 4]}
    assert set(opened.times.values()) == {1}
    # One file says the first and another the last of two partitions: somebody rewrote them; each is read in parts.
    crossed = landed(tmp_path, {0: [0], 1: [1]}, {0: [1], 1: [0]})
    assert read(crossed) == {0: [0, 1], 1: [0, 1]}
    overlapping = landed(tmp_path, {0: [0, 1, 2], 1: [0]}, {0: [1, 2, 3], 1: [1]})
    assert read(overlapping) == {0: [0, 1, 2, 3], 1: [0, 1]}


@pytest.mark.law("E", "F")
@pytest.mark.parametrize("rows_at_once", [4, 10])
def test_law_e_parts_of_a_file_that_is_rewritten_while_it_is_read_come_from_what_stands_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    """The rest of the part that was being read, and all of those that follow, whose offsets may be lower."""
    monkeypatch.setattr(relay_files, "_ROWS", rows_at_once)
    files = landed(tmp_path, {0: [*range(90, 100)], 1: [*range(5)], 2: [*range(40, 43)]})
    again = landed(tmp_path, {0: [*range(90, 96), *range(97, 100)], 1: [0, 1, 3, 4], 2: [*range(40, 60)]}, apart=True)
    monkeypatch.setattr(relay_files, "_list_files", lambda *_: again)
    found: dict[int, list[int]] = {}
    for source, records in read_by_source(files):
        found.setdefault(source.partition, []).extend(records["offset"].to_pylist())
        Path(files[0].uri.removeprefix("file:")).unlink(missing_ok=True)
    # What was decoded first was in memory when the file went.
    first = [*range(90, 96), *range(97, 100)] if rows_at_once == 4 else [*range(90, 100)]
    assert found == {0: first, 1: [0, 1, 3, 4], 2: [40, 41, 42]}


@pytest.mark.law("F")
def test_law_f_a_later_checkpoint_number_is_above_every_batch_of_an_earlier_one() -> None:
    assert txn_version(7, 2**31) < txn_version(8, -1) < txn_version(8, 0) < 2**63
    assert txn_version(2**30, 2**31) < 2**63


@pytest.mark.law("E")
def test_law_e_an_offset_is_of_the_newest_life_that_reaches_it() -> None:
    cuts = (
        LogTruncation(partition=0, generation=2, first_offset=150),
        LogTruncation(partition=0, generation=3, first_offset=100),
    )
    topic = KnownTopic(
        name="t", generation=1, topic_id="x", partitions=2, configs={}, truncations=cuts, leader_epochs={0: 4, 1: 4}
    )
    assert [topic.generation_at(0, offset) for offset in (0, 99, 100, 149, 150, 900)] == [1, 1, 3, 3, 3, 3]
    assert (topic.generation_of(0), topic.starts_at(0), topic.generation_of(1), topic.starts_at(1)) == (3, 100, 1, 0)
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    landed = {zero: 200, one: 200}
    assert partitions_to_compare({"t": topic}, {zero: (200, 4), one: (900, 4)}, landed) == []
    assert partitions_to_compare({"t": topic}, {zero: (199, 4), one: (900, 5)}, landed) == [zero, one]
    assert partitions_to_compare({"t": topic}, {zero: (200, -1)}, landed) == [zero], "without an epoch it is asked"


class _InMemory(_TruncationSearch):
    """Search between two lists instead of a relay and a cluster."""

    def __init__(self, relay: dict[int, str], source: dict[int, str], extent: Extent) -> None:
        self._relay, self._source, self._extent = relay, source, extent

    def _spread(self, low: int, high: int) -> list[int]:
        found: dict[int, int] = {}
        for offset in sorted(offset for offset in self._relay if low <= offset < high):
            found[(offset - low) * 16 // (high - low)] = offset
        return sorted(found.values())

    def _compare(self, offsets: Sequence[int]) -> dict[int, bool | None]:
        return {offset: self._source.get(offset) == self._relay[offset] for offset in offsets}


@pytest.mark.law("E")
@given(
    landed=st.integers(1, 400),
    holes=st.sets(st.integers(0, 400)),
    cut=st.integers(0, 400),
    more=st.integers(0, 400),
    earliest=st.integers(0, 400),
)
def test_law_e_the_cut_is_where_the_new_history_begins(
    landed: int, holes: set[int], cut: int, more: int, earliest: int
) -> None:
    cut = min(cut, landed)
    relay = {offset: f"old-{offset}" for offset in range(landed) if offset not in holes}
    source = {offset: f"old-{offset}" for offset in range(cut)}
    source |= {offset: f"new-{offset}" for offset in range(cut, cut + more)}
    end = cut + more
    earliest = min(earliest, end)
    held = {offset: text for offset, text in source.items() if offset >= earliest}
    found = _InMemory(relay, held, Extent(log_start_offset=earliest, end=end, landed=landed)).find()
    seen = [offset for offset in relay if offset >= max(cut, earliest)]
    if found is None:
        assert end >= landed
        assert not seen, "records that the source holds in another history are never landed"
    else:
        assert found <= max(cut, earliest), "what the source holds from the cut on is landed"
        assert not any(found <= offset < cut for offset in relay), "what is still there is not landed twice"
