"""A schema as a registry has it, with its references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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

    def all_references(self) -> Iterator[Reference]:
        """Yield each schema that this one needs, once, after those that it needs itself."""
        seen: set[str] = set()
        yield from _walk(self, seen)


def _walk(schema: Schema, seen: set[str]) -> Iterator[Reference]:
    for reference in schema.references:
        if reference.name not in seen:
            seen.add(reference.name)
            yield from _walk(reference.schema, seen)
            yield reference
