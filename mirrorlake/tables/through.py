"""Apply a flow's rules to records before they are decoded (`through`), so that what the rules hide stays out of the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.withheld import FILTERED, Withheld
from mirrorlake.rules import View

_COLUMNS = ["offset", "timestamp", "key", "value", "headers"]
_PLACE = ("_source", "_topic", "_generation", "_partition")


@dataclass(frozen=True, slots=True)
class Passed:
    """Records after the rules, and those that the rules withhold, each with why it is a bad record; "" if it is filtered."""

    records: pa.RecordBatch
    withheld: pa.RecordBatch
    reasons: list[str]


@dataclass(frozen=True)
class Through:
    """The rules of flows, by source; picklable for Spark's workers."""

    views: Mapping[str, View]

    def __call__(self, records: pa.RecordBatch) -> Passed:
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for row, place in enumerate(zip(*(records.column(name).to_pylist() for name in _PLACE), strict=True)):
            groups[place].append(row)
        offsets = records.column("_offset").to_pylist()
        kept, withheld = list[pa.RecordBatch](), list[tuple[int, str]]()
        for (source, topic, generation, partition), rows in groups.items():
            mine = records.take(pa.array(sorted(rows, key=offsets.__getitem__)))
            if source not in self.views:
                kept.append(mine)
                continue
            seen = mine.select([f"_{name}" for name in _COLUMNS[:2]] + [*_COLUMNS[2:]]).rename_columns(_COLUMNS)
            viewed = self.views[source](SourcePartition(topic, generation, partition), seen)
            row_of = {offsets[row]: row for row in rows}
            kept.append(
                _with_payloads(
                    records, [row_of[at] for at in viewed.records.column("offset").to_pylist()], viewed.records
                )
            )
            withheld += [(row, _reason(one)) for one in viewed.withheld for row in _rows_of(one, row_of)]
        whole = pa.Table.from_batches(kept, records.schema).combine_chunks().to_batches()
        return Passed(
            whole[0] if whole else records.slice(0, 0),
            records.take(pa.array([row for row, _ in withheld], pa.int64())),
            [reason for _, reason in withheld],
        )


def _with_payloads(records: pa.RecordBatch, rows: list[int], viewed: pa.RecordBatch) -> pa.RecordBatch:
    found = records.take(pa.array(rows, pa.int64()))
    columns = [
        viewed.column(name).cast(found.schema.field(name).type)
        if name in ("key", "value", "headers")
        else found.column(name)
        for name in found.schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=found.schema)


def _rows_of(one: Withheld, row_of: Mapping[int, int]) -> list[int]:
    return [row_of[at] for first, length in one.ranges for at in range(first, first + length) if at in row_of]


def _reason(one: Withheld) -> str:
    return "" if one.kind == FILTERED else f"the rule {one.rule} cannot judge it: {one.reason}"


def passing_job(through: Through) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the job of Spark's workers that yields what rules let pass."""

    def job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in batches:
            yield through(records).records

    return job
