"""Match records by key, by bytes in the value, or by a condition; the same on every side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from mirrorlake.config.predicates import Predicate
from mirrorlake.config.schema import keeping
from mirrorlake.lake import relay_schema
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.late_times import relay_us
from mirrorlake.records.record import BrowsedRecord
from mirrorlake.render import payload
from mirrorlake.rules import FRAME, TRUE, answers

# JSONPath's `$` outside of quoted text: `$.customer.id` is `value.customer.id`.
_ROOT = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`)|\$(?=\s*[.\[])""")
_COLUMNS = ("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A filter of records; an empty filter matches every record, and one that `where` cannot evaluate does not match.

    `key` is the whole key; `contains` are bytes that the value contains.
    """

    key: bytes | None = None
    contains: bytes | None = None
    where: Predicate | None = None

    @classmethod
    def of(cls, *, key: str | bytes | None, contains: str | bytes | None, where: str) -> Match:
        """Return the filter that a person wrote, with texts encoded in UTF-8.

        `where` is a condition in the syntax of rules. A path may also begin with `$`: `$.customer.id = 7`.

        Example:
            >>> str(Match.of(key="k7", contains=None, where="$.customer.id = 7"))
            'key k7, where value.customer.id = 7'
        """
        text = _ROOT.sub(lambda found: found[1] or "value", where.strip())
        return cls(key=_bytes(key), contains=_bytes(contains), where=keeping("where", text).predicate if text else None)

    def __bool__(self) -> bool:
        return self.key is not None or bool(self.contains) or self.where is not None

    def __str__(self) -> str:
        said = [] if self.key is None else [f"key {payload(self.key, 40)}"]
        said += [f"value contains {payload(self.contains, 40)}"] if self.contains else []
        said += [f"where {self.where.text}"] if self.where is not None else []
        return ", ".join(said)

    def among(self, records: Sequence[BrowsedRecord]) -> list[BrowsedRecord]:
        found = [
            one
            for one in records
            if (self.key is None or one.key == self.key) and (not self.contains or self.contains in (one.value or b""))
        ]
        if self.where is None or not found:
            return found
        source = SourcePartition(found[0].topic, found[0].generation or 1, found[0].partition)
        batch = _batch(found)
        said = answers(self.where, source, batch)
        return [one for one, answer in zip(found, said, strict=True) if answer == TRUE]


ANY = Match()
"""The filter that every record matches."""


def _batch(records: Sequence[BrowsedRecord]) -> pa.RecordBatch:
    kinds = relay_schema()
    columns = {
        "offset": [one.offset for one in records],
        "timestamp": [relay_us(one.timestamp_ms) for one in records],
        "key": [one.key for one in records],
        "value": [_unframed(one.value) for one in records],
        "headers": [[{"key": name, "value": value} for name, value in one.headers] for one in records],
    }
    arrays = [pa.array(columns[name], kinds.field(name).type) for name in _COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))


def _unframed(value: bytes | None) -> bytes | None:
    # JSON never begins with a zero byte, but a schema registry's frame does.
    return value[FRAME:] if value and value[0] == 0 and len(value) > FRAME else value


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
