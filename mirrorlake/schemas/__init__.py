"""Schema registries: their client, and the frame by which a record names its schema."""

from mirrorlake.schemas.frame import FRAME_BYTES, parse_message_indexes, parse_schema_id
from mirrorlake.schemas.registry import SchemaRegistry
from mirrorlake.schemas.schema import Schema
