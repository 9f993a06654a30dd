"""Find the records that wait at each position with NumPy (SQL twin: `WAITED_SINCE`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from mirrorlake.lag.columns import NOTHING, TIME, Ints, lists, numbers, rows
from mirrorlake.lag.dense_ranges import SourcePartitionKey


@dataclass(frozen=True, slots=True)
class _Backlogs:
    """The records of all backlogs, one backlog after another and ordered by offset, so that one binary search serves all."""

    offsets: Ints
    stamps: Ints
    starts: Ints
    """Start of each backlog, and the end of the last; no backlog is empty."""

    def find(self, backlog: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Return the index of the first record at or past each offset, and the count of records from it on."""
        if not len(self.offsets):
            return np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
        begins, ends = self.starts[:-1], self.starts[1:]
        low, high = self.offsets[begins], self.offsets[ends - 1]
        # Keys of a backlog follow those of the one before it, with room for an offset past all records.
        shift = np.concatenate([[0], np.cumsum(high - low + 2)[:-1]]) - low
        keys = self.offsets + np.repeat(shift, ends - begins)
        known = np.maximum(backlog, 0)
        at = np.searchsorted(keys, np.clip(places, low[known], high[known] + 1) + shift[known])
        return at, np.where(backlog < 0, 0, ends[known] - at)


def add_waiting(
    hops: pa.Table, flow_partitions: pa.Table, *, records: pa.Table, withheld: pa.Table, counted: bool = False
) -> pa.Table:
    """Add to hops `waiting_since`, the time of the oldest record that waits, null where none does.

    With `counted`, also add `records`, how many records wait, and `held`, the offset past the newest record of the relay at or
    past the position; for the hop `republished` alone.
    """
    if counted:
        hops = hops.filter(pa.compute.equal(hops["hop"], 1))
    backlogs, number_of = _build_backlogs(flow_partitions, records, withheld)
    backlog = number_of[numbers(hops["backlog"]) + len(number_of) // 2]
    position, known_end = numbers(hops["position"]), numbers(hops["known_end"])
    at, after = backlogs.find(backlog, position)
    waits = (position < known_end) & (after > 0)
    oldest = np.flatnonzero(waits)
    waits[oldest] = backlogs.offsets[at[oldest]] < known_end[oldest]
    since = np.full(len(waits), NOTHING)
    since[waits] = backlogs.stamps[at[waits]]
    found = hops.append_column("waiting_since", pa.array(since, mask=since == NOTHING).cast(TIME))
    if counted:
        _, past = backlogs.find(backlog, known_end)
        found = found.append_column("records", pa.array(np.where(position < known_end, after - past, 0)))
        held = np.zeros(len(at), np.int64)
        held[after > 0] = backlogs.offsets[at[after > 0] + after[after > 0] - 1] + 1
        found = found.append_column("held", pa.array(held, mask=after == 0))
    return found


def _build_backlogs(flow_partitions: pa.Table, records: pa.Table, withheld: pa.Table) -> tuple[_Backlogs, Ints]:
    """Order the records of all backlogs, and number these; a flow that withheld nothing shares its source partition's."""
    counts, held = lists(records["records"])
    partitions = [SourcePartitionKey(*row) for row in rows(records, SourcePartitionKey._fields)]
    known: dict[SourcePartitionKey, tuple[Ints, Ints]] = {}
    for partition, (begin, end) in zip(partitions, pairwise([0, *np.cumsum(counts)]), strict=True):
        offsets, stamps = held["offset"][begin:end], held["stamp"][begin:end]
        if np.any(offsets[1:] < offsets[:-1]):
            order = np.argsort(offsets, kind="stable")
            offsets, stamps = offsets[order], stamps[order]
        known[partition] = offsets, stamps
    parts, number_of_partition = list(known.values()), {partition: number for number, partition in enumerate(known)}
    kept_back = _ranges(withheld)
    # By backlog: positive for a flow's partition, negative for a source partition.
    number_of = np.full(2 * len(flow_partitions) + 1, -1)
    for row in flow_partitions.to_pylist():
        partition = SourcePartitionKey(*(row[name] for name in SourcePartitionKey._fields))
        number = number_of_partition.get(partition, -1)
        number_of[len(flow_partitions) - row["source_number"]] = number_of[
            len(flow_partitions) + row["flow_partition"]
        ] = number
        if number >= 0 and row["flow_partition"] in kept_back:
            offsets, stamps = known[partition]
            sent = ~_within(offsets, *kept_back[row["flow_partition"]])
            number_of[len(flow_partitions) + row["flow_partition"]] = len(parts) if sent.any() else -1
            if sent.any():
                parts.append((offsets[sent], stamps[sent]))
    if not parts:
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    starts = np.concatenate([[0], np.cumsum([len(offsets) for offsets, _ in parts])])
    offsets, stamps = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Backlogs(offsets, stamps, starts), number_of


def _ranges(withheld: pa.Table) -> dict[int, tuple[Ints, Ints]]:
    """Return the withheld ranges of each backlog: first offsets and lengths."""
    backlog, first, length = (numbers(withheld[name]) for name in ("backlog", "first", "length"))
    order = np.argsort(backlog, kind="stable")
    each, begins = np.unique(backlog[order], return_index=True)
    parts = zip(*(np.split(column[order], begins[1:]) for column in (first, length)), strict=True)
    return dict(zip(each.tolist(), parts, strict=False))


def _within(offsets: Ints, first: Ints, length: Ints) -> np.typing.NDArray[np.bool_]:
    """Flag the offsets in withheld ranges; ranges may overlap, because a restarted sender writes some again."""
    edges = np.zeros(len(offsets) + 1, np.int64)
    np.add.at(edges, np.searchsorted(offsets, first), 1)
    np.add.at(edges, np.searchsorted(offsets, first + length), -1)
    return np.cumsum(edges[:-1]) > 0
