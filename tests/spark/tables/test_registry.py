"""Typed tables of records that name schemas of a real registry: versions, unions, logical types, and what is no row."""

from __future__ import annotations

import json
import uuid
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from mirrorlake.errors import RegistryUnreachable
from mirrorlake.mirror import Mirror
from tests.servers.registry import RegistryServer
from tests.servers.schemas import Writer, protobuf
from tests.spark.frames import assert_rows
from tests.spark.tables.kit import Make, Regions, bad, rows

AT = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": [*fields]})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def table(mirror_of: Any, registry: RegistryServer, topic: str, **more: Any) -> Mirror:
    entry = {"topics": topic, "values": "avro", "registry": {"url": registry.url, "client": {"max.retries": 0}}, **more}
    mirror: Mirror = mirror_of(entry)
    return mirror


ADDRESS = {"type": "record", "name": "Address", "fields": [field("city", "string")]}
FIRST = record("Order", field("id", "int"), field("to", ADDRESS), field("gone", ["null", "string"], default=None))
SECOND = record(
    "Order",
    field("id", "long"),
    field("to", {**ADDRESS, "fields": [field("city", "string"), field("zip", "string", default="?")]}),
    field("currency", "string", default="EUR"),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}, default="\u0000"),
)


def test_records_of_two_schema_versions_are_rows_of_one_table_with_the_newer_ones_defaults(
    make: Make,
    registry: RegistryServer,
) -> None:
    mirror = table(make, registry, "orders|returns", name="orders", mode="append")
    regions, write = Regions(mirror), Writer(registry, "orders")
    regions.land("east", "orders", ("a", write(FIRST, {"id": 1, "to": {"city": "Bonn"}, "gone": "x"})), ("t", None))
    mirror.keep_tables(once=True)
    assert dict(mirror.lake.typed("orders").dtypes)["id"] == "int"
    second = {"id": 2**40, "to": {"city": "Ulm", "zip": "89"}, "currency": "USD", "price": Decimal("9.99")}
    regions.land("east", "orders", ("b", write(SECOND, second)))
    regions.land("west", "orders", ("c", write(FIRST, {"id": 3, "to": {"city": "Köln"}, "gone": None})))
    mirror.keep_tables(once=True)
    found = [
        (number, tuple(to.values()) if to else None, gone, currency, price)
        for number, to, gone, currency, price in rows(mirror, "orders", "id", "to", "gone", "currency", "price")
    ]
    assert found == [
        (1, ("Bonn", "?"), "x", "EUR", Decimal("0.00")),
        (None, None, None, None, None),
        (2**40, ("Ulm", "89"), None, "USD", Decimal("9.99")),
        (3, ("Köln", "?"), None, "EUR", Decimal("0.00")),
    ]
    assert bad(mirror) == []
    described = mirror.spark.sql(f"DESCRIBE {mirror.lake.sql_name(mirror.lake.typed_location('orders'))}").collect()
    assert {row.col_name: row.comment for row in described}["_offset"] == "Upstream offset"
    version = mirror.lake.version(mirror.lake.typed_location("orders"))
    third = record("Order", field("id", "long"), field("to", ADDRESS))
    contradiction = record("Return", field("id", "string"))
    back = Writer(registry, "returns")(contradiction, {"id": "x"})
    regions.land("east", "orders", ("d", write(third, {"id": 4, "to": {"city": "Bonn"}})))
    regions.land("east", "returns", ("a", back), ("b", b'{"id": 1}'))
    mirror.keep_tables(once=True)
    assert mirror.lake.version(mirror.lake.typed_location("orders")) == version + 2, "types, rows"
    assert [row[:1] for row in rows(mirror, "orders", "id")][2:4] == [(2**40,), (4,)]
    assert [reason for *_, reason in bad(mirror)] == [
        "the value cannot be a row: id would be int64 and string in one column",
        "the value has no schema registry's frame: it does not begin with the byte 0 and an id",
    ]


