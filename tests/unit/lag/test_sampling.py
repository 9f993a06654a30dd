"""What a sampler writes of what it sees, and whom it does not wait for."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirrorlake.lag.unreachable import UnreachableClusters

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.lake.landing_state import landed_and_republished
from mirrorlake.lake.samples import LastSamples, PositionKey, SubjectSample, sample_row
from tests.builders import NOON


def key(partition: int) -> PositionKey:
    return PositionKey("east", None, "orders", 1, partition, "last_stable", None)


seen = st.dictionaries(st.integers(0, 4).map(key), st.integers(0, 3))


@given(st.lists(seen, min_size=1, max_size=8))
def test_what_was_written_tells_every_look(looks: list[dict[PositionKey, int]]) -> None:
    remembered, table = LastSamples(), dict[PositionKey, int | None]()
    for number, look in enumerate(looks):
        at = NOON + timedelta(hours=number)
        found = SubjectSample(subject="cluster", name="east", positions=look)
        [change] = remembered.choose_rows([found], at, complete_every=timedelta(hours=3))
        remembered.record(change, at)
        assert change.complete == (number % 3 == 0)
        if change.complete:
            table = {}
        else:
            assert all(table.get(one) != offset for one, offset in change.rows.items()), "only what has changed"
        table |= change.rows
        assert {one: offset for one, offset in table.items() if offset is not None} == look
        assert sample_row(change, at)["positions"] == len(look)
        assert remembered.positions == {change.key: look}


def test_between_two_complete_looks_are_ten_rows_of_each_position() -> None:
    remembered, partitions, looks = LastSamples(), 5_000, 60
    written, complete = [], {"cluster": [], "relay": []}
    for number in range(looks):
        at = NOON + timedelta(seconds=30 * number)
        seen = [
            # The relay stands, and did not answer in the first round.
            SubjectSample(subject="relay", name="east", positions={key(0): 7}, error="away" if number == 11 else None),
            SubjectSample(subject="cluster", name="east", positions={key(p): number for p in range(partitions)}),
        ]
        for look in remembered.choose_rows(seen, at, complete_every=timedelta(hours=6)):
            remembered.record(look, at)
            written.append(look.changed)
            complete[look.subject] += [number] * look.complete
    assert complete == {"cluster": [0, 11, 22, 33, 44, 55], "relay": [0, 12, 22, 33, 44, 55]}
    assert sum(written) <= partitions * looks + 10, "a complete look of what moved costs no row"


def test_nobody_waits_for_a_cluster_that_is_away_and_it_is_back_when_it_answers() -> None:
    unreachable, is_up, asked = UnreachableClusters(), threading.Event(), []

    def ask() -> None:
        asked.append(1)
        if not is_up.is_set():
            raise ClusterUnreachable("still away", consequence="", remedy="", alias="west")

    assert unreachable.last_error("west") is None
    away = ClusterUnreachable("no broker answers")
    unreachable.record("west", away, ask=ask)
    unreachable._asking["west"].join()
    assert unreachable.last_error("west") is away
    unreachable._asking["west"].join()
    assert len(asked) == 2, "asked again after each answer"
    is_up.set()
    assert unreachable.last_error("west") is None, "one that is back has a moment to say so"
    assert unreachable.last_error("west") is None, "and it stays"


@pytest.mark.parametrize(
    ("holds", "seen_to", "end", "sent", "expected"),
    [
        (None, 0, 0, 0, (0, 0)),
        (None, 0, 9, 0, (0, 0)),
        # Markers at the end are read, not landed: they are passed.
        (7, 9, 9, 7, (9, 9)),
        (7, 9, 9, 6, (9, 6)),
        # The checkpoint location is of another life of the topic.
        (2, 90, 5, 2, (5, 5)),
        # The source lost what the relay holds.
        (7, 7, 3, 7, (7, 7)),
        # Nothing but markers was ever there: nothing was sent, either.
        (None, 3, 3, 0, (3, 0)),
    ],
)
def test_how_far_a_partition_is_landed_and_republished(
    holds: int | None, seen_to: int, end: int, sent: int, expected: tuple[int, int]
) -> None:
    assert landed_and_republished(holds=holds, seen=seen_to, end=end, sent=sent) == expected
