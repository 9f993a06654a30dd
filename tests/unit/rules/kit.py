"""Flows with rules, batches of records, and what of them goes out or stays back."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules import Viewed, make_flow_view
from mirrorlake.rules.flow_view import FlowView
from tests.builders import batch_of, mirror_config

SOURCE = SourcePartition("orders", 1, 3)
FRAMED = bytes([0, 0, 0, 0, 42]) + b'{"r":"eu","ssn":"1"}'
SECRET = "correct horse battery staple"  # noqa: S105


def flow(*rules: dict[str, Any]) -> FlowConfig:
    return mirror_config({"rules": list(rules)}).flows[0]


def view(*rules: dict[str, Any]) -> FlowView:
    found = make_flow_view(flow(*rules))
    assert found is not None
    # As a worker has it: nothing that the driver made of it is left.
    again: FlowView = pickle.loads(pickle.dumps(found))  # noqa: S301
    return again


def batch(
    *values: bytes | None, keys: list[bytes | None] | None = None, headers: list[Any] | None = None, start: int = 10
) -> pa.RecordBatch:
    rows = range(len(values))
    days = [datetime(2026, 1, 1 + row % 28, tzinfo=timezone.utc) for row in rows]
    keys = keys or [b"k%d" % row for row in rows]
    return batch_of(range(start, start + len(values)), values=values, keys=keys, stamps=days, headers=headers)


def values(viewed: Viewed) -> list[bytes | None]:
    found: list[bytes | None] = viewed.records.column("value").to_pylist()
    return found


def sent(viewed: Viewed) -> list[int]:
    found: list[int] = viewed.records.column("offset").to_pylist()
    return found


def reasons(viewed: Viewed) -> list[tuple[str, str, str, tuple[tuple[int, int], ...]]]:
    return [(one.kind, one.rule, one.reason, one.ranges.pairs) for one in viewed.withheld]


def predicate(condition: str, *records: Any, **settings: Any) -> list[int]:
    """Return which rows `keep` lets through."""
    rows = [
        record if isinstance(record, bytes) or record is None else json.dumps(record).encode() for record in records
    ]
    return [offset - 10 for offset in sent(view({"keep": condition, **settings})(SOURCE, batch(*rows)))]
