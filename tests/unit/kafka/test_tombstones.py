"""Which keys of a log want a tombstone: after it and the cleaner nothing erased is left, and nothing else has gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.kafka import RawRecord
from mirrorlake.kafka.tombstones import judge_records

_KEYS = st.sampled_from([None, b"", b"a", b"b"])
_LOGS = st.lists(st.tuples(st.integers(1, 3), _KEYS, st.booleans(), st.booleans()), max_size=20)


def compacted(log: list[RawRecord]) -> list[RawRecord]:
    newest = {record.key: record.offset for record in log}
    return [one for one in log if one.key is None or (newest[one.key] == one.offset and one.value is not None)]


@pytest.mark.law("E", "F")
@given(_LOGS)
def test_law_f_tombstones_take_out_what_was_erased_and_nothing_else(
    drawn: list[tuple[int, bytes | None, bool, bool]],
) -> None:
    log, erased, at = [], set(), 0
    for step, key, has_value, is_erased in drawn:
        at += step
        log.append(RawRecord(partition=0, offset=at, key=key, value=b"v" if has_value else None))
        if is_erased:
            erased.add(at)
    if not erased:
        return
    ranges = [(offset, offset + 1) for offset in sorted(erased)]
    seen = [record for record in log if record.offset >= ranges[0][0]]
    found = judge_records(seen, ranges, end=at + 1)
    assert found.records == len(erased)
    assert found.keyless == sum(one.key is None for one in log if one.offset in erased)
    written = [*log]
    for key in sorted(found.due):
        at += 1
        written.append(RawRecord(partition=0, offset=at, key=key, value=None))
    left = compacted(written)
    assert not [one for one in left if one.offset in erased and one.key is not None]
    assert left == [one for one in compacted(log) if one.offset not in erased or one.key is None], (
        "others are as they were"
    )
    assert (
        judge_records([one for one in written if one.offset >= ranges[0][0]], ranges, end=at + 1).due == frozenset()
    ), "once"