def test_unions_maps_enums_and_logical_types_have_columns(make: Make, registry: RegistryServer) -> None:
    schema = record(
        "Odd",
        field("either", ["null", "long", "string", ADDRESS]),
        field("tags", {"type": "map", "values": "int"}),
        field("size", {"type": "enum", "name": "Size", "symbols": ["S", "L"]}),
        field("day", {"type": "int", "logicalType": "date"}),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}),
        field("number", {"type": "string", "logicalType": "uuid"}),
        field("lines", {"type": "array", "items": ["null", "double"]}),
        field("raw", "bytes"),
    )
    mirror = table(make, registry, "odd")
    regions, write = Regions(mirror), Writer(registry, "odd")
    number = uuid.UUID(int=7)
    one = {
        "tags": {"a": 1},
        "size": "L",
        "day": date(2026, 7, 1),
        "at": AT,
        "number": number,
        "lines": [1.5, None],
        "raw": b"\x00\xff",
    }
    values = [{**one, "either": either} for either in (None, 5, "text", {"city": "Bonn"})]
    regions.land("east", "odd", *(("k", write(schema, value)) for value in values))
    mirror.keep_tables(once=True)
    found = rows(mirror, "odd", "either", "tags", "size", "day", "at", "number", "lines", "raw")
    assert bad(mirror) == []
    assert [either for either, *_ in found] == [
        None,
        {"long": 5, "string": None, "Address": None},
        {"long": None, "string": "text", "Address": None},
        {"long": None, "string": None, "Address": {"city": "Bonn"}},
    ]
    _, tags, size, day, at, text, lines, raw = found[0]
    assert (tags, size, day, text, lines, bytes(raw)) == (
        [("a", 1)],
        "L",
        date(2026, 7, 1),
        str(number),
        [1.5, None],
        b"\x00\xff",
    )
    assert at.astimezone(timezone.utc) == AT


def test_protobuf_messages_of_two_versions_are_upserted(make: Make, registry: RegistryServer, tmp_path: Path) -> None:
    first = protobuf(tmp_path / "first")
    second = protobuf(
        tmp_path / "second", address="string zip = 2;", more="string currency = 13; optional bool vip = 14;"
    )
    mirror = table(make, registry, "people", values="protobuf", mode="upsert")
    regions, write = Regions(mirror), Writer(registry, "people")
    ann = first(
        name="Ann",
        bought=2**40,
        home=first.Address(city="Bonn"),
        limits={"EUR": 5},
        level="GOLD",
        big=2**64 - 1,
        phone="1",
    )
    ann.since.FromDatetime(AT)
    ann.nick.value = "A"
    regions.land("east", "people", ("ann", write.protobuf(first(name="Old"))), ("ann", write.protobuf(ann)))
    mirror.keep_tables(once=True)
    bob = second(name="Bob", age=0, others=[second.Address(city="Ulm", zip="89")], currency="USD", vip=False)
    regions.land(
        "west", "people", ("bob", write.protobuf(bob)), ("tom", write.protobuf(second(name="Tom"))), ("tom", None)
    )
    mirror.keep_tables(once=True)
    assert bad(mirror) == []
    address = "struct<city:string,zip:string>"
    schema = (
        f"name string, bought bigint, since timestamp, age int, home {address}, others array<{address}>, limits string, "
        "level string, nick string, big decimal(20,0), mail string, phone string, currency string, vip boolean"
    )
    people = mirror.lake.typed("people").withColumn("limits", F.to_json("limits"))
    assert_rows(
        people.select(*StructType.fromDDL(schema).names),
        schema,
        [
            (
                *("Ann", 2**40, AT, None, ("Bonn", ""), [], '{"EUR":5.0}'),
                *("GOLD", "A", Decimal(2**64 - 1), None, "1", "", None),
            ),
            (
                *("Bob", 0, None, 0, None, [("Ulm", "89")], "{}"),
                *("NONE", None, Decimal(0), None, None, "USD", False),
            ),
        ],
    )


