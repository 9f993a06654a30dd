"""Formats: from the bytes of keys and values to the columns of a typed table, on Spark's workers.

A payload is parsed to plain Python values. Where their kind is part of the table's they are its columns; a wider one is a misfit, for
which the table may grow.
"""

# ruff: noqa: ARG002 - not every format needs what all are given.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

import msgspec
import pyarrow as pa

from mirrorlake.config.schema import TableConfig
from mirrorlake.errors import SchemaUnknown
from mirrorlake.tables import avro, protobuf
from mirrorlake.tables.columns import Columns, Unequal
from mirrorlake.tables.given import NotGiven, exact_fraction, given_value, is_too_deep, value_name
from mirrorlake.tables.kinds import (
    MAX_COLUMNS,
    MAX_DEPTH,
    MEMBERS,
    NULL,
    SCALARS,
    Kind,
    TooDeep,
    column_names,
    column_type,
    common_part,
    count_columns,
    is_object,
    kind_of,
    merged,
    merged_root,
    rebuilds,
    sql_name,
)
from mirrorlake.tables.registry import FRAME_BYTES, NotATable, SchemaRegistry, parse_schema_id

REGISTRY_FORMATS: dict[str, ModuleType] = {"avro": avro, "protobuf": protobuf}
Registries = Callable[[str], SchemaRegistry]
WriterKey = tuple[Any, ...]
"""A writer's schema: the registry's address, its id there, and of Protobuf the indexes of the message."""

