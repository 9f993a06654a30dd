"""Read the last record of each of many source partitions from a relay, without Spark.

The relay's log has the last offset of every partition in a file, so only files with wanted records are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.lake.relay_files import RelayFile, unreadable_error
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import open_address

_WANTED = pa.schema({"topic": pa.string(), "generation": pa.int32(), "partition": pa.int32(), "offset": pa.int64()})
_COLUMNS = (*_WANTED.names, "timestamp", "key", "value")


class LastRow(NamedTuple):
    """A record of the relay; `ms` is its timestamp in milliseconds since 1970."""

    offset: int
    ms: int | None
    key: bytes | None
    value: bytes | None


def last_rows(log: RelayLog, within: Mapping[SourcePartition, tuple[int, int]]) -> dict[SourcePartition, LastRow]:
    """Return the last record of each source partition in a range of offsets `(first, end)`.

    Omit a partition without a record in it, or whose newest file goes past the end.
    """
    newest: dict[SourcePartition, RelayFile] = {}
    for file in log.files({source: low for source, (low, _) in within.items()}):
        _, end = within.get(file.source, (0, 0))
        if file.first_offset < end and (known := newest.get(file.source, file)).last_offset <= file.last_offset:
            newest[known.source] = file
    wanted: dict[str, list[RelayFile]] = defaultdict(list)
    for source, file in newest.items():
        if file.last_offset < within[source][1]:
            wanted[file.uri].append(file)
    return {source: row for uri, parts in wanted.items() for source, row in _rows_of(uri, parts)}


def _rows_of(uri: str, parts: Sequence[RelayFile]) -> Iterable[tuple[SourcePartition, LastRow]]:
    keys = ((*astuple(part.source), part.last_offset) for part in parts)
    wanted = pa.table(list(map(list, zip(*keys, strict=True))), schema=_WANTED)
    # By these bounds the statistics choose the row groups: only the last one of a large file is read.
    least, most = min(part.last_offset for part in parts), max(part.last_offset for part in parts)
    bounds = (pc.field("offset") >= least) & (pc.field("offset") <= most)
    filesystem, path = open_address(uri)
    try:
        rows = pq.read_table(path, columns=list(_COLUMNS), filters=bounds, filesystem=filesystem)
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise unreadable_error(uri, error, parts) from error
    times = rows["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    rows = rows.set_column(rows.column_names.index("timestamp"), "timestamp", times)
    found = rows.join(wanted, _WANTED.names, join_type="left semi")
    for topic, generation, partition, offset, time, key, value in zip(
        *(column.to_pylist() for column in found.columns), strict=True
    ):
        yield SourcePartition(topic, generation, partition), LastRow(offset, time, key, value)
