"""Records that name schemas of a real registry, from serializers to rows."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.kit.typed import UPSERT, World
from tests.kit.typed_fold import Record
from tests.servers.registry import RegistryServer
from tests.servers.schemas import Writer, protobuf

AT = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


def order(*fields: tuple[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "O", "fields": [{"name": name, "type": of} for name, of in fields]})


ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FIRST = order(("id", "int"), ("to", ["null", ADDRESS]), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
SECOND = order(("id", "long"), ("to", ["string", "int"]), ("price", PRICE), ("tags", {"type": "map", "values": "int"}))


def test_values_of_several_schemas_are_rows_of_one_table_and_a_schema_may_be_registered_later(
    tmp_path: Path, spark: SparkSession, registry: RegistryServer
) -> None:
    of, docs = {"registry": {"url": registry.url}}, {"topics": "docs", "values": "json_schema"}
    avro, people = {"topics": "orders", "values": "avro", **of}, {"topics": "people", "values": "protobuf", **of}
    world = World(tmp_path, spark, avro, {**people, **UPSERT}, docs, sources=("east",))

    def land(topic: str, *values: bytes | None, key: str = "k") -> list[tuple[str, int]]:
        world.land(*(Record(value, key, topic=topic) for value in values))
        world.keep(topic)
        return [(one.kind, one.offset) for one in world.open(topic).verify_table(topic).findings]

    write, title = Writer(registry, "orders"), {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Doc"}
    first = write(FIRST, {"id": 1, "to": {"city": "Bonn"}, "at": AT})
    assert land("orders", first, None, b"{}", first[:6]) == []
    coming = write.register("coming", order(("id", "int"))) + 1
    later = b"\x00" + coming.to_bytes(4, "big") + b"\x06\x04DE"
    assert land("orders", later) == []
    assert f"the schema {coming}, which the registry does not know" in world.bad("orders")["east", "orders", 0, 4]
    assert write.register("later", order(("id", "int"), ("land", "string"))) == coming
    # The table has the one that was bad when it is built again, as for a column that widens.
    assert land("orders", later) == [("missing", 4)]
    second = write(SECOND, {"id": 2**40, "to": 7, "price": Decimal("9.99"), "tags": {"a": 1}})
    assert land("orders", second) == []
    assert [
        (at and at.astimezone(timezone.utc), *row)
        for at, *row in world.columns("orders", "at", "id", "to", "land", "price", "tags")
    ] == [
        (AT, 1, '{"city":"Bonn"}', None, None, None),
        (None,) * 6,
        *[(None, 3, None, "DE", None, None)] * 2,
        (None, 2**40, "7", None, Decimal("9.99"), [("a", 1)]),
    ]
    assert sorted(offset for *_, offset in world.bad("orders")) == [2, 3]

    person, address = Writer(registry, "people"), "string zip = 2;"
    old, new = protobuf(tmp_path / "old"), protobuf(tmp_path / "new", address=address, more="bool vip = 14;")
    ann = old(name="Ann", home=old.Address(city="Ulm"), limits={"EUR": 5}, level="GOLD", big=2**64 - 1, phone="1")
    both = {"ann": ann, "bob": old(name="Bob")}
    world.land(*(Record(person.protobuf(message), key, topic="people") for key, message in both.items()))
    world.keep("people")
    bob = new(name="Bob", age=0, others=[new.Address(city="Bonn", zip="53")], vip=True)
    assert land("people", person.protobuf(bob), key="bob") == []
    columns = ("name", "age", "home", "others", "limits", "level", "big", "mail", "phone", "vip")
    assert world.columns("people", *columns) == [
        ("Ann", None, {"city": "Ulm", "zip": None}, [], [("EUR", 5.0)], "GOLD", 2**64 - 1, None, "1", None),
        ("Bob", 0, None, [{"city": "Bonn", "zip": "53"}], [], "NONE", 0, None, None, True),
    ]

    doc = Writer(registry, "docs").json(title, {"id": 1, "list": []})
    assert land("docs", doc, doc[:5] + b'{"id": 1.5, "list": [{"a": 1}]}', doc[:5] + b"{", b'{"id": 1}') == []
    assert world.columns("docs", "id", "list") == [(1.0, []), (1.5, [{"a": 1}])]
    assert sorted(offset for *_, offset in world.bad("docs")) == [2, 3]
