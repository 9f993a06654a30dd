"""Messages of Protobuf by their writer's schema alone, whose text protoc compiles."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.message_factory import GetMessageClass

from mirrorlake.tables.protobuf import _descriptor, compiled, locate, parser
from mirrorlake.tables.registry import NotATable, Schema

AT = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
KNOWN = ("any", "duration", "struct", "timestamp", "wrappers")
HEAD = "package shop; " + "".join(f'import "google/protobuf/{name}.proto"; ' for name in KNOWN)
HEAD += "enum Level { NONE = 0; GOLD = 1; } message City { string a_name = 1; } message M "


def schema(text: str, **references: str) -> Schema:
    return Schema(f'syntax = "proto3"; {text}', references)


def kind_and_value(fields: str, fill: Callable[[Any], Any]) -> tuple[Any, Any]:
    kind, made = compiled(schema(f"{HEAD} {{ {fields} }}"), (1, (1,)))
    message = GetMessageClass(_descriptor(*made))()
    fill(message)
    return kind["members"], parser(made)(message.SerializeToString())


ZEROS = {"double": 0.0, "int32": 0, "uint64": Decimal(0), "bool": False, "string": "", "bytes": b"", "Level": "NONE"}
KINDS = ["double", "int", "decimal(20,0)", "boolean", "text", "binary", "text"]
CITY = {"members": {"a_name": "text"}}


def test_a_field_without_presence_is_its_zero_and_one_with_presence_null() -> None:
    fields = [f"{presence} {name} " for presence in ("", "optional", "repeated") for name in ZEROS]
    fields += ["City ", "map<string, City> ", "oneof one { string "]
    text = "".join(f"{field} a{number} = {number};" for number, field in enumerate(fields, 1)) + "}"
    kinds, value = kind_and_value(text, lambda _: None)
    assert [*kinds.values()] == [*KINDS, *KINDS, *({"list": kind} for kind in KINDS), CITY, {"map": CITY}, "text"]
    assert repr([*value.values()]) == repr([*ZEROS.values(), *[None] * 7, *[[]] * 7, None, {}, None])


# The runtime's own order differs.
ORDERED = dict.fromkeys("abcdefgh", True)
ORDERED_JSON = json.dumps(ORDERED, separators=(",", ":"))
ANY = '{"@type":"type.googleapis.com/shop.City","a_name":"ü"}'
CASES: list[tuple[str, Callable[[Any], Any], Any, Any]] = [
    ("repeated uint64 a = 1;", lambda m: m.a.append(2**64 - 1), {"list": "decimal(20,0)"}, [Decimal(2**64 - 1)]),
    ("optional int64 a = 1;", lambda m: setattr(m, "a", 0), "long", 0),
    ("Level a = 1;", lambda m: setattr(m, "a", 7), "text", "7"),
    ("map<bool, City> a = 1;", lambda m: m.a[True], {"map": CITY}, {"true": {"a_name": ""}}),
    ("map<string, bool> a = 1;", lambda m: m.a.update(ORDERED), {"map": "boolean"}, ORDERED),
    ("google.protobuf.Timestamp a = 1;", lambda m: m.a.FromDatetime(AT), "timestamp", AT),
    ("google.protobuf.UInt64Value a = 1;", lambda m: m.a.SetInParent(), "decimal(20,0)", Decimal(0)),
    ("google.protobuf.Duration a = 1;", lambda m: m.a.FromSeconds(3), "text", "3s"),
    ("google.protobuf.Struct a = 1;", lambda m: m.a.update(ORDERED), "text", ORDERED_JSON),
    ("google.protobuf.Any a = 1; City b = 2;", lambda m: m.a.Pack(type(m.b)(a_name="ü")), "text", ANY),
    ("google.protobuf.Any a = 1;", lambda m: setattr(m.a, "type_url", "x/Y"), "text", '{"@type":"x/Y","value":""}'),
]


@pytest.mark.parametrize(("fields", "fill", "kind", "read"), CASES)
def test_a_value_is_read_as_its_kind(fields: str, fill: Callable[[Any], Any], kind: Any, read: Any) -> None:
    kinds, value = kind_and_value(fields, fill)
    assert (kinds["a"], repr(value["a"])) == (kind, repr(read))


def test_a_nested_message_of_a_file_with_references_as_text_and_as_descriptors() -> None:
    def described(made: Any) -> str:
        """Return a schema's text as confluent-kafka registers it."""
        return b64encode(_descriptor(*made).file.serialized_pb).decode()

    rate = described(compiled(schema("package tax; message Rate { int32 percent = 1; }"), (1, (0,)))[1])
    references = {"a/zip.proto": schema("package post; message Zip { string code = 1; }").text, "rate.proto": rate}
    main = 'import "a/zip.proto"; import "rate.proto"; message A { message B {} message C {'
    main += " post.Zip zip = 1; tax.Rate rate = 2; } }"
    kind, made = compiled(schema(main, **references), (1, (0, 1)))
    assert kind == {"members": {"zip": {"members": {"code": "text"}}, "rate": {"members": {"percent": "int"}}}}
    assert compiled(Schema(described(made), references), (1, (0, 1))) == (kind, made)


def test_a_body_that_is_not_of_its_schema_is_refused_without_a_part_of_it() -> None:
    _, made = compiled(schema(f"{HEAD} {{ string a = 1; google.protobuf.Timestamp b = 2; }}"), (1, (1,)))
    with pytest.raises(ValueError, match=r"^it is no such Protobuf message$"):
        parser(made)(b"\x0a\x14secret")
    with pytest.raises(ValueError, match=r"^a time, a text or a number in it is out of range$"):
        parser(made)(b"\x12\x08\x08\xff\xff\xff\xff\xff\xff\x7f")


DOUBLING = "message M0 { int32 a = 1; }"
for _n in range(60):
    DOUBLING = f"message M{_n + 1} {{ M{_n} a = 1; M{_n} b = 2; }} {DOUBLING}"
NO_TABLES = {
    'import "other.proto"; message A {}': "its schema is not Protobuf: protoc refuses it",
    "message A { message B { A a = 1; } repeated B b = 1; }": "the type A contains itself",
    "": "no message of the indexes",
    'import "../other.proto"; message A {}': "outside of its folder",
    DOUBLING: "more than 1000 columns",
}


@pytest.mark.parametrize(("text", "reason"), NO_TABLES.items(), ids=NO_TABLES.values())
def test_what_is_no_table(text: str, reason: str) -> None:
    references = {"../other.proto": schema("message B {}").text} if "../" in text else {}
    with pytest.raises(NotATable, match=reason):
        compiled(schema(text, **references), (1, (0,)))


def test_message_indexes_are_read_as_they_are_written() -> None:
    for indexes in ([0], [7], [0, 300], [2**31 - 1] * 20):
        frame = SchemaId("PROTOBUF", 2**32 - 1, message_indexes=indexes).id_to_bytes()
        assert locate(frame + b"body") == ((2**32 - 1, tuple(indexes)), len(frame))
        damaged = [frame[:5] + more for more in (b"", b"\x04\x02", b"\x01", b"\xff" * 9, b"\x02\x01")]
        assert [locate(data) for data in (*damaged, b"\1" + frame[1:], b"")] == [None] * 7
