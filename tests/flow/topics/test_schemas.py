"""`sync.schemas`: what records name crosses with them, ids kept, never over another schema; `doctor` says what lacks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from mirrorlake.errors import SchemaConflict
from mirrorlake.mirror import Mirror
from mirrorlake.mirror.streams import duties_of
from mirrorlake.model.plan import Plan
from mirrorlake.schemas import parse_schema_id
from tests.servers.import_registry import ImportRegistry
from tests.servers.lakes import Pair
from tests.servers.registry import RegistryServer

ZIP = {"type": "record", "name": "Zip", "fields": [{"name": "code", "type": "string"}]}
JSON_SCHEMA = {"title": "Click", "type": "object", "properties": {"page": {"type": "string"}}}


def sale(*fields: str) -> str:
    own = [{"name": name, "type": ["null", "int"], "default": None} for name in fields]
    return json.dumps({"type": "record", "name": "Sale", "fields": [{"name": "zip", "type": "Zip"}, *own]})


class Framed:
    """Records of a topic with Avro values of two versions that refer to another subject, and keys of JSON Schema."""

    def __init__(self, pair: Pair, server: RegistryServer) -> None:
        self.client = SchemaRegistryClient({"url": server.url})
        self.pair = pair
        self.zip = f"zip-{pair.topic}"
        self.client.register_schema(self.zip, Schema(json.dumps(ZIP)))
        self.reference = SchemaReference("Zip", self.zip, 1)
        self.ids: dict[str, int] = {self.zip: 1}

    def produce(self, *fields: str) -> int:
        """Write a record with these fields, and return the id of its value's schema."""
        topic = self.pair.topic
        value = AvroSerializer(self.client, Schema(sale(*fields), "AVRO", [self.reference]))
        key = JSONSerializer(json.dumps(JSON_SCHEMA), self.client)
        record = {"zip": {"code": "1010"}, **dict.fromkeys(fields, 7)}
        data = value(record, SerializationContext(topic, MessageField.VALUE))
        producer = Producer({"bootstrap.servers": self.pair.east.bootstrap_servers})
        producer.produce(topic, data, key({"page": "/"}, SerializationContext(topic, MessageField.KEY)))
        # Numbers in eight bytes look like a frame, and text does not.
        producer.produce(topic, (1_700_000_000_000).to_bytes(8, "big"), b"plain")
        assert producer.flush(60) == 0
        schema_id = parse_schema_id(data)
        assert schema_id is not None
        return schema_id


@pytest.fixture
def framed(pair: Pair, registry: RegistryServer) -> Framed:
    pair.create(partitions=1)
    return Framed(pair, registry)


def mirror_of(framed: Framed, east: str, central: str, *, continuous: bool = False) -> Mirror:
    pair = framed.pair
    flow = pair.flow(sync={"schemas": True, "continuous": continuous})
    return pair._make(
        {"east": pair.east, "central": pair.central},
        [flow],
        east={"registry": {"url": east}},
        central={"registry": {"url": central, "client": {"max.retries": 0}}},
    )


def schemas(plan: Plan) -> list[tuple[str, str, Any]]:
    return [(change.action, change.name, change.after["id"]) for change in plan.changes if change.kind == "schema"]


def complaints(mirror: Mirror) -> list[str]:
    return [one.detail for one in mirror.doctor(only=["registry"]) if one.severity != "ok"]


@pytest.mark.law("G")
def test_schemas_cross_with_their_ids_and_a_consumer_reads_the_mirror(
    framed: Framed, registry: RegistryServer, import_registry: ImportRegistry
) -> None:
    pair = framed.pair
    first = framed.produce("amount")
    mirror = mirror_of(framed, registry.url, import_registry.url)
    mirror.apply()
    mirror.run(once=True)
    [of_value, of_key] = complaints(mirror)
    assert f"id {first} of {pair.topic}-value (1 record lately)" in of_value
    assert f"of {pair.topic}-key" in of_key

    plan = mirror.plan()
    names = [name for _, name, _ in schemas(plan)]
    assert set(names) == {f"{framed.zip} version 1", f"{pair.topic}-value version 1", f"{pair.topic}-key version 1"}
    assert names.index(f"{framed.zip} version 1") < names.index(f"{pair.topic}-value version 1"), "references first"
    assert ("create", f"{pair.topic}-value version 1", first) in schemas(plan)
    assert import_registry.requests == [], "a plan changes nothing"
    mirror.apply(plan=plan)
    assert import_registry.subjects[f"{pair.topic}-value"] == {1: first}
    assert import_registry.modes == {}
    assert not mirror.plan(), "law G"
    assert complaints(mirror) == []

    second = framed.produce("amount", "rebate")
    mirror.run(once=True)
    assert schemas(mirror.plan()) == [("create", f"{pair.topic}-value version 2", second)]
    mirror = mirror_of(framed, registry.url, import_registry.url, continuous=True)
    [duty] = [duty for duty in duties_of(mirror._context, mirror.config.flows[0]) if duty.name == "schemas"]
    duty.run()
    third = framed.produce("amount", "rebate", "tax")
    mirror.run(once=True)
    assert import_registry.subjects[f"{pair.topic}-value"] == {1: first, 2: second, 3: third}
    framed.produce("amount", "rebate", "tax", "tip")
    mirror.land("east", once=True)
    duty.run()
    assert schemas(mirror.plan()) == [], "the same task copies what came after it read"
    read = AvroDeserializer(SchemaRegistryClient({"url": import_registry.url}))
    values = [one.value for one in pair.target()[0] if one.key != b"plain"]
    found = [read(value, SerializationContext(pair.remote, MessageField.VALUE)) for value in values]
    assert [(one["amount"], one.get("rebate"), one.get("tax")) for one in found] == [
        (7, None, None),
        (7, 7, None),
        (7, 7, 7),
    ]


def test_another_schema_with_that_id_is_a_conflict_and_nothing_is_written(
    framed: Framed, registry: RegistryServer, import_registry: ImportRegistry
) -> None:
    schema_id = framed.produce("amount")
    import_registry.schemas[schema_id] = {"schema": '"string"'}
    mirror = mirror_of(framed, registry.url, import_registry.url)
    mirror.apply()
    mirror.run(once=True)
    name = f"{framed.pair.topic}-value version 1"
    [conflict] = mirror.plan().conflicts
    assert (conflict.name, conflict.where) == (name, "central")
    assert f"another schema is id {schema_id} there" in conflict.reason
    with pytest.raises(SchemaConflict, match=name):
        mirror.apply()
    with pytest.raises(SchemaConflict, match=name):
        mirror_of(framed, registry.url, import_registry.url, continuous=True).run(once=True)
    assert import_registry.requests == []
    assert len(framed.pair.target()[0]) == 2, "records go on"


def test_a_registry_that_gives_ids_of_its_own_is_written_nothing(
    framed: Framed, registry: RegistryServer, other_registry: RegistryServer
) -> None:
    """Apicurio 3.0 takes a schema with an id, and gives it another one without a word."""
    framed.produce("amount")
    mirror = mirror_of(framed, registry.url, other_registry.url)
    mirror.apply()
    mirror.run(once=True)
    other = SchemaRegistryClient({"url": other_registry.url})
    before = other.get_subjects()
    assert {(action, "no import mode" in c.reason) for c in mirror.plan().conflicts for action in [c.action]} == {
        ("conflict", True)
    }
    with pytest.raises(SchemaConflict, match="no import mode"):
        mirror.apply()
    assert other.get_subjects() == before