_JSON, _EXACT_JSON = msgspec.json.Decoder(), msgspec.json.Decoder(float_hook=exact_fraction)
_NO_FRAME = "has no schema registry's frame: it does not begin with the byte 0 and an id"
# Of documents whose members are data, Arrow's cells grow with the square of their number.
_PART = 1_000
_NO_COLUMN = "holds a value that its column does not take"
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
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
TOMBSTONE, FILTERED, FAULT, MISFIT = "_tombstone", "_filtered", "_fault", "_misfit"
RAW_KEY, RAW_VALUE = "_raw_key", "_raw_value"
OF_BATCH = {
    **dict.fromkeys((TOMBSTONE, FILTERED), pa.bool_()),
    **dict.fromkeys((FAULT, MISFIT), pa.string()),
    **dict.fromkeys((RAW_KEY, RAW_VALUE), pa.binary()),
}
RANK = "_rank"
RESERVED = frozenset({*COORDINATES, KEY, RANK, *OF_BATCH})
"""Names that no member of a value may have: of coordinates, and of what only a batch has."""
# What Arrow raises for a value that a type does not take, as a time after the year 9999.
_NO_VALUE = (pa.ArrowException, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class DecodedPayloads:
    """The columns of payloads, and by row why one has none: `faults` for good, `misfits` until the table is wider."""

    columns: Mapping[str, pa.Array]
    faults: dict[int, str] = field(default_factory=dict)
    misfits: dict[int, str] = field(default_factory=dict)


class Format:
    """The format of keys or of values, picklable for Spark's workers; those whose columns records decide are replaced by wider ones."""

    may_grow = False
    kept: str | None = None
    """The text that the table keeps of it, or None."""

    @property
    def fields(self) -> dict[str, pa.DataType]:
        """The columns by name."""
        raise NotImplementedError

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:
        raise NotImplementedError

    def begun(self) -> Format:
        """Return the format for a new batch."""
        return self

    def look(self, payloads: pa.Array, sources: pa.Array) -> list[Any]:
        """Return what `grown` needs from payloads, as JSON values."""
        return []

    def grown(self, seen: Iterable[Any], registries: Registries, *, widens: bool, rebuilds: bool) -> Format:
        """Return the format that takes what was seen; with `widens` it may be wider, with `rebuilds` so that rows lie otherwise.

        Raises:
            RegistryUnreachable: a registry does not answer.
        """
        return self

    def is_rebuilt_for(self, wider: Format) -> bool:
        """Return whether rows of this format lie otherwise in the columns of a wider one."""
        return False


@dataclass(frozen=True)
class PlainFormat(Format):
    """Payloads as texts or bytes, in one column."""

    name: str
    kind: pa.DataType

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {self.name: self.kind}

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:
        try:
            return DecodedPayloads({self.name: payloads.cast(self.kind)})
        except pa.ArrowInvalid:
            values, faults = _each(payloads, bytes.decode)
        return DecodedPayloads({self.name: pa.array(values, self.kind)}, faults)


@dataclass(frozen=True)
class GivenFormat(Format):
    """JSON documents in columns that a person gave."""

    kind: pa.StructType
    taken: frozenset[str]
    is_framed: bool = False

    @property
    def fields(self) -> dict[str, pa.DataType]:
        names = column_names([one.name for one in self.kind], self.taken)
        return {names[one.name]: one.type for one in self.kind}

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:
        values, faults = _each(payloads, _parser(_EXACT_JSON, is_framed=self.is_framed))
        misfits = dict[int, str]()
        for row, value in enumerate(values):
            if is_too_deep(value):
                faults[row], values[row] = _TOO_DEEP, None
                continue
            try:
                values[row] = given_value(value, self.kind)
            except NotGiven as error:
                misfits[row], values[row] = str(error), None
        columns = zip(self.fields, pa.array(values, self.kind).flatten(), strict=True)
        return DecodedPayloads(dict(columns), faults, misfits)


class GrowingFormat(Format):
    """A format whose columns follow from the kinds of its records."""

    columns: Columns
    may_grow = True

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return self.columns.fields

    def is_rebuilt_for(self, wider: Format) -> bool:
        return isinstance(wider, GrowingFormat) and self.columns.is_rebuilt_for(wider.columns.kind)

    @property
    def _merge(self) -> Callable[[Kind, Kind], Kind]:
        return merged_root if self.columns.spread else merged


@dataclass(frozen=True)
class JsonFormat(GrowingFormat):
    """JSON documents; `is_framed` after a registry's frame, as serializers of JSON Schema write them."""

    columns: Columns
    is_framed: bool = False

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:
        documents, faults = self._documents(payloads)
        misfits, verdicts, parts = dict[int, str](), dict[bytes, str](), list[dict[str, pa.Array]]()
        for first in range(0, max(len(documents), 1), _PART):
            part = documents[first : first + _PART]
            try:
                # Arrow infers the type of many values at once, which takes a tenth of the time of a look at each.
                found = pa.array(part)
                if _hides_booleans(found.type, part):
                    raise Unequal
                parts.append(self.columns.of_array(found))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, Unequal):
                for row, document in enumerate(part):
                    own, fault = self._judged(document)
                    if fault:
                        faults[first + row], part[row] = fault, None
                    elif misfit := self._cached(verdicts, own):
                        misfits[first + row], part[row] = misfit, None
                parts.append(self.columns.of_values(part))
        return DecodedPayloads(
            {name: pa.concat_arrays([one[name] for one in parts]) for name in self.fields}, faults, misfits
        )

    @property
    def kept(self) -> str | None:  # type: ignore[override]
        return None if self.columns.kind == NULL else json.dumps({"kind": self.columns.kind})

    def look(self, payloads: pa.Array, sources: pa.Array) -> list[Any]:
        """Return the kinds of documents that bring something new, apart for columns that are added and that lie otherwise."""
        known, seen = self.columns.kind, list[Kind]()
        of_side = dict.fromkeys((False, True), known)
        judged = map(self._judged, self._documents(payloads)[0])
        for own in {msgspec.json.encode(own): own for own, fault in judged if not fault}.values():
            alone = self._merge(known, own)
            if count_columns(alone) > MAX_COLUMNS or self._merge(of_side[False], own) == of_side[False]:
                continue
            side = self.columns.is_rebuilt_for(alone)
            wider = self._merge(of_side[side], own)
            if wider != of_side[side] and count_columns(wider) <= MAX_COLUMNS:
                of_side[side] = wider
                seen.append(own)
        return seen

    def grown(self, seen: Iterable[Any], registries: Registries, *, widens: bool, rebuilds: bool) -> Format:
        kind = self.columns.kind
        for own in seen if widens or kind == NULL else ():
            wider = self._merge(kind, own)
            if count_columns(wider) <= MAX_COLUMNS and (rebuilds or not self.columns.is_rebuilt_for(wider)):
                kind = wider
        return replace(self, columns=replace(self.columns, kind=kind))

    def _documents(self, payloads: pa.Array) -> tuple[list[Any], dict[int, str]]:
        return _each(payloads, _parser(_JSON, is_framed=self.is_framed))

    def _judged(self, document: Any) -> tuple[Kind, str]:
        """Return a document's kind, and why no column of any table holds it, or ""."""
        try:
            own = kind_of(document)
        except TooDeep:
            return NULL, _TOO_DEEP
        if count_columns(own) > MAX_COLUMNS:
            return own, f"has more than {MAX_COLUMNS:,} columns of its own"
        if self.columns.members is not None and own != NULL and not is_object(own):
            return own, f"is {value_name(document)}, where the table has members"
        return own, ""

    def _cached(self, verdicts: dict[bytes, str], own: Kind) -> str:
        """Return where a kind differs from the table's, or "" if that holds it; most records are of few kinds."""
        text, known = msgspec.json.encode(own), self.columns.kind
        if text not in verdicts:
            verdicts[text] = "" if self._merge(known, own) == known else difference(own, known, ())
        return verdicts[text]


