"""Bounded reads of a relay through Spark: parts of its offsets, those of a partition one after another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.lake import RelayFile
from mirrorlake.model.flow import SourcePartition
from mirrorlake.republish.spark_feeder import backfill_batches


@pytest.mark.law("D", "E")
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=1, max_size=6), st.integers(1, 60))
def test_law_d_and_e_parts_hold_each_offset_once_and_in_order(due: list[tuple[int, int]], records: int) -> None:
    files = [
        RelayFile(SourcePartition("t", 1, number), first, first + length, length + 1, "")
        for number, (first, length) in enumerate(due)
    ]
    held: dict[SourcePartition, list[int]] = {file.source: [] for file in files}
    for part in backfill_batches(files, records):
        for file in part:
            held[file.source] += range(file.first_offset, file.last_offset + 1)
    assert held == {file.source: list(range(file.first_offset, file.last_offset + 1)) for file in files}
    assert list(backfill_batches([], records)) == []