def test_documents_with_a_json_schema_have_its_columns(make: Make, registry: RegistryServer) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "title": "Sale",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
            "odd": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "limits": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "definitions": {"line": {"type": "object", "properties": {"item": {"type": "string"}}}},
    }
    mirror = table(make, registry, "docs", values="json_schema")
    regions, write = Regions(mirror), Writer(registry, "docs")
    one = {
        "id": 1,
        "price": 2,
        "at": "2026-07-01T12:00:00Z",
        "lines": [{"item": "a"}],
        "odd": 5,
        "limits": {"x": 1},
        "left": "out",
    }
    good = write.json(schema, one)
    more = {**schema, "properties": {**schema["properties"], "note": {"type": "string"}}}
    regions.land("east", "docs", ("k", good), ("k", good[:5] + b'{"id": "x"}'), ("k", good[:5] + b"{"))
    mirror.keep_tables(once=True)
    regions.land("east", "docs", ("k", write.json(more, {"id": 2, "note": "n"})))
    mirror.keep_tables(once=True)
    schema_id = int.from_bytes(good[1:5], "big")
    assert [reason for *_, reason in bad(mirror)] == [
        f"the value is not of its schema {schema_id}: id is text, which is not BIGINT",
        "the value is not JSON after its registry's frame",
    ]
    [(first_id, price, at, lines, odd, limits, note), (second_id, *_, second_note)] = rows(
        mirror, "docs", "id", "price", "at", "lines", "odd", "limits", "note"
    )
    assert (first_id, price, at.astimezone(timezone.utc), [line["item"] for line in lines], odd, limits, note) == (
        *(1, 2.0, AT, ["a"], "5", [("x", 1.0)], None),
    )
    assert (second_id, second_note) == (2, "n")


def test_what_is_no_row_is_a_bad_record_with_its_reason(make: Make, registry: RegistryServer) -> None:
    mirror = table(make, registry, "bad")
    regions, write = Regions(mirror), Writer(registry, "bad")
    good = write(FIRST, {"id": 1, "to": {"city": "Bonn"}, "gone": "x"})
    node = record("Node", field("next", ["null", "shop.Node"]))
    recursive = write.register("nodes-value", node).to_bytes(4, "big")
    records = [good, b"{}", b"\x00\x7f\xff\xff\xff1", good[:6], good + b"more", b"\x00" + recursive + b"\x00"]
    regions.land("east", "bad", *(("k", value) for value in records))
    mirror.keep_tables(once=True)
    assert rows(mirror, "bad", "_offset", "id") == [(0, 1)]
    schema_id = int.from_bytes(good[1:5], "big")
    assert [(offset, reason) for _, _, offset, reason in bad(mirror)] == [
        (1, "the value has no schema registry's frame: it does not begin with the byte 0 and an id"),
        (2, f"the value names the schema {0x7FFFFFFF}, which the registry does not know"),
        (3, f"the value is not of its schema {schema_id}: it ends too soon"),
        (4, f"the value is not of its schema {schema_id}: bytes are left over"),
        (5, "the value cannot be a row: the type shop.Node contains itself, and a table has no such column"),
    ]


def test_a_registry_that_is_away_stalls_the_table_and_loses_nothing(make: Make, make_registry: Any) -> None:
    registry = make_registry("away")
    mirror = make(
        {"topics": "orders", "values": "avro", "registry": {"url": registry.url, "client": {"max.retries": 0}}},
        {"topics": "sales"},
    )
    regions, write = Regions(mirror), Writer(registry, "orders")
    regions.land("east", "orders", ("a", write(FIRST, {"id": 1, "to": {"city": "Bonn"}, "gone": "x"})))
    regions.land("east", "sales", ("a", {"n": 1}))
    registry.kill()
    with pytest.raises(RegistryUnreachable):
        mirror.keep_tables(once=True)
    assert rows(mirror, "sales", "n") == [(1,)]
    assert {one.name: one.offset_lag for one in mirror.tables().tables} == {"orders": 1, "sales": 0}
    registry.restart()
    mirror.keep_tables(once=True)
    assert rows(mirror, "orders", "id") == [(1,)]
    assert bad(mirror) == []