@dataclass(frozen=True)
class RegistryFormat(GrowingFormat):
    """Payloads whose frame names a schema of a registry; each is read with the schema that it names.

    `writers` have the kind of each known schema and what its parser needs, `refused` why the records of others are no rows; those in
    `unknown` may be registered later.
    """

    name: str
    columns: Columns
    addresses: Mapping[str, str]
    writers: Mapping[WriterKey, tuple[Kind, Any]] = field(default_factory=dict)
    refused: Mapping[WriterKey, str] = field(default_factory=dict)
    unknown: frozenset[WriterKey] = frozenset()

    @property
    def kept(self) -> str | None:  # type: ignore[override]
        return (
            None
            if self.columns.kind == NULL
            else json.dumps({"kind": self.columns.kind, "known": sorted(self.writers)})
        )

    def begun(self) -> Format:
        refused = {key: why for key, why in self.refused.items() if key not in self.unknown}
        return replace(self, refused=refused, unknown=frozenset()) if self.unknown else self

    def look(self, payloads: pa.Array, sources: pa.Array) -> list[Any]:
        """Return the schemas that payloads name, each with its source."""
        locate, pairs = REGISTRY_FORMATS[self.name].locate, zip(sources.to_pylist(), payloads.to_pylist(), strict=True)
        found = ((source, locate(payload)) for source, payload in pairs if payload is not None)
        return sorted({(source, located[0]) for source, located in found if located is not None})

    def grown(self, seen: Iterable[Any], registries: Registries, *, widens: bool, rebuilds: bool) -> Format:
        whole, writers, refused, unknown = self.columns.kind, dict(self.writers), dict(self.refused), set(self.unknown)
        for source, of in sorted(set(map(_as_key, seen))):
            key = self.addresses[source], *of
            try:
                kind, made = _compiled(self.name, registries(source), key)
                # Without new columns, a schema is read into those that are there.
                may_widen = widens or self.columns.kind == NULL
                if self.columns.spread and is_object(whole) and not is_object(kind):
                    raise NotATable("its schema is no record, and the table has members")
                wider = self._merge(whole, kind if may_widen else common_part(kind, whole))
                if count_columns(wider) > MAX_COLUMNS:
                    raise NotATable(f"the table would have more than {MAX_COLUMNS:,} columns")
                if wider != whole and not (may_widen and (rebuilds or not self.columns.is_rebuilt_for(wider))):
                    raise NotATable(difference(kind, whole, ()))
                whole, writers[key] = wider, (kind, made)
            except SchemaUnknown:
                refused[key] = f"names the schema {of[0]}, which the registry does not know"
                unknown.add(key)
            except NotATable as error:
                refused[key] = f"cannot be a row: {error}"
        columns = replace(self.columns, kind=whole)
        return replace(self, columns=columns, writers=writers, refused=refused, unknown=frozenset(unknown))

    @cached_property
    def _parsers(self) -> dict[WriterKey, tuple[bool, Callable[[bytes], Any]]]:
        """The parser of each known schema, with whether its values lie as in the table's columns."""
        format_, whole = REGISTRY_FORMATS[self.name], self.columns.kind
        return {
            key: (
                format_.is_plain(made) and merged(whole, own) == whole and not rebuilds(own, whole),
                format_.parser(made),
            )
            for key, (own, made) in self.writers.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_parsers"}

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:
        locate, parsers, lie_same = REGISTRY_FORMATS[self.name].locate, self._parsers, True
        values, faults, misfits = list[Any](), dict[int, str](), dict[int, str]()
        for row, (payload, source) in enumerate(zip(payloads.to_pylist(), sources.to_pylist(), strict=True)):
            value = None
            if payload is not None:
                located = locate(payload)
                key = () if located is None else (self.addresses[source], *located[0])
                if located is None:
                    faults[row] = _NO_FRAME
                elif key in self.refused:
                    faults[row] = self.refused[key]
                elif key not in parsers:
                    misfits[row] = f"its schema {located[0][0]} is new to the table"
                else:
                    lies_same, parse = parsers[key]
                    lie_same = lie_same and lies_same
                    try:
                        value = parse(payload[located[1] :])
                    except ValueError as error:
                        faults[row] = f"is not of its schema {key[1]}: {error}"
            values.append(value)
        fill = self.columns.of_same if lie_same else self.columns.of_values
        try:
            return DecodedPayloads(fill(values), faults, misfits)
        except _NO_VALUE:
            pass
        for row, value in enumerate(values):
            try:
                fill([value])
            except _NO_VALUE:
                faults[row], values[row] = _NO_COLUMN, None
        return DecodedPayloads(fill(values), faults, misfits)


def _compiled(name: str, registry: SchemaRegistry, key: WriterKey) -> tuple[Kind, Any]:
    kind, made = REGISTRY_FORMATS[name].compiled(registry.schema(key[1]), key[1:])
    return kind, made


def _as_key(named: Any) -> Any:
    return tuple(map(_as_key, named)) if isinstance(named, list) else named


def _hides_booleans(type_: pa.DataType, values: list[Any]) -> bool:
    """Return whether values may have true or false where Arrow infers fractions: it takes them for 1.0 and 0.0."""
    if pa.types.is_floating(type_):
        return bool in {*map(type, values)}
    if pa.types.is_struct(type_):
        # A look at the values of a member takes 0.1 CPU-s a million.
        inner = [one for one in type_ if "double" in str(one.type)]
        return any(
            _hides_booleans(one.type, [None if value is None else value.get(one.name) for value in values])
            for one in inner
        )
    is_list = pa.types.is_list(type_) and "double" in str(type_)
    return is_list and _hides_booleans(type_.value_type, [one for value in values if value for one in value])


def _each(payloads: pa.Array, parse: Callable[[bytes], Any]) -> tuple[list[Any], dict[int, str]]:
    """Parse each payload; return the values, and why others have none, by row."""
    values, faults = list[Any](), dict[int, str]()
    for row, payload in enumerate(payloads.to_pylist()):
        value = None
        if payload is not None:
            try:
                value = parse(payload)
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                faults[row] = _reason(error)
        values.append(value)
    return values, faults


def _reason(error: Exception) -> str:
    """Return why a payload is not of its format, without a part of it."""
    match error:
        case UnicodeDecodeError():
            return f"is not UTF-8: byte {error.start} is invalid"
        case RecursionError():
            return "is not JSON: it is nested too deep"
        case msgspec.MsgspecError():
            return f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}"
    return str(error)


