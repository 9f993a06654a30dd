"""A schema as a registry has it, with its references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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
        """Return whether text, kind and references are equal; ids, subjects and versions may differ."""
        return (self.kind, self.text.strip()) == (other.kind, other.text.strip()) and self._named_texts() == (
            other._named_texts()
        )

    def _named_texts(self) -> dict[str, str]:
        return {reference.name: reference.schema.text.strip() for reference in self.all_references()}


def _walk(schema: Schema, seen: set[str]) -> Iterator[Reference]:
    for reference in schema.references:
        if reference.name not in seen:
            seen.add(reference.name)
            yield from _walk(reference.schema, seen)
            yield reference
