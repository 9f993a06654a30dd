"""The columns of a table's keys and values, and how records widen them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mirrorlake.errors import RegistryError, SchemaUnknown
from mirrorlake.tables.codec import Codec, NotATable, WriterKey
from mirrorlake.tables.columns import widened
from mirrorlake.tables.decoding import BinaryFormat, Format, JsonFormat, TextFormat, inference_job
from mirrorlake.tables.json_types import NULL, from_text, named, to_text
from mirrorlake.tables.registry_format import RegistryFormat, names_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlake.schemas import SchemaRegistry


class PayloadColumns(Protocol):
    @property
    def may_grow(self) -> bool: ...

    def format(self) -> Format: ...

    def grow(self, misfits: DataFrame, column: str) -> None: ...

    def to_text(self) -> str | None:
        """Return the text for the table's property, or None if it needs none."""

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        """Return the default of each column, by path; a column without one is null."""


class FixedColumns:
    """Columns that no record changes."""

    may_grow = False

    def __init__(self, fixed: Format) -> None:
        self._format = fixed

    def format(self) -> Format:
        return self._format

    def grow(self, misfits: DataFrame, column: str) -> None: ...

    def to_text(self) -> str | None:
        return None

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        return {}


class JsonColumns:
    def __init__(self, text: str | None, *, taken: frozenset[str], widens: bool) -> None:
        self.may_grow = widens
        self._kind: pa.DataType | None = None if text is None else from_text(text)
        self._taken = taken

    def format(self) -> Format:
        return JsonFormat(NULL if self._kind is None else self._kind)

    def grow(self, misfits: DataFrame, column: str) -> None:
        found = misfits.select(column).mapInArrow(inference_job(column), "found string").collect()
        self._kind = widened(self._kind, [from_text(row.found) for row in found], taken=self._taken)

    def to_text(self) -> str | None:
        return None if self._kind is None else to_text(self._kind)

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        """Return none: a member that a document lacks is null."""
        return {}


class RegistryColumns:
    """Columns of records that name schemas of a registry.

    `text` is what a table kept of them, `taken` names that no column may have. `widens` is whether a new schema may; otherwise
    records are read into the present one.
    """

    # Also a schema that adds no column must be read.
    may_grow = True

    def __init__(
        self,
        codec: Codec,
        text: str | None,
        *,
        registries: Callable[[str], SchemaRegistry],
        sources: Iterable[str],
        taken: frozenset[str],
        widens: bool,
    ) -> None:
        self._codec = codec
        self._widens = widens
        kept = json.loads(text) if text is not None else {}
        self._state: Any = kept.get("state")
        self._newest: dict[str, int] = kept.get("newest", {})
        self._registries = registries
        self._addresses = {source: registries(source).url for source in sources}
        self._writers: dict[WriterKey, Any] = {}
        self._refused: dict[WriterKey, str] = {}
        self._taken = taken
        self._read_known([_as_key(key) for key in kept.get("known", ())])

    def _read_known(self, keys: Iterable[WriterKey]) -> None:
        sources = {address: source for source, address in self._addresses.items()}
        for key in keys:
            if key[0] in sources:
                # One that is not to be had is asked for again by the first record that names it.
                with suppress(RegistryError, NotATable):
                    schema = self._registries(sources[key[0]]).schema(key[1])
                    self._writers[key] = self._codec.writer(schema, key[1:])

    def format(self) -> Format:
        reader = self._codec.reader(self._state, self._writers)
        return RegistryFormat(self._codec, reader, self._addresses, dict(self._refused), self._taken)

    def grow(self, misfits: DataFrame, column: str) -> None:
        """Read the writer schemas of the payloads from the registries, and widen the columns by them.

        Raises:
            RegistryUnreachable: a registry does not answer.
        """
        job = names_job(self._codec, column)
        found = misfits.select("_source", column).mapInArrow(job, "source string, named string").distinct().collect()
        named = [(str(row.source), _as_key(json.loads(row.named))) for row in found]
        for source, of in sorted(named):
            key = self._addresses[source], *of
            try:
                writer = self._codec.writer(self._registries(source).schema(of[0]), of)
                self._widen(key, writer)
            except SchemaUnknown:
                self._refused[key] = f"names the schema {of[0]}, which the registry does not know"
            except NotATable as error:
                self._refused[key] = f"cannot be a row: {error}"

    def _widen(self, key: WriterKey, writer: Any) -> None:
        address, schema_id = key[:2]
        newest, state = self._newest.get(address), self._codec.state(writer)
        if self._state is None:
            self._state = state
        elif self._widens:
            is_newer = newest is None or schema_id > newest
            self._state = self._codec.merge(*((state, self._state) if is_newer else (self._state, state)))
        self._newest[address] = max(schema_id, newest or 0)
        self._writers[key] = writer
        self._refused.pop(key, None)

    def to_text(self) -> str | None:
        """Return the state, the newest id of each registry, and the known writer schemas."""
        kept = {"state": self._state, "newest": self._newest, "known": sorted(self._writers)}
        return None if self._state is None else json.dumps(kept)

    def defaults(self) -> Mapping[tuple[str, ...], Any]:
        return {} if self._state is None else self._codec.defaults(self._state)


def _as_key(named: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(one) if isinstance(one, list) else one for one in named)


def given_columns(kind: pa.DataType, *, taken: frozenset[str]) -> FixedColumns:
    return FixedColumns(JsonFormat(named(kind, taken=taken), drops=True))


BINARY_COLUMNS, TEXT_COLUMNS = FixedColumns(BinaryFormat()), FixedColumns(TextFormat())
