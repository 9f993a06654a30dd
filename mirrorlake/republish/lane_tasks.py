"""Run the lanes of a batch as Spark tasks (DESIGN 9).

A task reads the relay's Parquet files itself. With `execution: streaming` Spark reads, groups by lane and sorts, and hands
Arrow batches over.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorlake import errors
from mirrorlake.kafka.lane import Batch, LaneSender, LaneTask
from mirrorlake.lake import COLUMNS, RelayFile, read_by_source
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.progress import about
from mirrorlake.rules import View
from mirrorlake.runtime import OUTPUT, TaskAnswer, WorkerLog, failure_of, rows, run_here, run_tasks

log = logging.getLogger(__name__)

_RECORD = "record"

_Rows = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWork:
    """One lane's part of a batch: who sends, which files hold the records, and where each partition goes.

    `at_most_s` ends the work after the chunk that is under way then; what is left is sent next time. `skip_before_ms` drops
    the leading records that are older (a flow's `start`), of partitions without a position. `spans` are the first upstream
    offset and the one after the last that are sent of each partition; None for all.
    """

    task: LaneTask
    files: tuple[RelayFile, ...]
    targets: Mapping[SourcePartition, TopicPartition]
    skip_before_ms: int | None = None
    view: View | None = None
    at_most_s: float | None = None
    spans: Mapping[SourcePartition, tuple[int, int]] | None = None


def run_lanes(spark: SparkSession, work: Sequence[LaneWork], *, frame: DataFrame | None = None) -> list[LedgerRecord]:
    """Send a batch and return the ledger records that were committed, in order per lane.

    `frame` is the batch itself where Spark reads it, None where the workers read the files.

    Raises:
        LanesFailed: a lane stopped, after the other lanes came to their end.
    """
    if not work:
        return []
    if frame is None:
        return _committed(run_tasks(spark, work, _send_files))
    fed = _sorted_by_lane(frame, work).mapInArrow(_rows_job({w.task.claim.lane: w for w in work}), OUTPUT)
    return _committed([TaskAnswer(row.kind, bytes(row.body)) for row in fed.collect()])


def run_lanes_here(work: Sequence[LaneWork], *, stop: threading.Event, grace_s: float) -> list[LedgerRecord]:
    """Send a batch as `run_lanes` does, in threads of this process; each has a view of its own, as a worker has.

    Raises:
        LanesFailed: a lane stopped, after the other lanes came to their end.
        Exception: `stop` was set, and a lane did not come to its end soon.
    """
    copies: list[LaneWork] = [cloudpickle.loads(cloudpickle.dumps(one)) for one in work]
    return _committed(run_here(copies, _send_once, stop=stop, grace_s=grace_s))


def _committed(answers: Sequence[TaskAnswer]) -> list[LedgerRecord]:
    committed = [LedgerRecord.from_json(answer.body) for answer in answers if answer.kind == _RECORD]
    committed.sort(key=lambda record: (record.claim.lane, record.seq))
    if (failure := failure_of(answers)) is not None:
        raise LanesFailed(failure, committed)
    return committed


class LanesFailed(Exception):
    """A lane stopped; `committed` still belongs into the offset map."""

    def __init__(self, failure: errors.MirrorlakeError, committed: list[LedgerRecord]) -> None:
        self.failure = failure
        self.committed = committed
        super().__init__(str(failure))


def _send_files(work: LaneWork) -> Iterator[TaskAnswer]:
    yield from _send(work, batches_of_files(work.files, work.targets))


def _send_once(work: LaneWork) -> Iterator[TaskAnswer]:
    sender = LaneSender(work.task)
    try:
        with about_lane(work.task):
            for record in send_lane(sender, work, batches_of_files(work.files, work.targets)):
                yield TaskAnswer(_RECORD, record.to_json())
    finally:
        sender.close()


def _rows_job(work: Mapping[int, LaneWork]) -> Callable[[_Rows], _Rows]:
    worker_log = WorkerLog.asked()

    def job(relay: _Rows) -> _Rows:
        worker_log.attach()
        parts = (part for records in relay for part in _split(records))
        for lane, group in groupby(parts, key=lambda part: part[0]):
            targets = work[lane].targets
            batches = (Batch(source, targets[source], records) for _, source, records in group if source in targets)
            yield from rows(_send(work[lane], batches))

    return job


def batches_of_files(files: Iterable[RelayFile], targets: Mapping[SourcePartition, TopicPartition]) -> Iterator[Batch]:
    """Read the records of files, those of each source partition in order."""
    for source, records in read_by_source(files):
        yield Batch(source, targets[source], records)


def _sorted_by_lane(frame: DataFrame, work: Sequence[LaneWork]) -> DataFrame:
    lane_of = {source: w.task.claim.lane for w in work for source in w.targets}
    rows = [(s.topic, s.generation, s.partition, lane) for s, lane in lane_of.items()]
    lanes = frame.sparkSession.createDataFrame(rows, "topic string, generation int, partition int, lane int")
    columns = ["lane", "topic", "generation", "partition", *COLUMNS]
    return (
        frame.join(F.broadcast(lanes), ["topic", "generation", "partition"])
        .select(*columns)
        .repartition(len(work), "lane")
        .sortWithinPartitions("lane", "topic", "generation", "partition", "offset")
    )


def _split(rows: pa.RecordBatch) -> Iterator[tuple[int, SourcePartition, pa.RecordBatch]]:
    lanes, topics, generations, partitions = (rows.column(i).to_pylist() for i in range(4))
    keys = zip(lanes, topics, generations, partitions, strict=True)
    start = 0
    for (lane, topic, generation, partition), group in groupby(keys):
        length = sum(1 for _ in group)
        yield lane, SourcePartition(topic, generation, partition), rows.slice(start, length).select(list(COLUMNS))
        start += length


# A Python worker serves many tasks; its producers are kept between them, so that a batch costs no connection and no
# init_transactions. A lane that another worker has moved on is noticed by its sequence number and opened again.
_SENDERS: dict[tuple[str, int], LaneSender] = {}


def _send(work: LaneWork, batches: Iterator[Batch]) -> Iterator[TaskAnswer]:
    until = None if work.at_most_s is None else time.monotonic() + work.at_most_s
    with about_lane(work.task):
        for record in send_lane(held_sender(work.task), work, batches):
            yield TaskAnswer(_RECORD, record.to_json())
            if until is not None and time.monotonic() > until:
                break


def about_lane(task: LaneTask) -> AbstractContextManager[None]:
    """Name the flow and the lane in every line that is logged within the block."""
    return about(flow=task.claim.flow, lane=task.claim.lane)


def send_lane(sender: LaneSender, work: LaneWork, batches: Iterator[Batch]) -> Iterator[LedgerRecord]:
    """Send a lane's records, and yield what was committed."""
    if work.spans is not None:
        batches = within(batches, work.spans)
    if work.skip_before_ms is not None:
        batches = _not_before(batches, work.skip_before_ms, sender.positions)
    yield from sender.send(batches, work.view)


def within(batches: Iterable[Batch], spans: Mapping[SourcePartition, tuple[int, int]]) -> Iterator[Batch]:
    """Yield the part of batches, in offset order, that lies in the span of its source partition."""
    for batch in batches:
        first, last = np.searchsorted(batch.offsets(), spans[batch.source]).tolist()
        if first < last:
            yield replace(batch, records=batch.records.slice(first, last - first))


def _not_before(batches: Iterator[Batch], start_ms: int, positions: Mapping[SourcePartition, int]) -> Iterator[Batch]:
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


def held_sender(task: LaneTask) -> LaneSender:
    """Return the sender of a lane; it is opened where this worker does not hold it already."""
    key = task.claim.flow, task.claim.lane
    sender = _SENDERS.get(key)
    if sender is None or not sender.still_serves(task):
        if sender is not None:
            sender.close()
        if not _SENDERS:
            # PySpark collects garbage after each task; pyarrow's and pandas' modules are 20 to 35 ms of that.
            gc.collect()
            gc.freeze()
        sender = _SENDERS[key] = LaneSender(task)
        sender.open()
        log.info("lane.opened flow=%s lane=%s epoch=%s seq=%s", *key, task.claim.epoch, sender.seq)
    return sender
