"""Read schemas from a registry that speaks Confluent's API, by confluent-kafka's own client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from mirrorlake.errors import RegistryError, RegistryRefused, RegistryUnreachable, SchemaUnknown, UsageError
from mirrorlake.schemas.schema import Reference, Schema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

# A registry that is away shows at once: who asks tries again by himself.
_DEFAULTS = {"timeout": 10.0, "max.retries": 1.0, "retries.wait.ms": 200.0, "retries.max.wait.ms": 2_000.0}
_UNKNOWN_CODES = {40401, 40402, 40403}
_AWAY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
# An id that is not known now may be registered in a moment.
_UNKNOWN_FOR_S = 10.0
# Confluent's registry lets no schema refer to itself; another one shall not hang a reader.
_MAX_DEPTH = 100


class SchemaRegistry:
    """One registry. It remembers each schema for ever, since an id never changes, and an unknown id for ten seconds.

    It is made from resolved options (`RegistryConfig.options()`), so it may be made again in a worker of Spark. `name` is what
    messages call it, such as the alias of its cluster.
    """

    def __init__(
        self, options: Mapping[str, str], *, name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.url = options["url"]
        self.name = name
        self._title = f"the schema registry {name}".rstrip()
        self.options = dict(options)
        self._clock = clock
        self._schemas: dict[int, Schema] = {}
        self._unknown: dict[int, tuple[float, SchemaUnknown]] = {}
        self.client = _make_client(options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_registry, (self.options, self.name)

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
            with self.translating(f"read the schema of id {schema_id}", schema_id=schema_id):
                raw = self.client.get_schema(schema_id)
            schema = self._resolved(schema_id, raw, 0)
        except SchemaUnknown as unknown:
            self._unknown[schema_id] = (self._clock() + _UNKNOWN_FOR_S, unknown)
            raise
        self._schemas[schema_id] = schema
        self._unknown.pop(schema_id, None)
        return schema

    def _resolved(self, schema_id: int | None, raw: Any, depth: int) -> Schema:
        if depth > _MAX_DEPTH:
            raise RegistryError(
                f"{self._title} at {self.url} has a schema whose references go deeper than {_MAX_DEPTH}",
                consequence="it was not read",
                remedy="look for schemas that refer to themselves",
            )
        references = []
        for one in raw.references or ():
            at = f"{one.subject} version {one.version}"
            try:
                with self.translating(f"read {at}"):
                    found = self.client.get_version(one.subject, int(one.version), deleted=True)
                schema = self._resolved(found.schema_id, found.schema, depth + 1)
                references.append(Reference(str(one.name), schema))
            except SchemaUnknown as error:
                raise RegistryError(
                    f"{self._title} at {self.url} has a schema that refers to {at}, which it does not know",
                    consequence="it was not read",
                    remedy=f"register {at} there again",
                ) from error
        return Schema(schema_id, raw.schema_type or "AVRO", raw.schema_str or "", tuple(references))

    @contextmanager
    def translating(self, doing: str, *, schema_id: int | None = None) -> Iterator[None]:
        """Raise an error of the client as one of mirrorlake; `doing` follows "could not"."""
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            yield
        except SchemaRegistryError as error:
            raise self._refusal(error, doing, schema_id) from error
        except OAuthTokenError as error:
            raise self._refused(f"no token can be had ({error})", doing) from error
        except Exception as error:
            if not (_is_transport(error) or isinstance(error, ValueError)):
                raise
            # Not JSON: a proxy or another server answers in its place.
            no_answer = str(error) or type(error).__name__
            problem = no_answer if _is_transport(error) else "something else answers at its address"
            raise self._away(problem, doing) from error

    def _refusal(self, error: Any, doing: str, schema_id: int | None) -> RegistryError:
        status, problem = (
            error.http_status_code,
            f"{error.error_message} ({error.http_status_code}, {error.error_code})",
        )
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return self._refused(problem, doing)
        if status in _AWAY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._away(problem, doing)
        if error.error_code in _UNKNOWN_CODES:
            return SchemaUnknown(
                f"{self._title} at {self.url} could not {doing}: it does not know it",
                consequence="nothing was read",
                remedy="register it there",
                schema_id=schema_id,
            )
        is_address = status == HTTPStatus.NOT_FOUND
        return RegistryError(
            f"{self._title} at {self.url} could not {doing}: {problem}",
            consequence="the step did not finish",
            remedy="check that the address is that of Confluent's API (Apicurio: .../apis/ccompat/v7)"
            if is_address
            else "mend what it names, and run the same command again",
        )

    def _refused(self, problem: str, doing: str) -> RegistryRefused:
        return RegistryRefused(
            f"{self._title} at {self.url} refuses to {doing}: {problem}",
            consequence="nothing was changed by this step",
            remedy="check the login under registry.client, and what it may do",
        )

    def _away(self, problem: str, doing: str) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"{self._title} at {self.url} does not answer while trying to {doing}: {problem}",
            consequence="the step did not finish",
            remedy="check registry.url, and that it runs",
        )


def _make_registry(options: Mapping[str, str], name: str) -> SchemaRegistry:
    return SchemaRegistry(options, name=name)


def _make_client(options: Mapping[str, str]) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise UsageError(
            f"a client of schema registries needs a package that is not installed ({error.name})",
            consequence="no registry was asked",
            remedy="pip install 'mirrorlake[schemas]'",
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


def _is_transport(error: Exception) -> bool:
    """Return whether no answer came; the class is that of httpx or httpx2, by the version of confluent-kafka."""
    return any(base.__name__ == "TransportError" for base in type(error).__mro__)