def _parser(decoder: Any, *, is_framed: bool) -> Callable[[bytes], Any]:
    def framed(payload: bytes) -> Any:
        if parse_schema_id(payload) is None:
            raise ValueError(_NO_FRAME)
        return decoder.decode(payload[FRAME_BYTES:])

    return framed if is_framed else decoder.decode


def difference(own: Kind, known: Kind, path: tuple[str, ...]) -> str:
    """Say where a kind is not part of a known one."""
    if isinstance(own, dict) and isinstance(known, dict) and own.keys() == known.keys():
        [shape] = own
        if shape != MEMBERS:
            return difference(own[shape], known[shape], (*path, "[]"))
        for name, kind in own[MEMBERS].items():
            if name not in known[MEMBERS]:
                return f"{'.'.join((*path, name))} is no column, and the table takes no new ones"
            if merged(known[MEMBERS][name], kind) != known[MEMBERS][name]:
                return difference(kind, known[MEMBERS][name], (*path, name))
    place = ".".join(path).replace(".[]", "[]") or "the value"
    called = _CALLED.get(own if isinstance(own, str) else next(iter(own)), own)
    if isinstance(known, dict):
        return f"{place} is {called}, where the table has {_CALLED[next(iter(known))]}"
    wanted = "and the table has no column for it" if known == NULL else f"which is not {sql_name(column_type(known))}"
    return f"{place} is {called}, {wanted}"


_CALLED = {"boolean": "true or false", **dict.fromkeys(("int", "long", "double"), "a number")}
_CALLED |= {"list": "a list", "map": "a map", "members": "members"}


def format_of(
    config: TableConfig, of: Literal["keys", "values"], kept: str | None, registries: Registries, sources: Iterable[str]
) -> Format:
    """Return the format of a table's keys or values; `kept` is what the table has kept of it."""
    given, is_value = getattr(config, of), of == "values"
    name, taken = "value" if is_value else KEY, frozenset(RESERVED | config.columns.keys() if is_value else ())
    if given in ("text", "binary"):
        return PlainFormat(name, SCALARS[given])
    if is_value and not config.is_inferred:
        return GivenFormat(config.given_type, taken, is_framed=given == "json_schema")
    known = json.loads(kept or "{}")
    columns = Columns(known.get("kind", NULL), name, spread=is_value, taken=taken)
    if given not in REGISTRY_FORMATS:
        return JsonFormat(columns, is_framed=given == "json_schema")
    addresses, writers = {source: registries(source).url for source in sources}, {}
    at = {address: source for source, address in addresses.items()}
    for key in map(_as_key, known.get("known", ())):
        with suppress(SchemaUnknown, NotATable):
            if key[0] in at:
                writers[key] = _compiled(given, registries(at[key[0]]), key)
    return RegistryFormat(given, columns, addresses, writers)
