"""Write schemas into a registry with the ids and versions that they have in another one, by Confluent's import mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from mirrorlake.errors import RegistryError, SchemaConflict
from mirrorlake.schemas.registry import SchemaRegistry
from mirrorlake.schemas.schema import Schema, SubjectVersion

_IMPORT = "IMPORT"


def keeps_ids(registry: SchemaRegistry) -> bool:
    """Return whether a registry has modes; one without them, such as Apicurio 3.0, gives each schema an id of its own.

    Raises:
        RegistryError: it does not answer, or refuses the login.
    """
    with registry.translating("read its mode"):
        return _mode(registry.client.get_global_mode) is not None


def find_conflict(registry: SchemaRegistry, at: SubjectVersion, schema: Schema) -> str | None:
    """Return why a schema must not be registered as a version under its id, or None if nothing is in its place.

    Raises:
        RegistryError: the registry does not answer, or refuses the login.
    """
    registry.forget_unknown(schema.schema_id)
    same_id, version = (registry.find(key) for key in (schema.schema_id, at))
    if same_id is not None and not same_id.is_same(schema):
        return f"another schema is id {schema.schema_id} there, and records would be read with it"
    if version is not None and (version.schema_id != schema.schema_id or not version.is_same(schema)):
        return f"another schema is that version there (id {version.schema_id})"
    return None


def import_schema(registry: SchemaRegistry, at: SubjectVersion, schema: Schema) -> None:
    """Register a schema as a version of a subject under its own id, unless it is; the subject's mode is afterwards what it was.

    What it refers to must be registered before.

    Raises:
        SchemaConflict: another schema has its id, or is that version.
        RegistryError: the registry refuses it, does not answer, or gave it another id.
    """
    from confluent_kafka.schema_registry import Schema as RawSchema
    from confluent_kafka.schema_registry import SchemaReference

    class Numbered(RawSchema):  # type: ignore[misc]  # confluent_kafka has no types
        def to_dict(self) -> dict[str, Any]:
            return {**super().to_dict(), "id": schema.schema_id, "version": at.version}

    references = [SchemaReference(one.name, one.at.subject, one.at.version) for one in schema.references]
    with _import_mode(registry, at.subject):
        # In this mode nobody else registers, and a registry writes over an existing version.
        if (conflict := find_conflict(registry, at, schema)) is not None:
            raise SchemaConflict(
                f"{at} cannot be copied to the registry at {registry.url}: {conflict}",
                consequence="it was not written",
                remedy="mirrorlake plan shows what differs now",
            )
        if registry.find(at) is not None:
            return
        with registry.translating(f"register {at} as id {schema.schema_id}"):
            made = registry.client.register_schema(at.subject, Numbered(schema.text, schema.kind, references))
    registry.forget_unknown(schema.schema_id)
    if made != schema.schema_id:
        raise RegistryError(
            f"the registry at {registry.url} registered {at} as id {made} instead of {schema.schema_id}",
            consequence="records of the mirror do not find their schema there",
            remedy=f"delete {at} there, and use a registry with Confluent's import mode",
        )


@contextmanager
def _import_mode(registry: SchemaRegistry, subject: str) -> Iterator[None]:
    client, doing = registry.client, f"set the mode of {subject}"
    with registry.translating(doing):
        before = _mode(lambda: client.get_mode(subject))
        if before != _IMPORT:
            # Forced: a subject with versions is refused otherwise, and the plan has compared them.
            client.update_mode(subject, _IMPORT, force=True)
    try:
        yield
    finally:
        with registry.translating(doing):
            if before is None:
                client.delete_mode(subject)
            elif before != _IMPORT:
                client.update_mode(subject, before)


def _mode(read: Any) -> str | None:
    """Return a mode, or None if the registry or the subject has none of its own."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return str(read())
    except SchemaRegistryError as error:
        if error.http_status_code == HTTPStatus.NOT_FOUND:
            return None
        raise
