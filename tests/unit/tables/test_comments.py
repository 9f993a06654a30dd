"""What schemas of a registry say of their fields: read, merged over versions, and put to columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.schemas import Schema
from mirrorlake.tables.codec import Codec, NotATable
from mirrorlake.tables.codecs import CODECS
from mirrorlake.tables.comments import by_column
from mirrorlake.tables.json_types import named


def avro(*fields: dict[str, Any], doc: str = "") -> str:
    return json.dumps({"type": "record", "name": "Sale", "doc": doc, "fields": [*fields]})


LINE = {
    "type": "record",
    "name": "Line",
    "doc": "A line",
    "fields": [{"name": "sku", "type": "string", "doc": "Its item"}],
}
PROTO = """syntax = "proto3";
package shop;
// A sale
// of a shop.
message Sale {
  message Line {
    // Its item
    string sku = 1;
  }
  // %s
  int64 id = 1;
  repeated Line lines = 2; // The lines
  map<string, Line> by_name = 3;
}
"""
DOCUMENT = {
    "type": "object",
    "description": "A sale of a shop.",
    "properties": {
        "id": {"type": "integer", "description": "First"},
        "lines": {"type": "array", "description": "The lines", "items": {"$ref": "#/definitions/line"}},
        "by_name": {"type": "object", "additionalProperties": {"$ref": "#/definitions/line"}},
    },
    "definitions": {
        "line": {
            "type": "object",
            "description": "A line",
            "properties": {"sku": {"type": "string", "description": "Its item"}},
        }
    },
}
FIELDS = (
    {"name": "lines", "type": {"type": "array", "items": ["null", LINE]}, "doc": "The lines"},
    {"name": "by_name", "type": {"type": "map", "values": "Line"}},
)
FIRST = {
    "avro": avro({"name": "id", "type": "long", "doc": "First"}, *FIELDS, doc="A sale of a shop."),
    "protobuf": PROTO % "First",
    "json_schema": json.dumps(DOCUMENT),
}
SECOND = {
    "avro": avro({"name": "id", "type": "long", "doc": "Second"}, doc="A sale of a shop."),
    "protobuf": PROTO % "Second",
    "json_schema": json.dumps({"type": "object", "properties": {"id": {"type": "integer", "description": "Second"}}}),
}


def state_of(codec: Codec, text: str) -> Any:
    return codec.state(codec.writer(Schema(1, "", text), (1, (0,))))


@pytest.mark.parametrize("name", CODECS)
def test_columns_have_what_the_newest_schema_says_of_them(name: str) -> None:
    codec = CODECS[name]
    state = codec.merge(state_of(codec, SECOND[name]), state_of(codec, FIRST[name]))
    told = by_column(named(codec.reader(state, {}).kind), codec.comments(state))
    assert told[()] == "A sale of a shop."
    assert (told["id",], told["lines",]) == ("Second", "The lines")
    assert told["lines", "element", "sku"] == told["by_name", "value", "sku"] == "Its item"


def test_a_member_has_its_comment_under_the_name_of_its_column() -> None:
    kind = named(pa.struct([("unit price", pa.float64()), ("Id", pa.int64()), ("id", pa.int64())]))
    assert by_column(kind, {("unit price",): "a", ("id",): "b", ("gone",): "c"}) == {
        ("unit_price",): "a",
        ("id_2",): "b",
    }


CONTRADICTION = {
    "avro": avro({"name": "id", "type": "string"}),
    "protobuf": 'syntax = "proto3"; message Sale { string id = 1; }',
    "json_schema": json.dumps({"type": "object", "properties": {"id": {"type": "string"}}}),
}


@pytest.mark.parametrize("name", CODECS)
def test_schemas_whose_values_no_column_holds_are_refused(name: str) -> None:
    codec = CODECS[name]
    states = [state_of(codec, FIRST[name]), state_of(codec, CONTRADICTION[name])]
    for newer, older in (states, states[::-1]):
        if name == "json_schema":
            assert codec.reader(codec.merge(newer, older), {}).kind.field("id").type == pa.string()
        else:
            with pytest.raises(NotATable, match=r"^id would be (int64 and string|string and int64) in one column$"):
                codec.merge(newer, older)
