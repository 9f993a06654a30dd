"""The types of JSON values: what is inferred, widened, named and filled."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.tables.json_types import (
    Misfit,
    arrays_of,
    conformed,
    count_columns,
    from_text,
    known_part,
    merged,
    named,
    raw_name,
    to_text,
    type_of,
)

NAMES = st.sampled_from(["id", "Id", "amount", "unit price", "who", "_offset", "é"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
OBJECTS = st.dictionaries(NAMES, DOCUMENTS, max_size=4)


def kind_of(documents: list[Any]) -> pa.DataType | None:
    kind: pa.DataType = pa.null()
    for document in documents:
        kind = merged(kind, type_of(document))
    known = known_part(kind)
    return None if known is None else named(known)


@given(st.lists(OBJECTS, min_size=1, max_size=5))
def test_a_type_merged_of_all_records_takes_each_of_them(documents: list[Any]) -> None:
    kind = kind_of(documents)
    if kind is None:
        return
    each = []
    for document in documents:
        try:
            each.append(conformed(document, kind))
        except Misfit as misfit:
            # An integer past 2^53 beside a fraction: no type tells, only the value does.
            if misfit.wanted == "which is not DOUBLE":
                return
            raise
    together = arrays_of(documents, kind)
    if together is not None:
        assert together.to_pylist() == pa.array(each, kind).to_pylist()


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_the_order_of_records_does_not_change_which_type_they_get(one: Any, two: Any, three: Any) -> None:
    def shape(kind: pa.DataType) -> Any:
        if pa.types.is_struct(kind):
            return {field.name: shape(field.type) for field in kind}
        return [shape(kind.value_type)] if pa.types.is_list(kind) else str(kind)

    types = [type_of(each) for each in (one, two, three)]
    forth = merged(merged(types[0], types[1]), types[2])
    back = merged(merged(types[2], types[1]), types[0])
    assert shape(forth) == shape(back)


@given(st.lists(OBJECTS, min_size=1, max_size=4))
def test_names_are_unique_without_regard_to_case_and_stay_when_members_are_added(documents: list[Any]) -> None:
    kind = kind_of(documents)
    if kind is None:
        return
    names = [field.name.lower() for field in kind]
    assert len(set(names)) == len(names)
    wider = named(known_part(merged(kind, type_of({"ID": 1, "id_2": 2, "unit_price": 3}))) or kind)
    before = {raw_name(field): field.name for field in kind}
    assert before.items() <= {raw_name(field): field.name for field in wider}.items()
    assert from_text(to_text(kind)).equals(kind)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**63 - 1, "int64"),
        (2**63, "string"),
        (-(2**63), "int64"),
        (0.5, "double"),
        (True, "bool"),
        ([1, 2.5], "list<item: double>"),
        ([1, "x"], "list<item: string>"),
        ([1, True], "list<item: string>"),
        ({"a": {"b": [None]}}, "struct<a: struct<b: list<item: null>>>"),
    ],
)
def test_a_value_has_the_narrowest_type_that_holds_it_exactly(value: Any, expected: str) -> None:
    assert str(type_of(value)) == expected


def test_a_type_that_is_still_unknown_makes_no_column() -> None:
    assert known_part(type_of({"note": None, "tags": [], "more": {}})) is None
    kind = known_part(type_of({"note": None, "tags": [{}], "id": 1}))
    assert kind == pa.struct([("id", pa.int64())])
    assert conformed({"id": 1, "tags": [], "more": {"x": None}}, kind) == {"id": 1}
    assert arrays_of([{"id": 1, "tags": [], "more": {"x": None}}], kind) is not None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"id": "secret"}, "id is text, which is not BIGINT"),
        ({"id": 1.5}, "id is a number, which is not BIGINT"),
        ({"id": True}, "id is true or false, which is not BIGINT"),
        ({"lines": [{"n": 1}, {"n": []}]}, "lines[].n is a list, which is not BIGINT"),
        ({"lines": 3}, "lines is a number, where the table has a list"),
        ({"more": 1}, "more is no column, and the table takes no new ones"),
        ([1], "the value is a list, where the table has members"),
    ],
)
def test_a_misfit_names_its_place_and_never_the_value(value: Any, said: str) -> None:
    kind = pa.struct([("id", pa.int64()), ("lines", pa.list_(pa.struct([("n", pa.int64())])))])
    with pytest.raises(Misfit) as caught:
        conformed(value, kind)
    assert str(caught.value) == said
    assert arrays_of([value], kind) is None


def test_numbers_past_2_to_the_53_are_never_rounded() -> None:
    assert arrays_of([{"n": 2**53 + 1}, {"n": 0.5}], pa.struct([("n", pa.float64())])) is None
    with pytest.raises(Misfit):
        conformed(2**53 + 1, pa.float64())
    assert conformed(2**60, pa.float64()) == 2.0**60
    assert conformed(2**70, pa.string()) == str(2**70)


def test_what_becomes_text_is_json_text() -> None:
    assert conformed({"a": [1, None]}, pa.string()) == '{"a":[1,null]}'
    assert [conformed(one, pa.string()) for one in (True, 1.5, "x")] == ["true", "1.5", "x"]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("12.30", pa.decimal128(12, 2), Decimal("12.30")),
        ('"12.3"', pa.decimal128(12, 2), Decimal("12.30")),
        ('"2026-11-26T10:00:00Z"', pa.timestamp("us", "UTC"), datetime(2026, 11, 26, 10, tzinfo=timezone.utc)),
        ('"2026-11-26 12:00:00+02:00"', pa.timestamp("us", "UTC"), datetime(2026, 11, 26, 10, tzinfo=timezone.utc)),
        ('"2026-11-26"', pa.date32(), date(2026, 11, 26)),
        ('{"a": 1, "b": null}', pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)]),
    ],
)
def test_types_that_a_person_wrote_are_filled_from_json(text: str, kind: pa.DataType, expected: Any) -> None:
    value = (
        msgspec.json.decode(text, strict=True)
        if kind != pa.decimal128(12, 2)
        else json.loads(text, parse_float=Decimal)
    )
    made = pa.array([conformed(value, kind)], kind).to_pylist()[0]
    assert made == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Decimal("0.123"), pa.decimal128(12, 2)),
        (10**12, pa.decimal128(12, 2)),
        (True, pa.decimal128(12, 2)),
        ("NaN", pa.decimal128(12, 2)),
        ("yesterday", pa.timestamp("us", "UTC")),
        (1795715725, pa.timestamp("us", "UTC")),
        ("2026-13-01", pa.date32()),
        (2**31, pa.int32()),
        ("2026-11-26", pa.null()),
    ],
)
def test_a_type_refuses_what_it_does_not_hold_exactly(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(Misfit):
        conformed(value, kind)


def test_depth_is_bounded_and_columns_are_counted() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(Misfit, match="nested too deep"):
        type_of(deep)
    assert count_columns(type_of({"a": {"b": 1, "c": [{"d": 1, "e": 2}]}})) == 3
