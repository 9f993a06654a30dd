"""The files that a part of a relay needs, by their statistics."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.lake import RelayPart
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from tests.builders import NOON

ONE, OTHER = SourcePartition("t", 1, 0), SourcePartition("t", 1, 1)
FILES = st.lists(st.sets(st.integers(0, 60), min_size=1, max_size=5), min_size=1, max_size=12)
"""The offsets of each file; those of several may overlap, as where two landers wrote."""


def actions(files: list[tuple[SourcePartition, list[int]]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"max.landed_at": NOON, "number": number}
            | {f"{end}.{key}": getattr(source, key) for end in ("min", "max") for key in SOURCE_KEY}
            | {"min.offset": min(offsets), "max.offset": max(offsets)}
            for number, (source, offsets) in enumerate(files)
        ]
    )


@given(FILES, st.booleans(), st.lists(st.integers(0, 70), min_size=1, max_size=6))
def test_the_first_record_at_or_past_each_place_is_in_a_file_that_is_read(
    written: list[set[int]], in_order: bool, places: list[int]
) -> None:
    if in_order:
        held = sorted(set[int]().union(*written))
        logs = [held[at : at + 3] for at in range(0, len(held), 3)]
    else:
        logs = [sorted(file) for file in written]
    files = [(ONE, log) for log in logs] + [(OTHER, [5]), (OTHER, [50])]
    part = RelayPart({ONE: 0, OTHER: 0}, others=False, places={ONE: np.array(places)})
    chosen = part.files(actions(files))["number"].to_pylist()
    assert {len(logs), len(logs) + 1} <= set(chosen), "of other partitions all is read"
    read = {offset for number in chosen if number < len(logs) for offset in logs[number]}
    for place in places:
        assert min((o for log in logs for o in log if o >= place), default=None) == min(
            (o for o in read if o >= place), default=None
        )
    if in_order:
        assert len(chosen) <= 2 + len(set(places))
