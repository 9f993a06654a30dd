"""The columns of a table's keys and values, and how records widen them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mirrorlake.errors import SchemaUnknown
from mirrorlake.tables.avro import AvroReader, NotATable, WriterKey, arrow_type, defaults_of, expanded_schema, reader_of
from mirrorlake.tables.columns import widened
from mirrorlake.tables.decoding import BinaryFormat, Format, JsonFormat, TextFormat, inference_job
from mirrorlake.tables.json_types import NULL, from_text, named, to_text
from mirrorlake.tables.registry_format import RegistryFormat, ids_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlake.schemas import SchemaRegistry


class Shape(Protocol):
    """The columns of keys, or of values."""

    @property
    def may_grow(self) -> bool:
        """Return whether records may widen them."""

    def format(self) -> Format:
        """Return the format that decodes into them."""

    def grow(self, misfits: DataFrame, column: str) -> None:
        """Widen them by the payloads in a column that do not fit."""

    def to_text(self) -> str | None:
        """Return what a table keeps of them, or None if that is nothing."""

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        """Return what records that lack a column have in it, by its path; null without one."""


class FixedShape:
    """Columns that no record changes."""

    may_grow = False

    def __init__(self, fixed: Format) -> None:
        self._format = fixed

    def format(self) -> Format:
        """Return the format."""
        return self._format

    def grow(self, misfits: DataFrame, column: str) -> None:
        """Change nothing."""

    def to_text(self) -> str | None:
        """Return None."""
        return None

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        """Return none."""
        return {}


class JsonShape:
    """Columns of JSON documents, inferred from them."""

    def __init__(self, text: str | None, *, taken: frozenset[str], widens: bool) -> None:
        self.may_grow = widens
        self._kind: pa.DataType | None = None if text is None else from_text(text)
        self._taken = taken

    def format(self) -> Format:
        """Return the format of the present type."""
        return JsonFormat(NULL if self._kind is None else self._kind)

    def grow(self, misfits: DataFrame, column: str) -> None:
        """Infer the types of the documents that do not fit, and widen the present one by them."""
        found = misfits.select(column).mapInArrow(inference_job(column), "found string").collect()
        self._kind = widened(self._kind, [from_text(row.found) for row in found], taken=self._taken)

    def to_text(self) -> str | None:
        """Return the type."""
        return None if self._kind is None else to_text(self._kind)

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        """Return none: a member that a document lacks is null."""
        return {}


class AvroShape:
    """Columns of Avro records by their registries' schemas.

    Args:
        text: what a table kept of them.
        registries: returns the registry of a source.
        sources: the sources.
        taken: names that no column may have.
        widens: whether a new schema may; otherwise records are read into the present one.
    """

    # Also a schema that adds no column must be read.
    may_grow = True

    def __init__(
        self,
        text: str | None,
        *,
        registries: Callable[[str], SchemaRegistry],
        sources: Iterable[str],
        taken: frozenset[str],
        widens: bool,
    ) -> None:
        self._widens = widens
        kept = json.loads(text) if text is not None else {}
        self._reader: Any = kept.get("reader", "null")
        self._newest: dict[str, int] = kept.get("newest", {})
        self._registries = registries
        self._addresses = {source: registries(source).url for source in sources}
        self._writers: dict[WriterKey, Any] = {}
        self._refused: dict[WriterKey, str] = {}
        self._taken = taken

    def format(self) -> Format:
        """Return the format that reads the known writer schemas."""
        return RegistryFormat(
            AvroReader(self._reader, dict(self._writers)), self._addresses, dict(self._refused), self._taken
        )

    def grow(self, misfits: DataFrame, column: str) -> None:
        """Read the writer schemas of the payloads from the registries, and widen the reader schema by them.

        Raises:
            RegistryUnreachable: a registry does not answer.
        """
        found = (
            misfits.select("_source", column)
            .mapInArrow(ids_job(column), "source string, schema_id bigint")
            .distinct()
            .collect()
        )
        for source, schema_id in sorted((row.source, row.schema_id) for row in found):
            key = self._addresses[source], schema_id
            try:
                writer = expanded_schema(self._registries(source).schema(schema_id))
                self._widen(key, writer)
            except SchemaUnknown:
                self._refused[key] = f"names the schema {schema_id}, which the registry does not know"
            except NotATable as error:
                self._refused[key] = f"cannot be a row: {error}"

    def _widen(self, key: WriterKey, writer: Any) -> None:
        address, schema_id = key
        newest = self._newest.get(address)
        if self._reader == "null":
            reader = writer
        elif not self._widens:
            reader = self._reader
        elif newest is None or schema_id > newest:
            reader = reader_of(writer, self._reader)
        else:
            reader = reader_of(self._reader, writer)
        arrow_type(reader)
        self._reader = reader
        self._newest[address] = max(schema_id, newest or 0)
        self._writers[key] = writer
        self._refused.pop(key, None)

    def to_text(self) -> str | None:
        """Return the reader schema, and the newest id of each registry."""
        return None if self._reader == "null" else json.dumps({"reader": self._reader, "newest": self._newest})

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        """Return the defaults of the reader schema."""
        return defaults_of(self._reader)


def given_shape(kind: pa.DataType, *, taken: frozenset[str]) -> FixedShape:
    """Return the columns of JSON documents that a person wrote."""
    return FixedShape(JsonFormat(named(kind, taken=taken), drops=True))


BINARY_SHAPE, TEXT_SHAPE = FixedShape(BinaryFormat()), FixedShape(TextFormat())
