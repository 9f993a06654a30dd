"""One lane's share of the records to send, and how a task sends it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mirrorlake.kafka.lane import Batch, LaneSender, LaneSpec
from mirrorlake.lake import RelayFile
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.progress import log_context
from mirrorlake.rules import View

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAssignment:
    """One lane's share: its spec, the files with its records, and the target of each source partition.

    `skip_before_ms` drops older leading records of partitions without a position (a flow's `start`). `ranges` are the upstream
    offsets `[first, end)` to send of each partition; None for all.
    """

    spec: LaneSpec
    files: tuple[RelayFile, ...]
    targets: Mapping[SourcePartition, TopicPartition]
    skip_before_ms: int | None = None
    view: View | None = None
    ranges: Mapping[SourcePartition, tuple[int, int]] | None = None


def lane_log_context(spec: LaneSpec) -> AbstractContextManager[None]:
    return log_context(flow=spec.claim.flow, lane=spec.claim.lane)


def send_lane(sender: LaneSender, work: LaneAssignment, batches: Iterator[Batch]) -> Iterator[LedgerRecord]:
    if work.ranges is not None:
        batches = _clip(batches, work.ranges)
    if work.skip_before_ms is not None:
        batches = _skip_older(batches, work.skip_before_ms, sender.positions)
    yield from sender.send(batches, work.view)


def _clip(batches: Iterable[Batch], ranges: Mapping[SourcePartition, tuple[int, int]]) -> Iterator[Batch]:
    for batch in batches:
        first, last = np.searchsorted(batch.offsets, ranges[batch.source]).tolist()
        if first < last:
            yield replace(batch, records=batch.records.slice(first, last - first))


def _skip_older(batches: Iterator[Batch], start_ms: int, positions: Mapping[SourcePartition, int]) -> Iterator[Batch]:
    started = set(positions)
    for batch in batches:
        if batch.source not in started:
            stamps = batch.records.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
            late = [row for row, stamp in enumerate(stamps.to_pylist()) if stamp >= start_ms]
            if not late:
                continue
            started.add(batch.source)
            batch = replace(batch, records=batch.records.slice(late[0]))
        yield batch


# A Python worker serves many tasks; caching its producers saves each of them the connections and init_transactions. The sequence
# number shows that another worker has used the lane; it is opened again then.
_SENDERS: dict[tuple[str, int], LaneSender] = {}


def cached_sender(spec: LaneSpec) -> LaneSender:
    """Return a lane's sender, opened if this worker has none that can continue."""
    key = spec.claim.flow, spec.claim.lane
    sender = _SENDERS.get(key)
    if sender is None or not sender.accept(spec):
        if sender is not None:
            sender.close()
        if not _SENDERS:
            # PySpark collects garbage after each task; pyarrow's and pandas' modules are 20 to 35 ms of that.
            gc.collect()
            gc.freeze()
        sender = _SENDERS[key] = LaneSender(spec)
        sender.open()
        log.info("lane.opened flow=%s lane=%s epoch=%s seq=%s", *key, spec.claim.epoch, sender.seq)
    return sender
