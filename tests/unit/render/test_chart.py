"""The labels of limits in a chart: none hides another, and each limit is named once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.render import limit_labels, split_limits


@given(st.lists(st.floats(0, 100) | st.just(50.0), max_size=8))
def test_the_labels_of_objectives_do_not_overlap_and_name_each_once(values: list[float]) -> None:
    limits = {f"f{index}": value for index, value in enumerate(values)}
    labels = limit_labels(limits, 100)
    assert labels.keys() == set(values), "each line is drawn"
    places = sorted(value for value, label in labels.items() if label)
    # A label is 10 px high, in a picture of 184.
    assert all(after - before >= 100 * 10 / 184 for before, after in pairwise(places))
    assert sorted(name for label in labels.values() for name in label.split("; ") if name) == sorted(limits)


def test_an_objective_is_drawn_where_it_is_in_sight_and_named_where_it_is_not() -> None:
    assert split_limits({"objective of f": 30_000}, 20_000) == ({"objective of f": 30_000}, [])
    assert split_limits({"objective of f": 3_600_000}, 20_000) == (
        {},
        ["objective of f: 1 h 0 min, above this picture"],
    )
