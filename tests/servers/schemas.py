"""Values that name a registry's schemas, as confluent's own serializers write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc_tools
from confluent_kafka.schema_registry import Schema as RawSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from tests.servers.registry import RegistryServer


class Writer:
    """Writes values as confluent's own serializer does."""

    def __init__(self, registry: RegistryServer, topic: str) -> None:
        self._client = SchemaRegistryClient({"url": registry.url})
        self._topic = topic
        self._serializers: dict[Any, Any] = {}

    def __call__(self, schema: str, value: dict[str, Any]) -> bytes:
        if schema not in self._serializers:
            self._serializers[schema] = AvroSerializer(self._client, schema)
        return bytes(self._serializers[schema](value, SerializationContext(self._topic, MessageField.VALUE)))

    def json(self, schema: dict[str, Any], value: Any) -> bytes:
        made = JSONSerializer(json.dumps(schema), self._client)(
            value, SerializationContext(self._topic, MessageField.VALUE)
        )
        assert made is not None
        return bytes(made)

    def protobuf(self, message: Any) -> bytes:
        kind = type(message)
        if kind not in self._serializers:
            self._serializers[kind] = ProtobufSerializer(kind, self._client, {"use.deprecated.format": False})
        return bytes(self._serializers[kind](message, SerializationContext(self._topic, MessageField.VALUE)))

    def register(self, subject: str, schema: str) -> int:
        return int(self._client.register_schema(subject, RawSchema(schema)))


PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other {{ string x = 1; }}
message Customer {{
  enum Level {{ NONE = 0; GOLD = 1; }}
  message Address {{ string city = 1; {address} }}
  string name = 1;
  int64 bought = 2;
  optional int32 age = 3;
  Address home = 4;
  repeated Address others = 5;
  map<string, double> limits = 6;
  Level level = 7;
  google.protobuf.Timestamp since = 8;
  google.protobuf.StringValue nick = 9;
  uint64 big = 10;
  oneof contact {{ string mail = 11; string phone = 12; }}
  {more}
}}
"""


def protobuf(folder: Path, **parts: str) -> Any:
    """Return the class of the message Customer."""
    folder.mkdir()
    (folder / "customer.proto").write_text(PROTO.format(**{"address": "", "more": "", **parts}))
    known = Path(grpc_tools.__file__).parent / "_proto"
    out = folder / "compiled"
    assert (
        protoc.main(
            ["", f"-I{folder}", f"-I{known}", "--include_imports", f"--descriptor_set_out={out}", "customer.proto"]
        )
        == 0
    )
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Customer"))
