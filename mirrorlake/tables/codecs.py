"""The formats whose records name schemas of a registry, by their name in the settings."""

from __future__ import annotations

from mirrorlake.tables.avro import AvroCodec
from mirrorlake.tables.codec import Codec
from mirrorlake.tables.json_schema import JsonSchemaCodec
from mirrorlake.tables.protobuf import ProtobufCodec

CODECS: dict[str, Codec] = {"avro": AvroCodec(), "protobuf": ProtobufCodec(), "json_schema": JsonSchemaCodec()}
