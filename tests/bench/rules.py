"""What rules cost: CPU-seconds per million records on one core, through the view of a flow, as a worker runs it.

The values are those of the workload, cut back to their last whole member: the workload cuts them to their length, and half a
member is not JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pyarrow as pa

import mirrorlake as ml
from mirrorlake.config.loading import loads
from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules.flow_view import FlowView
from mirrorlake.rules.flow_view_build import make_flow_view
from tests.bench.options import Options
from tests.bench.results import Book, Say
from tests.bench.workload import key_of, values

SIZES = (100, 1_000)
BATCH = 10_000
_SOURCE = SourcePartition("bench", 1, 0)
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RULES: dict[str, list[dict[str, object]]] = {
    "filter: a header": [{"drop": "headers['tenant'] = 'test'"}],
    "filter: one member": [{"keep": "value.amount > 100"}],
    "filter: two members and the key": [{"keep": "value.amount > 100 AND value.id <> 'x' AND key LIKE '0%'"}],
    "mask: one member": [{"mask": "id"}],
    "mask: two members": [{"mask": ["id", "amount"]}],
    "mask: a member that is not there": [{"mask": "nobody"}],
    "mask: a name at any depth": [{"mask": "..id"}],
    "remove: one member": [{"remove": "id"}],
    "hash: one member": [{"hash": {"fields": "id", "key": "bench"}}],
    "headers: drop one": [{"headers": {"drop": "tenant"}}],
    "function: returns the batch": [{"function": "bench-same"}],
    "function: bytes.replace on each value": [{"function": "bench-replace"}],
    "filter, mask and hash": [
        {"keep": "value.amount > 100"},
        {"mask": "accepted"},
        {"hash": {"fields": "id", "key": "bench"}},
    ],
}


def measure(options: Options, book: Book, _: Say) -> None:
    """Measure each rule on a million records a size, or on a share of them."""
    records = max(BATCH, round(1_000_000 * options.scale))
    ml.rule_function("bench-same", lambda batch: batch)
    ml.rule_function("bench-replace", _replace)
    batches = {size: list(_batches(size)) for size in SIZES}
    for name, rules in RULES.items():
        cost = {f"{size:,} B": _measure(_view(rules), batches[size], records) for size in SIZES}
        book.keep("rules", name, cost, mode="CPU-s per M on one core")


def _view(rules: list[dict[str, object]]) -> FlowView:
    settings = {
        "lake": {"root": "./lake"},
        "clusters": {"a": {"bootstrap_servers": "a:1"}, "b": {"bootstrap_servers": "b:1"}},
        "flows": [{"source": "a", "target": "b", "topics": "bench", "rules": rules}],
    }
    view = make_flow_view(loads(json.dumps(settings)).flows[0])
    if view is None:
        raise AssertionError("a flow with rules has a view")
    return view


def _batches(size: int) -> Iterator[pa.RecordBatch]:
    pool = [_whole(value) for value in values(size, 1)]
    for first in range(0, max(len(pool), BATCH) // BATCH * BATCH, BATCH):
        rows = range(first, first + BATCH)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(rows, pa.int64()),
                pa.array([1_767_225_600_000_000 + row for row in rows], pa.timestamp("us", "UTC")),
                pa.array([key_of(row) for row in rows], pa.binary()),
                pa.array([pool[row % len(pool)] for row in rows], pa.binary()),
                pa.array([[("tenant", b"live")]] * BATCH, _HEADERS),
            ],
            names=["offset", "timestamp", "key", "value", "headers"],
        )


def _whole(value: bytes) -> bytes:
    kept = value[: value.rindex(b',"')]
    rest = len(value) - len(kept) - len(b',"pad":""}')
    return kept + (b',"pad":"%b"}' % (b"x" * rest) if rest >= 0 else b"}")


def _replace(batch: pa.RecordBatch) -> pa.RecordBatch:
    changed = [value.replace(b'"id"', b'"no"') for value in batch.column("value").to_pylist()]
    return batch.set_column(batch.schema.get_field_index("value"), "value", pa.array(changed, pa.binary()))


def _measure(view: FlowView, batches: list[pa.RecordBatch], records: int) -> float:
    for batch in batches[:2]:
        if any(one.kind == "quarantined" for one in view(_SOURCE, batch).withheld):
            raise AssertionError("the workload is JSON")
    done, started = 0, time.process_time()
    while done < records:
        view(_SOURCE, batches[done // BATCH % len(batches)])
        done += BATCH
    return (time.process_time() - started) / done * 1_000_000
