"""The interface of a registry's formats: read schemas, merge them into one reader, and decode payloads with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mirrorlake.schemas import FRAME_BYTES, parse_schema_id

if TYPE_CHECKING:
    from mirrorlake.schemas import Schema

WriterKey = tuple[Any, ...]
"""A writer schema: the registry's address, the schema's id there, and of Protobuf the indexes of the message."""


class NotATable(Exception):
    """A schema that cannot be a table; the text says why."""


class Reader(Protocol):
    """Read payloads of known writer schemas; picklable for Spark's workers."""

    @property
    def kind(self) -> pa.DataType: ...

    @property
    def writers(self) -> Mapping[WriterKey, Any]: ...

    def read(self, writer: WriterKey, payload: bytes) -> Any:
        """Return a payload as `pyarrow.array` takes it; the text of a ValueError never holds a part of it."""


class Codec(Protocol):
    """A format of a schema registry. Its states are JSON documents, which a table keeps."""

    def locate(self, payload: bytes) -> tuple[tuple[Any, ...], int] | None:
        """Return the writer schema that a payload names, without the registry, and where its body begins; None without a frame."""

    def writer(self, schema: Schema, named: tuple[Any, ...]) -> Any:
        """Parse a schema for the reader; NotATable if it cannot be a table."""

    def merge(self, newer: Any, older: Any) -> Any:
        """Return the state of two: a writer's or a merged one's; NotATable if no column holds the values of both."""

    def state(self, writer: Any) -> Any: ...

    def reader(self, state: Any, writers: Mapping[WriterKey, Any]) -> Reader:
        """Return the reader of a state; None is the state before the first schema."""

    def defaults(self, state: Any) -> Mapping[tuple[str, ...], Any]:
        """Return the default of each column that a newer schema added, by path; a column without one is null."""


def locate_id(payload: bytes) -> tuple[tuple[int], int] | None:
    """Return the id in a payload's frame, and where the body begins; None without a frame."""
    schema_id = parse_schema_id(payload)
    return None if schema_id is None else ((schema_id,), FRAME_BYTES)
