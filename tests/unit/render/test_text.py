"""Everything that a command shows fits a terminal of 80 columns, with names as long as Kafka allows; `--wide` shows all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mirrorlake.render import badge, table
from tests.unit.values import every

LONGEST = f"payments.{'north-west-' * 21}-eu.v2"[:246] + "-az"
NAMES = {
    "short": "orders",
    "longest": LONGEST,
    "wide letters": "注文" * 60,
    "sentence": "a lost broker takes it away " * 12,
}
assert len(LONGEST) == 249


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("name", NAMES.values(), ids=[*NAMES])
def test_no_line_of_a_value_is_wider_than_the_terminal(name: str, width: int) -> None:
    for value in every(name):
        lines = value.sheet().text(rows=None, width=width).splitlines()
        assert max(map(cell_len, lines)) <= width, type(value)


@given(
    st.lists(st.tuples(st.text(max_size=60), st.integers(), st.text(max_size=9), st.none() | st.text()), min_size=1),
    st.integers(30, 120),
)
def test_no_content_of_others_makes_a_line_wider(rows: list[tuple[str, int, str, str | None]], width: int) -> None:
    found = table("", ["name", "offset lag", "kind", "why"], rows).text(rows=None, width=width).split("\n")
    assert all(cell_len(line) <= width for line in found)


WHY = "one replica each on central, which has 3 brokers: a lost broker takes them away"
ROWS = [(badge("failed"), LONGEST, 12, 3456789, WHY), (badge("ok"), "orders", 1, 2, "fine")]
FOUND = table("", ["", "topic", "offset lag", "proven until", "finding"], ROWS, least=("proven until",))


def test_sentences_wrap_and_names_are_cut_in_the_middle() -> None:
    assert FOUND.text(rows=None, width=64).split("\n") == [
        "          topic               offset lag  finding",
        "✗ failed  payments.…eu.v2-az          12  one replica each on",
        "                                          central, which has 3",
        "                                          brokers: a lost broker",
        "                                          takes them away",
        "✓ ok      orders                       1  fine",
        "not shown here: proven until; --wide shows all",
    ]


def test_the_least_columns_go_first_and_are_named() -> None:
    assert "not shown here: proven until; --wide shows all" in FOUND.text(rows=None, width=56)
    assert FOUND.text(rows=None, width=40).split("\n")[-3:] == [
        "✓ ok      orders        fine",
        "not shown here: offset lag, proven",
        "  until; --wide shows all",
    ]
    assert "not shown here" not in FOUND.text(rows=None, width=120)


@pytest.mark.parametrize("column", ["why", "reason", "finding", "next"])
def test_a_reason_is_always_on_screen_and_whole(column: str) -> None:
    columns = ["flow", "topic", "verdict", "lag", column]
    rows = [
        ("east->central", LONGEST, badge("stall"), 7, "stood"),
        ("east->central", "t", badge("stall"), 7, "it-moved-on"),
    ]
    for width in (80, 60, 40, 31):
        heads, first, second = table("", columns, rows).text(rows=None, width=width).split("\n")[:3]
        assert heads.endswith(column)
        assert first.endswith("stood")
        assert second.endswith("it-moved-on")
