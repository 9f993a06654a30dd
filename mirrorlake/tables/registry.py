"""Schemas of a registry that speaks Confluent's API, read by confluent-kafka's own client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from mirrorlake.errors import RegistryError, RegistryRefused, RegistryUnreachable, SchemaUnknown, UsageError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

FRAME_BYTES = 5
"""The bytes that Confluent's serializers put before a payload: 0 and the schema's id; Protobuf's message indexes follow."""

# A registry that is away shows at once: its callers try again.
_DEFAULTS = {"timeout": 10.0, "max.retries": 1.0, "retries.wait.ms": 200.0, "retries.max.wait.ms": 2_000.0}
_UNKNOWN_CODES = {40401, 40402, 40403}
_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_AWAY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
# An id that is not known now may be registered in a moment.
_UNKNOWN_FOR_S = 10.0
# Confluent's registry lets no schema refer to itself; another one shall not hang a reader.
_MAX_DEPTH = 100


class NotATable(Exception):
    """A schema that cannot be a table; the text says why."""


def parse_schema_id(data: bytes | None) -> int | None:
    """Return the id of the schema that a value or a key names, or None if it begins with no frame."""
    if not data or data[0] != 0 or len(data) < FRAME_BYTES:
        return None
    return int.from_bytes(data[1:FRAME_BYTES], "big")


@dataclass(frozen=True, slots=True)
class Reference:
    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """One schema: its id, its kind (`AVRO`, `PROTOBUF` or `JSON`), its text, and the schemas that the text refers to."""

    schema_id: int | None
    kind: str
    text: str
    references: tuple[Reference, ...] = ()

    def all_references(self) -> list[Reference]:
        """Return each schema that this one needs, once, after those that it needs itself."""
        found: dict[str, Reference] = {}
        for reference in self.references:
            for one in (*reference.schema.all_references(), reference):
                found.setdefault(one.name, one)
        return [*found.values()]


class SchemaRegistry:
    """One registry. It remembers each schema for ever, since an id never changes, and an unknown id for ten seconds.

    It is made from resolved options (`RegistryConfig.options()`). `name` is what messages call it, such as the alias of its cluster.
    """

    def __init__(
        self, options: Mapping[str, str], *, name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.url = options["url"]
        self.name = name
        self.client = _make_client(options)
        self._title = " ".join(filter(None, ("the schema registry", name, "at", self.url)))
        self._clock = clock
        self._schemas: dict[int, Schema] = {}
        self._unknown: dict[int, tuple[float, SchemaUnknown]] = {}

    def schema(self, schema_id: int) -> Schema:
        """Return the schema of an id, with its references.

        Raises:
            SchemaUnknown: the registry has no such id.
            RegistryUnreachable: it does not answer now.
            RegistryRefused: it refuses the login.
            RegistryError: it answers with something else.
        """
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        until, error = self._unknown.get(schema_id, (0.0, None))
        if error is not None and self._clock() < until:
            raise error
        try:
            with self._translating(f"read the schema of id {schema_id}", schema_id):
                raw = self.client.get_schema(schema_id)
        except SchemaUnknown as unknown:
            self._unknown[schema_id] = (self._clock() + _UNKNOWN_FOR_S, unknown)
            raise
        self._schemas[schema_id] = self._resolved(schema_id, raw, 0)
        return self._schemas[schema_id]

    def _resolved(self, schema_id: int | None, raw: Any, depth: int) -> Schema:
        if depth > _MAX_DEPTH:
            raise RegistryError(
                f"{self._title} has a schema whose references go deeper than {_MAX_DEPTH}",
                consequence="it was not read",
                remedy="look for schemas that refer to themselves",
            )
        references = []
        for reference in raw.references or ():
            version = f"{reference.subject} version {reference.version}"
            try:
                with self._translating(f"read {version}"):
                    answer = self.client.get_version(reference.subject, int(reference.version), deleted=True)
            except SchemaUnknown as error:
                raise RegistryError(
                    f"{self._title} has a schema that refers to {version}, which it does not know",
                    consequence="it was not read",
                    remedy=f"register {version} there again",
                ) from error
            references.append(
                Reference(str(reference.name), self._resolved(answer.schema_id, answer.schema, depth + 1))
            )
        return Schema(schema_id, raw.schema_type or "AVRO", raw.schema_str or "", tuple(references))

    @contextmanager
    def _translating(self, doing: str, schema_id: int | None = None) -> Iterator[None]:
        """Raise an error of the client as one of mirrorlake; `doing` follows "could not"."""
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            yield
        except SchemaRegistryError as error:
            raise self._translated(error, doing, schema_id) from error
        except OAuthTokenError as error:
            raise self._refused(f"no token can be had ({error})", doing) from error
        except Exception as error:
            # The class is that of httpx or httpx2, by the version of confluent-kafka.
            if any(base.__name__ == "TransportError" for base in type(error).__mro__):
                raise self._away(str(error) or type(error).__name__, doing) from error
            if isinstance(error, ValueError):
                # Not JSON: a proxy or another server answers in its place.
                raise self._away("something else answers at its address", doing) from error
            raise

    def _translated(self, error: Any, doing: str, schema_id: int | None) -> RegistryError:
        status = error.http_status_code
        problem = f"{error.error_message} ({status}, {error.error_code})"
        if status in _REFUSED:
            return self._refused(problem, doing)
        if status in _AWAY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._away(problem, doing)
        if error.error_code in _UNKNOWN_CODES:
            return SchemaUnknown(
                f"{self._title} could not {doing}: it does not know it",
                consequence="nothing was read",
                remedy="register it there",
                schema_id=schema_id,
            )
        return RegistryError(
            f"{self._title} could not {doing}: {problem}",
            consequence="the step did not finish",
            remedy="check that the address is that of Confluent's API (Apicurio: .../apis/ccompat/v7)"
            if status == HTTPStatus.NOT_FOUND
            else "mend what it names, and run the same command again",
        )

    def _refused(self, problem: str, doing: str) -> RegistryRefused:
        return RegistryRefused(
            f"{self._title} refuses to {doing}: {problem}",
            consequence="nothing was changed by this step",
            remedy="check the login under registry.client, and what it may do",
        )

    def _away(self, problem: str, doing: str) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"{self._title} does not answer while trying to {doing}: {problem}",
            consequence="the step did not finish",
            remedy="check registry.url, and that it runs",
        )


def _make_client(options: Mapping[str, str]) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise UsageError(
            f"a client of schema registries needs a package that is not installed ({error.name})",
            consequence="no registry was asked",
            remedy="pip install 'mirrorlake[tables]'",
        ) from error
    given = {key: float(text) if key in _DEFAULTS else text for key, text in options.items()}
    try:
        return SchemaRegistryClient({**_DEFAULTS, **given})
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the client of the schema registry refuses its options: {error}",
            consequence="no registry was asked",
            remedy="check registry.client: names, and files of TLS",
        ) from error
