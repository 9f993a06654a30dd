"""Schemas of a registry whose values no column holds."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.schemas import Schema
from mirrorlake.tables.codec import Codec, NotATable
from mirrorlake.tables.codecs import CODECS


def avro(kind: str) -> str:
    return json.dumps({"type": "record", "name": "Sale", "fields": [{"name": "id", "type": kind}]})


def protobuf(kind: str) -> str:
    return f'syntax = "proto3"; message Sale {{ {kind} id = 1; }}'


def document(kind: str) -> str:
    return json.dumps({"type": "object", "properties": {"id": {"type": kind}}})


NUMBER = {"avro": avro("long"), "protobuf": protobuf("int64"), "json_schema": document("integer")}
TEXT = {"avro": avro("string"), "protobuf": protobuf("string"), "json_schema": document("string")}


def state_of(codec: Codec, text: str) -> Any:
    return codec.state(codec.writer(Schema(1, "", text), (1, (0,))))


@pytest.mark.parametrize("name", CODECS)
def test_schemas_whose_values_no_column_holds_are_refused(name: str) -> None:
    codec = CODECS[name]
    states = [state_of(codec, NUMBER[name]), state_of(codec, TEXT[name])]
    for newer, older in (states, states[::-1]):
        if name == "json_schema":
            assert codec.reader(codec.merge(newer, older), {}).kind.field("id").type == pa.string()
        else:
            with pytest.raises(NotATable, match=r"^id would be (int64 and string|string and int64) in one column$"):
                codec.merge(newer, older)
