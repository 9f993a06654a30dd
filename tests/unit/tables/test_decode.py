"""Decoded batches: what is a row, a tombstone, filtered, a fault or a misfit, and how they are counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mirrorlake.lake import WrittenFile
from mirrorlake.tables.decode import RowFormat, summed, writing_job
from tests.builders import batch_of
from tests.unit.rules.kit import view
from tests.unit.tables.test_kinds import format_for, grown

Payloads = tuple[bytes | None, bytes | None]
OTHERS = ("_topic", "_generation", "_partition", "_timestamp")
RULES = [{"name": "small", "keep": "value.id > 5"}, {"name": "private", "remove": "who"}]
GOOD, TEXT, SMALL = b'{"id":7}', b'{"id":"x"}', b'{"id":1,"who":"secret"}'
NOT_JSON, MISFIT = "is not JSON: Input data was truncated", "id is text, which is not BIGINT"
NO_KEY = "the record has no key, and the table has a row a key"


def row_format(**how: Any) -> RowFormat:
    key, value = grown(format_for("keys"), [1]), grown(format_for(), [{"id": 1, "who": "x"}])
    return RowFormat(key, value, **{"takes_misfits": False, "needs_key": False, **how})


def batch(*records: Payloads, first: int = 0, source: str = "east") -> pa.RecordBatch:
    """Return records from an offset on, each as many milliseconds after 1970."""
    keys, values = zip(*records, strict=True)
    offsets = [*range(first, first + len(records))]
    seen = batch_of(offsets, keys=keys, values=values, stamps=offsets)
    rows = seen.rename_columns(["_offset", "_timestamp", "key", "value", "headers"])
    for name, value in {"_source": source, "_topic": "sales", "_generation": 1, "_partition": 3}.items():
        rows = rows.append_column(name, pa.array([value] * len(rows)))
    return rows


def decoded(rows: RowFormat, *records: pa.RecordBatch) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what is neither NULL nor false of each record, by source and offset."""
    found = chain.from_iterable(one.to_pylist() for one in rows.decode_all(iter(records)))
    told = {(row.pop("_source"), row.pop("_offset")): row for row in found}
    assert all(row.pop(name) is not None for row in told.values() for name in OTHERS)
    return {
        place: {name: value for name, value in row.items() if value is not None and value is not False}
        for place, row in told.items()
    }


NEEDS_KEY = {"needs_key": True, "takes_misfits": True}
CASES: list[tuple[dict[str, bool], dict[Payloads, dict[str, Any]]]] = [
    (
        {},
        {
            (b"1", GOOD): {"_key": 1, "id": 7},
            (None, GOOD): {"id": 7},
            (b"1", None): {"_key": 1, "_tombstone": True},
            (b"1", b"null"): {"_key": 1},
            (b"1", b"{"): {"_key": 1, "_fault": f"the value {NOT_JSON}"},
            (b"[", b"{"): {"_fault": f"the key {NOT_JSON}"},
            (b"1", TEXT): {"_key": 1, "_fault": MISFIT},
            (b"[", TEXT): {"_fault": f"the key {NOT_JSON}"},
        },
    ),
    (
        {"takes_misfits": True},
        {
            (b"1", TEXT): {"_key": 1, "_misfit": MISFIT},
            (b'"x"', GOOD): {"id": 7, "_misfit": "key: the value is text, which is not BIGINT"},
            (b"[", TEXT): {"_fault": f"the key {NOT_JSON}"},
            (None, TEXT): {"_misfit": MISFIT},
        },
    ),
    (NEEDS_KEY, {(None, GOOD): {"id": 7, "_fault": NO_KEY}, (None, None): {"_tombstone": True, "_fault": NO_KEY}}),
    (NEEDS_KEY, {(None, TEXT): {"_fault": NO_KEY}}),
    ({"keeps_raw": True}, {(b"1", GOOD): {"_key": 1, "id": 7, "_raw_key": b"1", "_raw_value": GOOD}}),
]


@pytest.mark.parametrize(("how", "records"), CASES)
def test_a_record_is_a_row_a_tombstone_a_fault_or_a_misfit(
    how: Any, records: Mapping[Payloads, dict[str, Any]]
) -> None:
    expected = {}
    for offset, ((key, value), row) in enumerate(records.items()):
        raw = {"_raw_key": key, "_raw_value": value} if {"_fault", "_misfit"} & row.keys() else {}
        expected["east", offset] = row | {name: data for name, data in raw.items() if data is not None}
    assert decoded(row_format(**how), batch(*records)) == expected


def test_rules_of_a_source_filter_mask_and_withhold_before_anything_is_decoded() -> None:
    rows = row_format(views={"east": view(*RULES)}, keeps_raw=True)
    first, last = (b'{"id":%d,"who":"secret"}' % number for number in (9, 8))
    east = batch((b"1", first), (b"1", SMALL), (b"1", b"secret"), (b"1", last), (b"1", None), (b"1", SMALL), first=10)
    found = decoded(rows, pa.concat_batches([east, batch((b"1", SMALL), source="west")]).take([6, 5, 2, 0, 4, 1, 3]))
    why = found["east", 12].pop("_fault")
    assert found == {
        ("east", 10): {"_key": 1, "id": 9, "_raw_key": b"1", "_raw_value": b'{"id":9}'},
        ("east", 11): {"_filtered": True},
        ("east", 12): {},
        ("east", 13): {"_key": 1, "id": 8, "_raw_key": b"1", "_raw_value": b'{"id":8}'},
        ("east", 14): {"_key": 1, "_tombstone": True, "_raw_key": b"1"},
        ("east", 15): {"_filtered": True},
        ("west", 0): {"_key": 1, "id": 1, "who": "secret", "_raw_key": b"1", "_raw_value": SMALL},
    }
    assert why.startswith("the rule small cannot judge it: ")
    assert "secret" not in why
    assert decoded(rows, east.slice(0, 0)) == {}


def test_counts_of_all_workers_are_those_of_each_partition(tmp_path: Path) -> None:
    rows = row_format(takes_misfits=True, views={"west": view(*RULES)})
    west = batch((b"1", GOOD), (b"1", SMALL), source="west")
    east = batch((b"1", None), (b"1", GOOD), (b"1", b"{"), (b"[", GOOD)), batch((b"1", None), (b"1", TEXT), first=7)
    workers = [[*east, west], [batch((b"1", GOOD), first=5)]]
    job = writing_job(str(tmp_path), (), keeps_faults=False)
    told = [pa.Table.from_batches(job(rows.decode_all(iter(mine)))) for mine in workers]
    report = pa.concat_tables(told)
    counts = summed(report.filter(pc.is_null(report.column("file")))).to_pylist()
    numbers = {row["_source"]: [*row.values()][4:] for row in counts}
    assert numbers == {"east": [7, 2, 1, 9, 1_000, 7_000], "west": [2, 0, 0, 2, 0, None]}
    files = [WrittenFile(*json.loads(one)) for one in report.column("file").drop_null().to_pylist()]
    assert sum(one.records for one in files) == 6, "neither the bad one nor the filtered one"
