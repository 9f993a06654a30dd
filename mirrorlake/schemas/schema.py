"""A schema as a registry has it, with its references."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class SubjectVersion:
    """A version of a subject: where a schema is registered."""

    subject: str
    version: int

    def __str__(self) -> str:
        return f"{self.subject} version {self.version}"


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema, by the name that the text of this one uses for it."""

    name: str
    at: SubjectVersion
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """One schema: its id, its kind (`AVRO`, `PROTOBUF` or `JSON`), its text, and the schemas that the text refers to."""

    schema_id: int | None
    kind: str
    text: str
    references: tuple[Reference, ...] = ()

    def all_references(self) -> Iterator[Reference]:
        """Yield each schema that this one needs, once, after those that it needs itself."""
        seen: set[str] = set()
        yield from _walk(self, seen)

    def is_same(self, other: Schema) -> bool:
        """Return whether kind, content and references are equal; ids, subjects, versions and white space may differ."""
        return self._contents() == other._contents()

    def _contents(self) -> dict[str, Any]:
        own = {"": (self.kind, _content(self))}
        return own | {one.name: (one.schema.kind, _content(one.schema)) for one in self.all_references()}


def _content(schema: Schema) -> Any:
    with suppress(ValueError):
        # A registry may write JSON anew.
        return json.loads(schema.text)
    return schema.text.strip()


def _walk(schema: Schema, seen: set[str]) -> Iterator[Reference]:
    for reference in schema.references:
        if reference.name not in seen:
            seen.add(reference.name)
            yield from _walk(reference.schema, seen)
            yield reference
