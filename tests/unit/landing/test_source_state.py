"""What a look at the source says of a checkpoint location, and where a new one starts."""

from __future__ import annotations

from dataclasses import replace

from mirrorlake.landing.source_state import SourceState
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap, LogTruncation

OLD, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
SOURCES = {OLD: SourcePartition("orders", 1, 0), NEW: SourcePartition("orders", 1, 1)}
LOOK = SourceState(
    current=SOURCES,
    positions={OLD: 7},
    log_start_offsets={OLD: 3, NEW: 0},
    high_watermarks={OLD: 9, NEW: 0},
    expired_gaps=[],
    truncations={},
    truncated_gaps=[],
    leader_epochs={},
)


def test_a_checkpoint_location_goes_on_where_nothing_is_stepped_over() -> None:
    assert LOOK.can_resume_from({OLD: 7, NEW: 0})
    assert LOOK.can_resume_from({OLD: 7}), "all of a new partition is read"
    assert not LOOK.can_resume_from({NEW: 0}), "the first records of a partition that nobody planned are gone"
    assert not LOOK.can_resume_from({OLD: 7, TopicPartition("gone", 0): 1})
    gap = Gap(source=SOURCES[OLD], first_offset=1, last_offset=2, missing=2, kind="expired")
    assert not replace(LOOK, expired_gaps=[gap]).can_resume_from({OLD: 7})
    assert not replace(
        LOOK, truncations={"orders": [LogTruncation(partition=0, generation=2, first_offset=5)]}
    ).can_resume_from({OLD: 7})


def test_a_source_ends_where_it_was_read_to() -> None:
    assert not LOOK.is_drained
    assert replace(LOOK, positions={OLD: 9}).is_drained
    assert not replace(LOOK, positions={OLD: 9, NEW: 1}).is_drained


def test_a_start_is_where_landing_stands_then_what_was_chosen_then_where_the_source_begins() -> None:
    assert LOOK.start_offsets({}) == {OLD: 7, NEW: 0}
    assert LOOK.start_offsets({OLD: 5, NEW: 2}) == {OLD: 7, NEW: 2}
    assert replace(LOOK, positions={OLD: 1}).start_offsets({})[OLD] == 3
