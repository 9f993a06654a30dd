"""Formats: from the bytes of keys and values to the columns of a typed table, on Spark's workers.

A payload is parsed to plain Python values. Where their kind is part of the table's they are its columns; a wider one is a misfit, for
which the table may grow.
"""

# ruff: noqa: ARG002 - not every format needs what all are given.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Context, Inexact, InvalidOperation, Subnormal
from functools import cached_property
from types import ModuleType
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from mirrorlake.config.schema import TableConfig
from mirrorlake.errors import SchemaUnknown
from mirrorlake.tables import avro, kinds, protobuf
from mirrorlake.tables.kinds import MAX_COLUMNS, NULL, TEXT, Kind
from mirrorlake.tables.registry import FRAME_BYTES, NotATable, SchemaRegistry, parse_schema_id

REGISTRY_FORMATS: dict[str, ModuleType] = {"avro": avro, "protobuf": protobuf}
Registries = Callable[[str], SchemaRegistry]
WriterKey = tuple[Any, ...]
"""A writer's schema: the source, its id in that one's registry, and of Protobuf the indexes of the message."""

_NO_FRAME = "has no schema registry's frame: it does not begin with the byte 0 and an id"
KEPT: dict[Literal["keys", "values"], str] = {"keys": "mirrorlake.key_type", "values": "mirrorlake.value_type"}
"""The table properties of what a table keeps of its keys and values."""
KEY = "_key"
COORDINATES = {
    "_source": pa.string(),
    "_topic": pa.string(),
    "_generation": pa.int32(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_timestamp": pa.timestamp("us", "UTC"),
}
PARTITION, PLACE = [*COORDINATES][:4], [*COORDINATES][:5]
OF_BATCH = {
    **dict.fromkeys(("_tombstone", "_filtered"), pa.bool_()),
    **dict.fromkeys(("_fault", "_misfit"), pa.string()),
    **dict.fromkeys(("_raw_key", "_raw_value"), pa.binary()),
}
RANK = "_rank"
RESERVED = frozenset({*COORDINATES, KEY, RANK, *OF_BATCH})
"""Names that no member of a value may have: of coordinates, and of what only a batch has."""


class DecodedPayloads(NamedTuple):
    """The columns of payloads, and by row why one has none: `faults` for good, `misfits` until the table is wider."""

    columns: Mapping[str, pa.Array]
    faults: dict[int, str]
    misfits: dict[int, str]


# Ten bytes name a number of a million digits.
_FRACTIONS = Context(prec=10_000, Emin=-400, Emax=400, traps=[InvalidOperation, Inexact, Subnormal])
_JSON, _EXACT_JSON = msgspec.json.Decoder(), msgspec.json.Decoder(float_hook=_FRACTIONS.create_decimal)


@dataclass(frozen=True, kw_only=True)
class Format:
    """The format of keys or of values, picklable for Spark's workers: texts, bytes, or JSON documents.

    Its columns are those of a kind: the members of objects if they are `spread`, else one of this `name`. No member has a name that
    is `taken`. Members without a column are left out where it `drops` them; else it is replaced by a wider one.
    """

    encoding: str
    kind: Kind
    name: str
    spread: bool = False
    taken: frozenset[str] = frozenset()
    drops: bool = False

    @property
    def may_grow(self) -> bool:
        return not self.drops or self.encoding in REGISTRY_FORMATS

    @property
    def kept(self) -> str | None:
        """The text that the table keeps of it, or None."""
        return json.dumps({"kind": self.kind}) if self.may_grow and self.kind != NULL else None

    @cached_property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns by name."""
        if (members := self._members) is not None:
            return {one.name: one.type for one in kinds.columns_of(members, self.taken).values()}
        type_ = kinds.column_type(self.kind)
        return {} if type_ == pa.null() else {self.name: type_}

    @property
    def leaves(self) -> dict[str, str]:
        """The SQL types of the columns, also of those within others, by path."""
        return {column: sql for column, sql in self.places.values() if sql}

    @cached_property
    def places(self) -> dict[tuple[str, ...], tuple[str, str]]:
        return kinds.leaves(self.kind, self.name if self._members is None else "", self.taken)

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:
        if self.encoding in ("text", "binary"):
            with suppress(pa.ArrowInvalid):
                return DecodedPayloads({self.name: payloads.cast(self.fields[self.name])}, {}, {})
        values, faults, misfits = self._values(payloads, sources)
        columns, odd = self._columns(values)
        for row, why in odd.items():
            if fault := self._fault(values[row]):
                faults[row] = fault
            elif why:
                misfits[row] = why
        bad = {*faults, *misfits}
        if odd.keys() & bad:
            columns, _ = self._columns([None if row in bad else value for row, value in enumerate(values)])
        return DecodedPayloads(columns, faults, misfits)

    def begun(self) -> Format:
        """Return the format for a new batch."""
        return self

    def look(self, payloads: pa.Array, sources: pa.Array) -> list[Any]:
        """Return the kinds or schemas that are new in payloads, as JSON values, for `grown`.

        Kinds that only add columns are merged apart from those that change columns of rows, so that none takes another along.
        """
        values, seen = self._values(payloads, sources)[0] if self.may_grow else (), list[Kind]()
        own_kinds = [kinds.kind_of(value) for value in values if value is not None and not self._fault(value)]
        of_side = dict.fromkeys((False, True), self.kind)
        for own in {msgspec.json.encode(own): own for own in own_kinds}.values():
            with suppress(NotATable):
                side = self._change(self._wider(self.kind, own)) != ""
                wider = self._wider(of_side[side], own)
                if wider != of_side[side]:
                    of_side[side] = wider
                    seen.append(own)
        return seen

    def grown(self, seen: Iterable[Any], registries: Registries, *, widens: bool, rebuilds: bool) -> Format:
        """Return the format that takes what was seen; with `widens` it may be wider, with `rebuilds` so that rows lie otherwise."""
        kind = self.kind
        for own in seen if widens or kind == NULL else ():
            with suppress(NotATable):
                kind = self._wider(kind, own, rebuilds=rebuilds)
        return replace(self, kind=kind)

    def is_rebuilt_for(self, wider: Format) -> bool:
        """Return whether rows of this format lie otherwise in the columns of a wider one."""
        return self._change(wider.kind) != ""

    @property
    def _members(self) -> dict[str, Kind] | None:
        return kinds.members_of(self.kind) if self.spread else None

    def _read(self, payload: bytes, source: str) -> Any:
        if self.encoding in ("text", "binary"):
            return payload.decode()
        if self.encoding == "json_schema":
            if parse_schema_id(payload) is None:
                raise ValueError(_NO_FRAME)
            payload = payload[FRAME_BYTES:]
        return (_EXACT_JSON if self.drops else _JSON).decode(payload)

    def _values(self, payloads: pa.Array, sources: pa.Array) -> tuple[list[Any], dict[int, str], dict[int, str]]:
        """Return the value of each payload, with faults and misfits."""
        values, faults, misfits = list[Any](), dict[int, str](), dict[int, str]()
        for row, (payload, source) in enumerate(zip(payloads.to_pylist(), sources.to_pylist(), strict=True)):
            value = None
            if payload is not None:
                try:
                    value = self._read(payload, source)
                except KeyError:
                    misfits[row] = "its schema is new to the table"
                except (ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError) as error:
                    faults[row] = _reason(error)
            values.append(value)
        return values, faults, misfits

    def _columns(self, values: Sequence[Any]) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Return the columns of values, and the odd ones: by row why it may not be in its columns."""
        builder = kinds.ColumnBuilder(drops=self.drops)
        whole = builder.column(self.kind, values, range(len(values)))
        if self.spread and self.kind == TEXT and not self.drops:
            # Where there are objects, their members are the columns.
            objects = (row for row, value in enumerate(values) if isinstance(value, dict))
            builder.odd |= dict.fromkeys(objects, "the value is an object, where the table has one column")
        columns = [whole] if self._members is None or not self.fields else whole.flatten()
        return dict(zip(self.fields, columns, strict=False)), builder.odd

    def _fault(self, value: Any) -> str:
        """Return why the table will never have columns for a value, or ""."""
        if kinds.is_too_deep(value):
            return f"is nested more than {kinds.MAX_DEPTH} levels deep"
        if not self.drops and kinds.count_columns(kinds.kind_of(value)) > MAX_COLUMNS:
            return f"has more than {MAX_COLUMNS:,} columns of its own"
        if self._members is not None and not isinstance(value, dict):
            return f"is {kinds.value_name(value)}, where the table has members"
        return ""

    def _change(self, wider: Kind) -> str:
        """Return how rows lie otherwise in the columns of a wider kind, or "": a new member alone only adds a column."""
        later = replace(self, kind=wider).places
        changed = (leaf for path, leaf in self.places.items() if later.get(path) != leaf)
        return next((f"{column} would no longer be {sql or 'empty'}" for column, sql in changed), "")

    def _wider(self, kind: Kind, own: Kind, *, adds: bool = True, rebuilds: bool = True) -> Kind:
        """Return a kind that also holds another one, or raise NotATable.

        Without `adds` or `rebuilds` the rows of the table lie as they do. Where some values are objects and spread, no others are rows.
        """
        mine, more = (kinds.members_of(one) if self.spread else None for one in (kind, own))
        if (mine is None) == (more is None):
            wider = kinds.merged(kind, own, adds=adds)
        elif mine is None:
            wider = own
        else:
            raise NotATable("its schema is no record, and the table has members")
        if kinds.count_columns(wider) > MAX_COLUMNS:
            raise NotATable(f"the table would have more than {MAX_COLUMNS:,} columns")
        if not (adds and rebuilds) and (change := self._change(wider)):
            raise NotATable(change)
        return wider


@dataclass(frozen=True, kw_only=True)
class RegistryFormat(Format):
    """Payloads whose frame names a schema of a registry; each is read with the schema that it names.

    `writers` have what the parser of each known schema needs, `refused` why the records of others are no rows; those in `unknown` may
    be registered later.
    """

    writers: Mapping[WriterKey, Any] = field(default_factory=dict)
    refused: Mapping[WriterKey, str] = field(default_factory=dict)
    unknown: frozenset[WriterKey] = frozenset()
    drops: bool = True

    @property
    def kept(self) -> str | None:
        return None if self.kind == NULL else json.dumps({"kind": self.kind, "known": sorted(self.writers)})

    def begun(self) -> Format:
        refused = {key: why for key, why in self.refused.items() if key not in self.unknown}
        return replace(self, refused=refused, unknown=frozenset()) if self.unknown else self

    def look(self, payloads: pa.Array, sources: pa.Array) -> list[Any]:
        """Return the schemas that payloads name, each with its source."""
        pairs = zip(payloads.to_pylist(), sources.to_pylist(), strict=True)
        found = ((source, self._codec.locate(payload)) for payload, source in pairs if payload is not None)
        return sorted({(source, *located[0]) for source, located in found if located is not None})

    def grown(self, seen: Iterable[Any], registries: Registries, *, widens: bool, rebuilds: bool) -> Format:
        kind, writers, refused, unknown = self.kind, dict(self.writers), dict(self.refused), set(self.unknown)
        # Without new columns, a schema is read into those that are there.
        adds = widens or kind == NULL
        for key in sorted(set(map(_as_key, seen))):
            source, *of = key
            try:
                own, made = self._codec.compiled(registries(source).schema(of[0]), of)
                kind = self._wider(kind, own, adds=adds, rebuilds=rebuilds)
                writers[key] = made
            except SchemaUnknown:
                refused[key] = f"names the schema {of[0]}, which the registry does not know"
                unknown.add(key)
            except NotATable as error:
                refused[key] = f"cannot be a row: {error}"
        return replace(self, kind=kind, writers=writers, refused=refused, unknown=frozenset(unknown))

    @property
    def _codec(self) -> ModuleType:
        return REGISTRY_FORMATS[self.encoding]

    @cached_property
    def _parsers(self) -> dict[WriterKey, Callable[[bytes], Any]]:
        return {key: self._codec.parser(made) for key, made in self.writers.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_parsers"}

    def _read(self, payload: bytes, source: str) -> Any:
        located = self._codec.locate(payload)
        if located is None:
            raise ValueError(_NO_FRAME)
        named, begin = located
        key = source, *named
        if key in self.refused:
            raise ValueError(self.refused[key])
        parse = self._parsers[key]
        try:
            return parse(payload[begin:])
        except ValueError as error:
            raise ValueError(f"is not of its schema {named[0]}: {error}") from None


def _as_key(named: Any) -> Any:
    return tuple(map(_as_key, named)) if isinstance(named, list) else named


def _reason(error: Exception) -> str:
    """Return why a payload is not of its format, without a part of it."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8: byte {error.start} is invalid"
    if isinstance(error, RecursionError):
        return "is not JSON: it is nested too deep"
    if isinstance(error, ArithmeticError):
        return "is not JSON: a number in it is out of range"
    is_json = isinstance(error, msgspec.MsgspecError)
    return f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}" if is_json else str(error)


def format_of(
    config: TableConfig, of: Literal["keys", "values"], kept: str | None, registries: Registries, sources: Iterable[str]
) -> Format:
    """Return the format of a table's keys or values; `kept` is what the table has kept of it."""
    given, is_value = getattr(config, of), of == "values"
    is_given, is_plain = is_value and not config.is_inferred, given in ("text", "binary")
    known = json.loads(kept or "{}")
    how = {
        "encoding": given,
        "kind": kinds.kind_of_type(config.given_type) if is_given else given if is_plain else known.get("kind", NULL),
        "name": "value" if is_value else KEY,
        "spread": is_value,
        "taken": frozenset(RESERVED | config.columns.keys()) if is_value else frozenset(),
    }
    if given not in REGISTRY_FORMATS:
        return Format(**how, drops=is_given or is_plain)
    writers = (key for key in known.get("known", ()) if key[0] in sources)
    return RegistryFormat(**how).grown(writers, registries, widens=False, rebuilds=False)
