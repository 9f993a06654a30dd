"""Decoding of keys and values into the columns of a table."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.tables.decoding import BinaryFormat, Format, JsonFormat, RowFormat, TextFormat, infer, objects_first

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def records(*pairs: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    rows = len(pairs)
    return pa.RecordBatch.from_pydict(
        {
            "_source": ["east"] * rows,
            "_topic": ["sales"] * rows,
            "_generation": pa.array([1] * rows, pa.int32()),
            "_partition": pa.array([0] * rows, pa.int32()),
            "_offset": pa.array(range(rows), pa.int64()),
            "_timestamp": pa.array([AT] * rows, pa.timestamp("us", "UTC")),
            "key": pa.array([key for key, _ in pairs], pa.binary()),
            "value": pa.array([value for _, value in pairs], pa.binary()),
        }
    )


def decoded(value: Format, *pairs: tuple[bytes | None, bytes | None], **how: Any) -> list[dict[str, Any]]:
    rows = RowFormat(TextFormat(), value, **how).decode(records(*pairs)).to_pylist()
    return [{name: row[name] for name in row if name not in ("_source", "_topic", "_timestamp")} for row in rows]


def test_a_json_object_is_a_row_with_its_members() -> None:
    kind = infer(pa.array([b'{"id": 1, "tags": ["a"]}']))
    [row, tombstone, empty] = decoded(JsonFormat(kind), (b"k", b'{"id": 7}'), (b"k", None), (None, b"null"))
    assert (row["_key"], row["id"], row["tags"], row["_fault"], row["_tombstone"]) == ("k", 7, None, None, False)
    assert (tombstone["id"], tombstone["_tombstone"], empty["id"], empty["_tombstone"]) == (None, True, None, False)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the value is not JSON: Input data was truncated"),
        (b"{bad", "the value is not JSON: object keys must be strings (byte 1)"),
        (b"\xff\xfe", "the value is not JSON: invalid character (byte 0)"),
        (b"[" * 100_000, "the value is not JSON: it is nested too deep"),
        (b"NaN", "the value is not JSON: invalid character (byte 0)"),
        (b"\x00\x00\x00\x00\x07abc", "the value is not JSON: invalid character (byte 0)"),
    ],
)
def test_what_is_not_json_is_a_fault_with_its_bytes(value: bytes, reason: str) -> None:
    [bad, good] = decoded(JsonFormat(pa.struct([("id", pa.int64())])), (b"k", value), (b"k", b'{"id": 1}'))
    assert (bad["_fault"], bad["_raw_value"], bad["_raw_key"]) == (reason, value, b"k")
    assert (good["_fault"], good["_raw_value"], good["id"]) == (None, None, 1)


def test_a_record_that_a_wider_table_takes_is_a_misfit_only_where_the_table_may_grow() -> None:
    kind = JsonFormat(pa.struct([("id", pa.int64())]))
    [row] = decoded(kind, (b"k", b'{"id": "x"}'), takes_misfits=True)
    assert (row["_fault"], row["_misfit"]) == (None, "id is text, which is not BIGINT")
    [row] = decoded(kind, (b"k", b'{"id": "x"}'))
    assert (row["_fault"], row["_misfit"]) == ("id is text, which is not BIGINT", None)


def test_of_two_members_of_one_name_the_last_counts() -> None:
    [row] = decoded(JsonFormat(pa.struct([("id", pa.int64())])), (b"k", b'{"id": 1, "id": 2}'))
    assert row["id"] == 2


def test_columns_that_a_person_wrote_leave_other_members_out() -> None:
    [row] = decoded(JsonFormat(pa.struct([("id", pa.int64())]), drops=True), (b"k", b'{"id": 1, "more": [1]}'))
    assert (row["id"], row["_fault"]) == (1, None)


def test_keys_and_values_that_are_not_of_their_format_are_faults() -> None:
    [both, key, value] = decoded(TextFormat(), (b"k", b"v"), (b"\xff", b"v"), (b"k", b"a\xff"))
    assert both["value"] == "v"
    assert (key["_fault"], value["_fault"]) == (
        "the key is not UTF-8: byte 0 is invalid",
        "the value is not UTF-8: byte 1 is invalid",
    )
    [row] = decoded(BinaryFormat(), (b"k", b"\xff\x00"))
    assert row["value"] == b"\xff\x00"


def test_a_table_with_a_row_a_key_needs_keys() -> None:
    [row] = decoded(BinaryFormat(), (None, b"v"), needs_key=True)
    assert row["_fault"] == "the record has no key, and the table has a row a key"


def test_values_of_which_nothing_is_known_make_no_column() -> None:
    [row] = decoded(JsonFormat(pa.null()), (b"k", None))
    assert "value" not in row
    assert row["_fault"] is None


def test_beside_objects_nothing_else_counts_for_the_columns() -> None:
    kind = infer(pa.array([b"3", b'{"id": 1}', b"[1]", b"broken"]))
    assert kind == pa.struct([("id", pa.int64())])
    assert objects_first(pa.int64(), pa.float64()) == pa.float64()
    assert infer(pa.array([b"3", b'"x"'])) == pa.string()
    assert infer(pa.array([b"[1]", b"[2.5]"])) == pa.list_(pa.float64())


def test_an_object_whose_members_are_data_makes_no_wide_table() -> None:
    wide = json.dumps({f"customer {number}": 1 for number in range(5_000)}).encode()
    assert infer(pa.array([b'{"id": 1}', wide])) == pa.struct([("id", pa.int64())])
