"""Withhold records that would loop or arrive twice, and write provenance headers on the others.

The rule `loop` withholds a record as `filtered` if it has been on the target or reaches it over another flow. All others get
a header with the position that this flow read (`model/loops/hops.py`). Most batches hold records without headers, all
produced on the source: these cost one column of header values and no work per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config.schema import FlowConfig, Route
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.loops.hops import HOP_KEY, HOP_PATTERN
from mirrorlake.model.loops.routes import TopicPlace, Tree, fingerprint, forwards, tree_from
from mirrorlake.model.withheld import FILTERED, Withheld, ranges_of
from mirrorlake.rules.view import View, Viewed

RULE = "loop"

_Flags = np.ndarray[Any, np.dtype[np.bool_]]


def provenance_stage(flow: FlowConfig, flows: Iterable[FlowConfig]) -> View | None:
    """Return the stage that prevents loops of a flow, or None if its topic names already do.

    It reads and writes headers only, so it runs before every rule that may change or drop them.

    Args:
        flow: the flow.
        flows: all flows of the settings.
    """
    if not flow.adds_hops:
        return None
    routes = sorted((each.route for each in flows if each.adds_hops), key=lambda route: route.name)
    return ProvenanceStage(route=flow.route, routes=tuple(routes), version=fingerprint(map(repr, routes)))


@dataclass(frozen=True, kw_only=True)
class ProvenanceStage:
    """Withhold records that would loop, and append a provenance header to the others.

    Attributes:
        route: the route of this flow.
        routes: the routes of all flows that write provenance headers.
        version: the fingerprint of `routes`: other flows may lead to other routes.
    """

    route: Route
    routes: tuple[Route, ...]
    version: str

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        """Return the records to send, each with one more header, and the withheld ones."""
        known = _Hops.of(records.column("headers"))
        been, elsewhere = self._judged(source.topic, known, len(records))
        withheld = []
        if been.any() or elsewhere.any():
            offsets = records.column("offset").to_numpy(zero_copy_only=False)
            for rows, reason in (
                (been, f"it has been on {self.route.target}"),
                (elsewhere, f"it comes to {self.route.target} over another flow"),
            ):
                if rows.any():
                    withheld.append(
                        Withheld(
                            source=source,
                            kind=FILTERED,
                            rule=RULE,
                            version=self.version,
                            ranges=ranges_of(offsets[rows].tolist()),
                            reason=reason,
                        )
                    )
            records = records.filter(pa.array(~(been | elsewhere)))
        texts = hop_texts(self.route.source, source, records.column("offset"))
        headers = appended(records.column("headers"), texts)
        index = records.schema.get_field_index("headers")
        return Viewed(records=records.set_column(index, "headers", headers), withheld=tuple(withheld))

    def _judged(self, topic: str, known: _Hops | None, rows: int) -> tuple[_Flags, _Flags]:
        """Flag the records that have been on the target, and the others that reach it over another flow."""
        been, elsewhere = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
        if not self._forwards(TopicPlace(self.route.source, topic), topic):
            elsewhere[:] = True
        if known is None:
            return been, elsewhere
        been[known.rows[known.aliases == self.route.target]] = True
        first = np.unique(known.rows, return_index=True)[1]
        places = list(zip(known.aliases[first].tolist(), known.topics[first].tolist(), strict=True))
        verdict = {place: not self._forwards(TopicPlace(*place), topic) for place in set(places)}
        elsewhere[known.rows[first]] = [verdict[place] for place in places]
        return been, elsewhere & ~been

    def _forwards(self, origin: TopicPlace, topic: str) -> bool:
        return forwards(self.route, topic, _tree(self.routes, origin))


def hop_texts(alias: str, source: SourcePartition, offsets: pa.Array) -> pa.Array:
    """Return the header values of records that were read on a cluster."""
    place = pa.scalar(f"{alias}/{source.topic}/{source.partition}/")
    texts = pc.binary_join_element_wise(place, offsets.cast(pa.string()), "")
    return texts.cast(pa.binary())


@lru_cache(maxsize=256)
def _tree(routes: tuple[Route, ...], origin: TopicPlace) -> Tree:
    return tree_from(origin, routes)


@dataclass(frozen=True, slots=True)
class _Hops:
    """The hops of a batch, in order: the row of each, its alias and its topic."""

    rows: np.ndarray[Any, np.dtype[np.int64]]
    aliases: np.ndarray[Any, np.dtype[np.object_]]
    topics: np.ndarray[Any, np.dtype[np.object_]]

    @classmethod
    def of(cls, headers: pa.ListArray) -> _Hops | None:
        """Return the hops in a column of headers, or None if no record has any."""
        if headers.null_count == len(headers):
            return None
        flat = headers.flatten()
        at = np.flatnonzero(pc.equal(flat.field(0), HOP_KEY).fill_null(False).to_numpy(zero_copy_only=False))
        if not len(at):
            return None
        values = flat.field(1).take(pa.array(at))
        parts = pc.extract_regex(values, f"^{HOP_PATTERN}$")
        # A value of another format gives null: anybody may write a header of this name.
        valid = parts.is_valid().to_numpy(zero_copy_only=False)
        if not valid.any():
            return None
        parts = parts.filter(pa.array(valid))
        rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)[at][valid]
        names = [parts.field(index).cast(pa.string()).to_numpy(zero_copy_only=False) for index in (0, 1)]
        return cls(rows, *names)


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
