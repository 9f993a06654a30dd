"""Values of Avro by their writer's schema alone, as fastavro writes them."""

from __future__ import annotations

import io
import json
import pickle
import uuid
from datetime import date, datetime, time, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from mirrorlake.tables.avro import compiled, parser
from mirrorlake.tables.formats import RegistryFormat
from mirrorlake.tables.registry import NotATable, Schema

AT = datetime(2026, 7, 1, 12, 0, 0, 1_000, timezone.utc)
FULL, NUMBER = Decimal("0." + "9" * 38), uuid.UUID(int=7)
RANGE = "a time or a number in it is out of range"


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    members = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": "shop", "fields": members}


def logical(base: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": logical_type, **more}


def encoded(kind: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(kind), value)
    return stream.getvalue()


def kind_and_value(kind: Any, body: bytes, **references: Any) -> tuple[Any, Any]:
    found, made = compiled(Schema(json.dumps(kind), {name: json.dumps(one) for name, one in references.items()}), (1,))
    return found, parser(pickle.loads(pickle.dumps(made)))(body)  # noqa: S301  as Spark's workers get it


CITY, CITY_KIND = record("City", name="string"), {"members": {"name": "text"}}
ORDER = record("Order", to=CITY, via={"type": "array", "items": "shop.City"}, none="null")
ORDERED = {"to": {"name": "Ulm"}, "via": [{"name": "Bonn"}], "none": None}
TWICE = record("T", a=logical("fixed", "decimal", name="D", size=20, precision=38, scale=38), b="D")
# A type with a value that is written, its kind, and what is read if that is another value.
CASES: list[tuple[Any, ...]] = [
    ({"type": "fixed", "name": "F", "size": 2}, b"\0\xff", "binary"),
    ({"type": "enum", "name": "E", "symbols": ["S", "L"]}, "L", "text"),
    (logical("bytes", "decimal", precision=10, scale=2), Decimal("-1.5"), "decimal(10,2)", Decimal("-1.50")),
    (["null", logical("int", "date")], date(2026, 7, 1), "date"),
    (logical("long", "timestamp-millis"), AT, "timestamp"),
    (logical("long", "local-timestamp-micros"), AT.replace(tzinfo=None), "timestamp", AT),
    (logical("long", "timestamp-nanos"), 2**62 + 1, "long"),
    (logical("int", "time-millis"), time(1, 2, 3), "text", "01:02:03"),
    (logical("string", "uuid"), NUMBER, "text", str(NUMBER)),
    (logical("fixed", "uuid", name="N", size=16), NUMBER.bytes, "text", str(NUMBER)),
    (TWICE, dict.fromkeys("ab", FULL), {"members": dict.fromkeys("ab", "decimal(38,38)")}),
    (logical("bytes", "decimal", precision=39, scale=9), Decimal("0.000000001"), "text", "0.000000001"),
    (logical("bytes", "decimal"), b"a", "binary"),
    (["null", "int", "double"], 7, "double"),
    (["string", logical("bytes", "decimal", precision=4, scale=1), CITY], {"name": "Ulm"}, "text"),
    ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}, {"map": "int"}),
    (ORDER, ORDERED, {"members": {"to": CITY_KIND, "via": {"list": CITY_KIND}, "none": "null"}}),
]


@pytest.mark.parametrize("case", CASES)
def test_a_value_is_read_as_its_kind(case: tuple[Any, ...]) -> None:
    kind, written, expected, read = (*case, case[1])[:4]
    found, value = kind_and_value(kind, encoded(kind, written))
    assert (found, repr(value)) == (expected, repr(read))


def test_values_of_several_types_are_text_and_other_roots_are_refused_whatever_is_in_the_batch() -> None:
    several = record("Odd", n=["null", "int", "string"])
    kind, made = compiled(Schema(json.dumps(several), {}), (1,))
    odd = RegistryFormat(encoding="avro", kind=kind, name="value", spread=True, writers={("east", 1): made})
    bodies = [encoded(several, {"n": value}) for value in (5, "x", None)]
    payloads = pa.array([*(b"\0\0\0\0\1" + body for body in bodies), None, b"\0\0\0\0\2"], pa.binary())
    found = odd.decode(payloads, pa.array(["east"] * 5))
    assert (found.columns["n"].to_pylist(), found.faults, [*found.misfits]) == (["5", "x", None, None, None], {}, [4])
    texts: Any = SimpleNamespace(schema=lambda _: Schema('"string"', {}))
    grown: Any = odd.grown([["east", 2]], lambda _: texts, widens=True, rebuilds=True)
    assert (grown.fields, [*grown.refused]) == (odd.fields, [("east", 2)])


def test_a_schema_has_the_types_it_refers_to_and_no_default_or_alias_counts_not_even_a_wrong_one() -> None:
    zone, order = record("Zone", into="City"), record("Order", id="int", zone="Zone")
    order["fields"][0] |= {"default": "x", "aliases": ["number"], "doc": "of the shop"}
    value = {"id": 7, "zone": {"into": {"name": "Ulm"}}}
    body = encoded(record("Order", id="int", zone=record("Zone", into=CITY)), value)
    kind = {"members": {"id": "int", "zone": {"members": {"into": CITY_KIND}}}}
    assert kind_and_value(order, body, city=CITY, zone=zone) == (kind, value)
    several = {"type": "array", "items": "shop.City"}
    assert kind_and_value(several, b"\x02\x06Ulm\0", city=CITY) == ({"list": CITY_KIND}, [{"name": "Ulm"}])


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (record("A", id="int", name="string"), b"\x0e\x14secret", "it ends too soon"),
        (record("A", id="int"), b"\x0esecret", "bytes are left over"),
        ("string", b"\x0e\xffsecret", "a text in it is not UTF-8"),
        (logical("int", "date"), encoded("int", 2**30), RANGE),
        (logical("long", "time-micros"), encoded("long", -1), RANGE),
        (logical("bytes", "decimal", precision=3, scale=1), encoded("bytes", (1_000).to_bytes(2, "big")), RANGE),
    ],
)
def test_a_body_that_is_not_of_its_schema_is_refused_without_a_part_of_it(kind: Any, body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        kind_and_value(kind, body)


DOUBLING = record("R0", a="int")
for _number in range(1, 60):
    DOUBLING = record(f"R{_number}", a=DOUBLING, b=f"R{_number - 1}")
NO_TABLES = {
    "{": "its schema is not Avro: JSONDecodeError",
    "[" * 100_000: "its schema is not Avro: RecursionError",
    json.dumps(record("Node", next=["null", "Node"])): "the type shop.Node contains itself",
    json.dumps({"type": "array", "items": "null"}): "a list of values without bytes",
    json.dumps(DOUBLING): "more than 1000 columns",
}


@pytest.mark.parametrize(("text", "reason"), NO_TABLES.items(), ids=NO_TABLES.values())
def test_what_is_no_table(text: str, reason: str) -> None:
    with pytest.raises(NotATable, match=reason):
        compiled(Schema(text, {}), (1,))
