"""Schemas of a registry that speaks Confluent's API, read by confluent-kafka's own client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from mirrorlake.errors import RegistryError, RegistryRefused, RegistryUnreachable, SchemaUnknown, UsageError

FRAME_BYTES = 5
"""The bytes that Confluent's serializers put before a payload: 0 and the schema's id; Protobuf's message indexes follow."""

# A registry that is away shows at once: its callers try again.
_DEFAULTS = {"timeout": 10.0, "max.retries": 1.0, "retries.wait.ms": 200.0, "retries.max.wait.ms": 2_000.0}
_Failure = tuple[type[RegistryError], str]
"""The class that is raised for an error of the client, and the remedy."""
_REFUSED: _Failure = RegistryRefused, "check the login under registry.client, and what it may do"
_AWAY: _Failure = RegistryUnreachable, "check registry.url, and that it runs"
_UNKNOWN: _Failure = SchemaUnknown, "register it there"
_OTHER: _Failure = RegistryError, "check that registry.url is that of Confluent's API (Apicurio: .../apis/ccompat/v7)"
# By status of HTTP or, where that says less, by code of the registry.
_ERRORS: dict[int, _Failure] = {
    **dict.fromkeys((401, 403), _REFUSED),
    **dict.fromkeys((408, 429, *range(500, 600)), _AWAY),
    **dict.fromkeys((40401, 40402, 40403), _UNKNOWN),
}


class NotATable(Exception):
    """A schema that cannot be a table; the text says why."""


def parse_schema_id(data: bytes | None) -> int | None:
    """Return the id of the schema that a value or a key names, or None if it begins with no frame."""
    if not data or data[0] != 0 or len(data) < FRAME_BYTES:
        return None
    return int.from_bytes(data[1:FRAME_BYTES], "big")


class Schema(NamedTuple):
    """The text of a schema, and by name the texts that it refers to, each after those that it needs itself."""

    text: str
    references: Mapping[str, str]


class SchemaRegistry:
    """One registry, by resolved options (`RegistryConfig.options()`); `name` is what messages call it.

    Its client remembers each schema for ever, since an id never changes.
    """

    def __init__(self, options: Mapping[str, str], *, name: str) -> None:
        self._title = f"the schema registry {name} at {options['url']}"
        given = {key: float(text) if key in _DEFAULTS else text for key, text in options.items()}
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            self._client = SchemaRegistryClient({**_DEFAULTS, **given})
        except (ImportError, OSError, ValueError) as error:
            raise UsageError(
                f"the client of the schema registry cannot be made: {error}",
                consequence="no registry was asked",
                remedy="pip install 'mirrorlake[tables]'"
                if isinstance(error, ImportError)
                else "check registry.client",
            ) from error

    def schema(self, schema_id: int) -> Schema:
        """Return the schema of an id, with its references."""
        schema = self._ask(f"schema of id {schema_id}", partial(self._client.get_schema, schema_id), schema_id)
        return Schema(schema.schema_str or "", dict(self._references(schema, set())))

    def _references(self, schema: Any, met: set[str]) -> Iterator[tuple[str, str]]:
        """Yield name and text of each schema that one refers to, once, after those that it needs itself."""
        for reference in schema.references or ():
            if reference.name not in met:
                met.add(reference.name)
                ask = partial(self._client.get_version, reference.subject, reference.version, deleted=True)
                answer = self._ask(f"{reference.subject} version {reference.version}, which a schema refers to", ask)
                yield from self._references(answer.schema, met)
                yield reference.name, answer.schema.schema_str or ""

    def _ask(self, what: str, ask: Callable[[], Any], schema_id: int | None = None) -> Any:
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            return ask()
        except Exception as error:
            # No answer, or that of a proxy.
            kind, remedy = _AWAY
            if isinstance(error, OAuthTokenError):
                kind, remedy = _REFUSED
            elif isinstance(error, SchemaRegistryError):
                kind, remedy = _ERRORS.get(error.http_status_code) or _ERRORS.get(error.error_code, _OTHER)
            # A schema that refers to an unknown one is no unknown id.
            kind = RegistryError if kind is SchemaUnknown and schema_id is None else kind
            cause = f"{self._title} gave no {what}: {error!r}"
            raise kind(cause, consequence="nothing was read", remedy=remedy, schema_id=schema_id) from error
