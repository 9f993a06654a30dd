"""Columns of keys and values: the same by any order and any cut of the documents, as the plain fold has them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from functools import reduce
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema import TableConfig
from mirrorlake.tables.formats import Format, format_of
from mirrorlake.tables.kinds import column_names, kind_of, merged
from tests.kit import typed_fold

NO_REGISTRY: Any = None
AT = datetime(2026, 11, 26, 10, tzinfo=timezone.utc)
NUMBERS = [0, -1, 0.25, -7.5, 2**53, -(2**53), 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**70]
# What meets in a column: numbers that only some columns hold, and values that have no column yet.
VALUES: list[Any] = [*NUMBERS, None, True, "x", 'aé"\\\n\0', [], [None], {}, [1], {"n": 1}, {"N": [0.5]}]
DOCUMENTS = st.recursive(
    st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["n", "N"]), inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "Id", "ID", "unit price", "unit_price", "é", "9"]), inner, max_size=4)
    ),
    max_leaves=8,
)
MANY = st.lists(DOCUMENTS, max_size=6) | st.lists(st.dictionaries(st.sampled_from("ab"), DOCUMENTS), max_size=6)


def format_for(of: str = "values", kept: str | None = None, **entry: Any) -> Format:
    config = TableConfig.model_validate({"topics": "sales", "keys": "json", **entry})
    return format_of(config, "keys" if of == "keys" else "values", kept, NO_REGISTRY, ["east"])


def payloads(documents: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in documents]
    return pa.array(texts, pa.binary()), pa.array(["east"] * len(texts), pa.string())


def grown(known: Format, documents: Sequence[Any], **how: bool) -> Format:
    """Return the format after a batch; two workers look at its misfits, and tell of them as JSON."""
    misfits = [documents[row] for row in known.decode(*payloads(documents)).misfits]
    seen = [one for mine in (misfits[::2], misfits[1::2]) for one in known.look(*payloads(mine))]
    return known.grown(json.loads(json.dumps(seen)), NO_REGISTRY, **{"widens": True, "rebuilds": True, **how})


def decoded(known: Format, documents: Sequence[Any]) -> list[str]:
    found = known.decode(*payloads(documents))
    assert {name: array.type for name, array in found.columns.items()} == known.fields
    rows, bad = pa.table(dict(found.columns)).to_pylist() or [{}] * len(documents), {*found.faults, *found.misfits}
    return [as_text(row, is_bad=at in bad) for at, row in enumerate(rows)]


def folded(of: str, documents: Sequence[Any]) -> list[str]:
    of_objects = of == "values" and any(isinstance(one, dict) for one in documents)
    bad = [of_objects and not isinstance(one, dict | None) for one in documents]
    good = [None if is_bad else one for one, is_bad in zip(documents, bad, strict=True)]
    kind = reduce(typed_fold.merge, map(typed_fold.kind_of, good), "null")
    filled = [typed_fold.filled(one, kind) if typed_fold.is_known(kind) else None for one in good]
    column = {"values": "value", "keys": "_key"}[of]
    rows = filled if of_objects else [{column: value} for value in filled]
    return [as_text(row, is_bad=is_bad) for row, is_bad in zip(rows, bad, strict=True)]


def as_text(row: Any, *, is_bad: bool) -> str:
    """Return columns as text, in which 1, 1.0 and True are three; no column is NULL, too."""

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: told(one) for name, one in value.items() if one is not None}
        return [*map(told, value)] if isinstance(value, list) else value

    return "bad" if is_bad else json.dumps(told(row or {}), sort_keys=True)


@given(st.sampled_from(["values", "keys"]), st.lists(MANY, max_size=4))
def test_law_f_no_cut_into_batches_changes_a_row(of: str, batches: list[list[Any]]) -> None:
    check(of, *batches)


def check(of: str, *batches: Sequence[Any]) -> None:
    """Decode batches one after another, those of before again where the table is built again, and compare with the fold."""
    known, rows = format_for(of), list[str]()
    for number, batch in enumerate(batches, 1):
        wider = grown(known, batch)
        earlier = chain.from_iterable(batches[:number])
        rows = decoded(wider, [*earlier]) if known.is_rebuilt_for(wider) else rows + decoded(wider, batch)
        known = format_for(of, wider.kept)
        assert known == wider
    assert rows == folded(of, [*chain.from_iterable(batches)])


DECIMALS = ["decimal(9,2)", "decimal(5,4)", "decimal(38,0)", "decimal(20,20)"]
KINDS = DOCUMENTS.map(kind_of) | st.sampled_from([*DECIMALS, "date", "timestamp", "binary"])
KINDS |= KINDS.map(lambda kind: {"map": kind}) | KINDS.map(lambda kind: {"members": {"n": kind}})


@given(KINDS, KINDS, KINDS)
def test_law_f_kinds_merge_to_the_same_in_any_order(one: Any, two: Any, three: Any) -> None:
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    assert merged(one, one) == merged(one, "null") == one
    assert [merged(DECIMALS[0], other) for other in DECIMALS[1:]] == ["decimal(11,4)", "text", "decimal(27,20)"]


@given(st.lists(st.sampled_from(["id", "Id", "ID", "id_2", "i d", "i_d", "_Key", "_key_2", "", "_", "é"]), unique=True))
def test_law_f_names_of_columns_are_unique_and_follow_from_the_set_of_members(members: list[str]) -> None:
    names = column_names(members, {"_key"})
    assert names == column_names(sorted(members), {"_key"})
    assert len({"_key", *(name.lower() for name in names.values())}) == len(members) + 1
    assert all(name.isidentifier() for name in names.values())
    alike = {"id": "id", "id_2": "id_2", "Id": "Id_3", "ID": "ID_4", "_Key": "_Key_2"}
    assert column_names(alike, {"_key"}) == alike


def reason(of: Format, payload: bytes) -> str:
    """Return why a payload, beside one that is null, is no row; its columns are NULL."""
    found = of.decode(pa.array([payload, None], pa.binary()), pa.array(["east"] * 2))
    assert all(one.null_count == 2 for one in found.columns.values())
    [(row, why)] = {**found.faults, **found.misfits}.items()
    assert row == 0
    return why


FRAME = b"\0\0\0\0\7"
DEEP = [b'{"a":' + b"[" * lists + b"]" * lists + b"}" for lists in (31, 32)]
WIDE = [json.dumps({f"m{number}": {} for number in range(members)}).encode() for members in (1_000, 1_001)]

REASONS = {
    b"": "is not JSON: Input data was truncated",
    b'{secret": 1}': "is not JSON: object keys must be strings (byte 1)",
    b"[" * 100_000: "is not JSON: it is nested too deep",
    FRAME + b"{}": "is not JSON: invalid character (byte 0)",
    b'{"id": "secret"}': "id is text, which is not BIGINT",
    b'{"in": {"on": 1}}': "in.on is a number, which is not BOOLEAN",
    b'{"lines": [{"n": []}]}': "lines[].n is a list, which is not BIGINT",
    b'{"lines": 3}': "lines is a number, where the table has a list",
    b'{"more": 1}': "more is no column, and the table takes no new ones",
    b'["secret"]': "is a list, where the table has members",
    DEEP[1]: "is nested more than 32 levels deep",
    WIDE[1]: "has more than 1,000 columns of its own",
    # Also where they would be text.
    b'{"text": ' + DEEP[1] + b"}": "is nested more than 32 levels deep",
    b'{"text": ' + WIDE[1] + b"}": "has more than 1,000 columns of its own",
}


def test_a_reason_names_the_place_and_never_the_value() -> None:
    known = grown(format_for(), [{"id": 1, "in": {"on": True}, "lines": [{"n": 1}], "text": "x"}])
    assert {value: reason(known, value) for value in REASONS} == REASONS


def test_32_levels_and_1_000_columns_are_taken_and_the_next_record_is_not() -> None:
    for of in (DEEP, WIDE):
        assert decoded(grown(format_for(), of), of)[1:] == ["bad"]
    assert "bad" not in decoded(grown(format_for(), DEEP[:1]), DEEP[:1])
    many = [{f"m{number}": 1} for number in range(1_500)]
    known = grown(format_for(), many)
    assert (len(known.fields), decoded(known, many).count("bad")) == (1_000, 500)
    assert len(format_for().look(*payloads(many))) == 1_000
    # None of the many kinds takes another along where the table cannot be built again.
    widens = [{"m0": "x", f"n{number}": 1} for number in range(200)]
    known = grown(format_for(), [{"m0": 1}])
    assert {*grown(known, [*widens, {"n8": 1}], rebuilds=False).fields} == {"m0", "n8"}


# Of a type: what it takes, and what it refuses.
GIVEN: list[tuple[str, dict[str, Any], list[str]]] = [
    ("DECIMAL(12,2)", dict.fromkeys(["12.30", '"12.3"'], Decimal("12.30")), ["0.123", f"{10**12}", '"secret"', "true"]),
    ("TIMESTAMP", dict.fromkeys(['"2026-11-26T10:00:00Z"', '"2026-11-26 12:00+02:00"'], AT), ['"yesterday"', "1795"]),
    ("DATE", {'"2026-11-26"': AT.date()}, ['"2026-13-01"', "1795"]),
    ("MAP<STRING, BIGINT>", {'{"a": 1, "b": null}': [("a", 1), ("b", None)]}, ['{"a": true}']),
    ("STRUCT<n: FLOAT>", {'{"n": 1, "more": 2}': {"n": 1.0}}, ["[1]", '{"n": 1e39}']),
    ("ARRAY<STRING>", {'["x", 1.50, [1]]': ["x", "1.50", "[1]"]}, ['"secret"']),
    ("INT", {"-1": -1}, [f"{2**31}", "1.0"]),
    ("DOUBLE", {f"{2**53}": 2.0**53, "0.5": 0.5}, [f"{2**53 + 1}", "1e309"]),
    ("STRING, y INT", {"1.50": "1.50"}, ["1e9999999999", f"1e{10**20}", "1, " + DEEP[1].decode()[1:-1]]),
]


@pytest.mark.parametrize(("kind", "taken", "refused"), GIVEN)
def test_types_that_a_person_gave_take_what_they_hold_exactly(kind: str, taken: Any, refused: list[str]) -> None:
    known = format_for(schema=f"x {kind}")
    documents = {text: f'{{"x": {text}, "left out": 1}}'.encode() for text in (*taken, *refused)}
    found = known.decode(*payloads([documents[text] for text in taken]))
    assert found.columns["x"].to_pylist() == [*taken.values()]
    told = [reason(known, documents[text]) for text in refused]
    assert all(re.match(r"x\S* is (a number|a list|text|true or false), |is n", one) for one in told)
    assert not re.search("secret|yesterday|1795|999|000", str(told))


def test_texts_bytes_and_framed_json_are_one_column_or_members() -> None:
    text, binary, framed = (format_for(values=name) for name in ("text", "binary", "json_schema"))
    framed = grown(framed, [FRAME + b'{"n": 1}'])
    for of, payload, columns in (
        (text, "é".encode(), {"value": ["é", None]}),
        (binary, b"\xff", {"value": [b"\xff", None]}),
        (framed, FRAME + b'{"n": 7}', {"n": [7, None]}),
        (format_for(values="json_schema", schema="n INT"), FRAME + b'{"n": 7, "m": 1}', {"n": [7, None]}),
    ):
        found = of.decode(pa.array([payload, None], pa.binary()), pa.array(["east"] * 2))
        assert {name: column.to_pylist() for name, column in found.columns.items()} == columns
    assert reason(text, b"\xffsecret") == "is not UTF-8: byte 0 is invalid"
    frame = "it does not begin with the byte 0 and an id"
    assert reason(framed, b'{"n": 7}') == f"has no schema registry's frame: {frame}"
