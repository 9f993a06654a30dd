"""The ledger record reads back as it was written, and refuses what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.flow import SourcePartition, TopicPartition, kafka_name, ledger_topic, transactional_id
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.offset_map import Run, holes_between
from mirrorlake.model.remotes import Remote

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
sources = st.builds(SourcePartition, topics, st.integers(1, 9), st.integers(0, 500))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    offsets = sorted(draw(st.sets(st.integers(0, 2**60), min_size=1, max_size=30)))
    return Run(
        source=draw(sources),
        target=TopicPartition(draw(topics), draw(st.integers(0, 500))),
        first_upstream=offsets[0],
        last_upstream=offsets[-1],
        first_downstream=draw(st.integers(0, 2**60)),
        count=len(offsets),
        holes=holes_between(offsets),
    )


@pytest.mark.law("F")
@given(
    st.builds(
        LedgerRecord,
        flow=st.text(max_size=20),
        lane=st.integers(0, 64),
        lanes=st.integers(1, 64),
        epoch=st.integers(0, 2**40),
        owner=st.text(max_size=40),
        seq=st.integers(0, 2**50),
        checkpoint=st.integers(0, 99),
        remotes=st.dictionaries(topics, st.builds(Remote, topics, topics), max_size=5),
        batch=st.integers(-1, 2**40),
        positions=st.dictionaries(sources, st.integers(0, 2**60), max_size=8),
        runs=st.lists(runs(), max_size=4).map(tuple),
        committed_at_ms=st.integers(0, 2**45),
    )
)
def test_law_f_a_record_reads_back_as_it_was_written(record: LedgerRecord) -> None:
    assert LedgerRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"v": 99}', b"null"])
def test_what_is_no_ledger_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"ledger record|Expecting|JSON"):
        LedgerRecord.from_json(value)


def test_names_on_the_target() -> None:
    assert kafka_name("east->central") == "east.central"
    assert ledger_topic("east->central") == "mirrorlake.east.central.ledger"
    assert transactional_id("east->central", 3) == "mirrorlake.east.central.3"
