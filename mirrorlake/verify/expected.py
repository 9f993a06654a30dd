"""What a target should hold: the relay's records at the place the offset map gives them, through the view of their flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.lake import COLUMNS, RELAY, with_downstream
from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules import View
from mirrorlake.verify.cut import Relays

Views = Mapping[str, View]
Batches = Iterator[pa.RecordBatch]
_PLACE = ("topic", "partition", "offset")
_SOURCE = ("source_topic", "generation", "source_partition", "upstream_offset")
_CONTENT = COLUMNS[1:]
_SCHEMA = ", ".join(f"`{name}` {RELAY.columns[name][0]}" for name in (*_PLACE, *_CONTENT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Rows with the target's `topic, partition, offset`.

    `records` have their content, too. `placed` went out through a view that the settings no longer describe: whether they
    exist can be checked, their content cannot.
    """

    records: DataFrame
    placed: DataFrame | None


def expected_records(relays: Relays, runs: DataFrame, views: Views) -> Expected | None:
    """Derive the records that one target must hold from its runs; None where there are none.

    `runs` are rows of `offset_map` with `source`, the alias of the source cluster.
    """
    records: list[DataFrame] = []
    placed: list[DataFrame] = []
    for row in runs.select("flow", "source", "view").distinct().collect():
        mine = runs.where((F.col("flow") == row.flow) & F.col("view").eqNullSafe(row.view))
        rows = with_downstream(relays.records(row.source), mine)
        view = views.get(row.flow)
        if row.view is None:
            records.append(rows.select(*_PLACE, *_CONTENT))
        elif view is not None and view.version == row.view:
            records.append(rows.mapInArrow(_job(view), _SCHEMA))
        else:
            placed.append(rows.select(*_PLACE))
    if not records and not placed:
        return None
    nothing = runs.sparkSession.createDataFrame([], _SCHEMA)
    return Expected(
        records=reduce(DataFrame.unionByName, records, nothing),
        placed=reduce(DataFrame.unionByName, placed) if placed else None,
    )


def _job(view: View) -> Callable[[Batches], Batches]:
    def job(batches: Batches) -> Batches:
        for batch in batches:
            table = pa.Table.from_batches([batch]).sort_by([(name, "ascending") for name in _SOURCE])
            for part in table.combine_chunks().to_batches():
                yield from _views_of(part, view)

    return job


def _views_of(rows: pa.RecordBatch, view: View) -> Batches:
    columns = [rows.column(name).to_pylist() for name in _SOURCE[:3]]
    keys = list(zip(*columns, strict=True))
    starts = [at for at in range(len(keys)) if at == 0 or keys[at] != keys[at - 1]]
    for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
        part = rows.slice(start, end - start)
        upstream = part.column("upstream_offset")
        given = pa.RecordBatch.from_arrays(
            [upstream, *(part.column(name) for name in _CONTENT)],
            names=list(COLUMNS),
        )
        seen = view(SourcePartition(*keys[start]), given).records
        found = np.searchsorted(upstream.to_numpy(), seen.column("offset").to_numpy())
        place = part.select(list(_PLACE)).take(pa.array(found))
        content = [seen.column(name) for name in _CONTENT]
        yield pa.RecordBatch.from_arrays([*place.columns, *content], names=[*_PLACE, *_CONTENT])
