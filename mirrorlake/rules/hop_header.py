"""Withhold records that would loop, and write provenance headers on the others.

The rule `loop` withholds a record as `filtered` if it has been on the target. All others get a header with the position
that this flow read (`model/loops/hops.py`). Most batches hold records without headers, all produced on the source: these
cost one column of header values and no work per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config.schema import FlowConfig
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.loops.hops import HOP_KEY, HOP_PATTERN
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.withheld import FILTERED, Withheld
from mirrorlake.rules.view import View, Viewed

RULE = "loop"

_Flags = np.ndarray[Any, np.dtype[np.bool_]]


def provenance_stage(flow: FlowConfig) -> View | None:
    """Return the stage that prevents loops of a flow, or None if its topic names already do.

    It reads and writes headers only, so it runs before every rule that may change or drop them.
    """
    return ProvenanceStage(source=flow.source, target=flow.target) if flow.adds_hops else None


@dataclass(frozen=True, kw_only=True)
class ProvenanceStage:
    """Withhold records that would loop, and append a provenance header to others. `version` is the rule's, without settings."""

    source: str
    target: str
    version: str = "1"

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        been = _rows_been_on(self.target, records.column("headers"))
        withheld = []
        if been.any():
            offsets = records.column("offset").to_numpy(zero_copy_only=False)
            withheld.append(
                Withheld(
                    source=source,
                    kind=FILTERED,
                    rule=RULE,
                    version=self.version,
                    ranges=Ranges.of(offsets[been]),
                    reason=f"it has been on {self.target}",
                )
            )
            records = records.filter(pa.array(~been))
        texts = hop_texts(self.source, source, records.column("offset"))
        headers = appended(records.column("headers"), texts)
        index = records.schema.get_field_index("headers")
        return Viewed(records=records.set_column(index, "headers", headers), withheld=tuple(withheld))


def hop_texts(alias: str, source: SourcePartition, offsets: pa.Array) -> pa.Array:
    """Return the header values of records that were read on a cluster."""
    place = pa.scalar(f"{alias}/{source.topic}/{source.partition}/")
    texts = pc.binary_join_element_wise(place, offsets.cast(pa.string()), "")
    return texts.cast(pa.binary())


def _rows_been_on(alias: str, headers: pa.ListArray) -> _Flags:
    been = np.zeros(len(headers), dtype=bool)
    if headers.null_count == len(headers):
        return been
    flat = headers.flatten()
    at = np.flatnonzero(pc.equal(flat.field(0), HOP_KEY).fill_null(False).to_numpy(zero_copy_only=False))
    if not len(at):
        return been
    parts = pc.extract_regex(flat.field(1).take(pa.array(at)), f"^{HOP_PATTERN}$")
    # A value of another format gives null: anybody may write a header of this name.
    valid = parts.is_valid().to_numpy(zero_copy_only=False)
    if valid.any():
        rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)[at][valid]
        aliases = parts.filter(pa.array(valid)).field(0).cast(pa.string()).to_numpy(zero_copy_only=False)
        been[rows[aliases == alias]] = True
    return been


def appended(headers: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Append a header to each list; built by offsets, without work per row."""
    count = len(headers)
    kind = headers.type.value_field.type
    keys = pa.array([HOP_KEY], kind.field(0).type).take(pa.array(np.zeros(count, dtype=np.int64)))
    hops = pa.StructArray.from_arrays([keys, values.cast(kind.field(1).type)], fields=[kind.field(0), kind.field(1)])
    lengths = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths + 1)
    if lengths.any():
        old = headers.flatten()
        order = np.empty(int(ends[-1]), dtype=np.int64)
        is_new = np.zeros(len(order), dtype=bool)
        is_new[ends - 1] = True
        order[is_new] = len(old) + np.arange(count)
        order[~is_new] = np.arange(len(old))
        hops = pa.concat_arrays([old.cast(hops.type), hops]).take(pa.array(order))
    starts = pa.array(np.concatenate([[0], ends]), pa.int32())
    return pa.ListArray.from_arrays(starts, hops, type=headers.type)
