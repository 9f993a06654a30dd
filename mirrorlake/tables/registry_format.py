"""Payloads in a schema registry's frame: each is read with the writer schema that it names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from mirrorlake.tables.codec import Codec, Reader, WriterKey
from mirrorlake.tables.decoding import DecodedPayloads
from mirrorlake.tables.json_types import named, renamed


@dataclass(frozen=True)
class RegistryFormat:
    """Payloads whose frame names a schema of a registry.

    `refused` is why the records of a writer schema are no rows, `taken` names that no column may have.
    """

    codec: Codec
    reader: Reader
    registries: Mapping[str, str]
    refused: Mapping[WriterKey, str] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()

    @cached_property
    def kind(self) -> pa.DataType:
        return named(self.reader.kind, taken=self.taken)

    def decode(self, payloads: pa.Array, sources: pa.Array) -> DecodedPayloads:
        values, faults, misfits = list[Any](), dict[int, str](), dict[int, str]()
        for row, (payload, source) in enumerate(zip(payloads.to_pylist(), sources.to_pylist(), strict=True)):
            value = None
            if payload is not None:
                located = self.codec.locate(payload)
                key = None if located is None else (self.registries[source], *located[0])
                if located is None or key is None:
                    faults[row] = "has no schema registry's frame: it does not begin with the byte 0 and an id"
                elif key in self.refused:
                    faults[row] = self.refused[key]
                elif key not in self.reader.writers:
                    misfits[row] = f"its schema {located[0][0]} is new to the table"
                else:
                    try:
                        value = self.reader.read(key, payload[located[1] :])
                    except ValueError as error:
                        faults[row] = str(error)
            values.append(value)
        return DecodedPayloads(renamed(self._array(values, faults), self.kind), faults, misfits)

    def _array(self, values: list[Any], faults: dict[int, str]) -> pa.Array:
        """Return values as an array; one that Arrow does not take, as a time after the year 9999, is a fault."""
        try:
            return pa.array(values, self.reader.kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass
        for row, value in enumerate(values):
            try:
                pa.scalar(value, self.reader.kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                faults[row], values[row] = "holds a value that its column does not take", None
        return pa.array(values, self.reader.kind)


def names_job(codec: Codec, column: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the job of Spark's workers that lists the schemas which the payloads of a column name, by source, as JSON."""

    def job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = set()
        for records in batches:
            payloads, sources = records.column(column).to_pylist(), records.column("_source").to_pylist()
            for payload, source in zip(payloads, sources, strict=True):
                if payload is not None and (located := codec.locate(payload)) is not None:
                    found.add((source, json.dumps(located[0])))
        yield pa.RecordBatch.from_pydict(
            {
                "source": pa.array([source for source, _ in found], pa.string()),
                "named": pa.array([named for _, named in found], pa.string()),
            }
        )

    return job
