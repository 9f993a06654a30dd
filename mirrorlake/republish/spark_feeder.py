"""Send rows that Spark reads, of a micro-batch or of a bounded read of the relay (`execution: streaming`).

Used if workers may not read the storage, or if a person wants Structured Streaming. Spark joins the rows with the lanes,
sorts them, and hands Arrow batches to the tasks, which send them as tasks that read files do.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlake.kafka.lane import Batch
from mirrorlake.lake import COLUMNS, RelayFile, RelayPart
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.progress import log_context
from mirrorlake.republish.files import list_files
from mirrorlake.republish.lane_tasks import LaneAssignment, cached_sender, lane_log_context, send_lane
from mirrorlake.republish.owned_flow import OwnedFlow
from mirrorlake.runtime import OUTPUT, TaskResult, WorkerLog, find_failure, result_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A bounded read is split into parts of this many records: the map is written, and a stop checked, every few seconds.
_PART_RECORDS = 2_000_000
_RECORD = "record"

_Rows = Iterator[pa.RecordBatch]


class Stopped(Exception):
    """The sending was stopped before its end; the ledger has the confirmed records."""


class SparkFeeder:
    """Feed the lanes of a flow; `stop` ends it between two parts."""

    def __init__(self, owned: OwnedFlow, stop: threading.Event) -> None:
        self._owned = owned
        self._stop = stop

    def send_backlog(self) -> int:
        """Send the relay's records that the ledger lacks. Return the relay's version that was sent."""
        owned, alias = self._owned, self._owned.flow.source
        version = owned.lake.version(owned.lake.relay_location(alias))
        relay = owned.lake.relay(alias, version=version)
        due = owned.due(_summarize(RelayPart(owned.claims.positions).rows(relay)))
        owned.progress.expect(due)
        with suppress(Stopped):
            for part in backfill_batches(due, _PART_RECORDS):
                self._send_all(part, _read_part(relay, part), batch=-1)
        return version

    def send(self, frame: DataFrame, *, batch: int) -> list[LedgerRecord]:
        """Send a frame's records of this flow. Return their ledger records.

        Raises:
            Stopped: it was stopped before the end.
        """
        frame = frame.persist()
        try:
            due = self._owned.due(_summarize(frame))
            self._owned.progress.expect(due)
            return self._send_all(due, frame, batch=batch)
        finally:
            frame.unpersist()

    def _send_all(self, due: list[RelayFile], frame: DataFrame, *, batch: int) -> list[LedgerRecord]:
        """Send rows. Return their ledger records; if a lane fails, the lake's tables have the commits until then."""
        if not due:
            return []
        if self._stop.is_set():
            raise Stopped
        owned = self._owned
        # Spark calls from a thread of its own.
        with log_context(flow=owned.flow.name, batch=batch):
            owned.ensure_remote_topics({file.source for file in due})
            by_lane = owned.group_by_lane(due)
            if not by_lane:
                return []
            work = {
                lane: owned.assign_lane(lane, {file.source for file in files}, batch=batch)
                for lane, files in by_lane.items()
            }
            fed = _sorted_by_lane(frame, work.values()).mapInArrow(_rows_job(work), OUTPUT)
            answers = [TaskResult(row.kind, bytes(row.body)) for row in fed.collect()]
            committed = [LedgerRecord.from_json(answer.body) for answer in answers if answer.kind == _RECORD]
            committed.sort(key=lambda record: (record.claim.lane, record.seq))
            recorded, failure = owned.record_committed(committed), find_failure(answers)
        if failure is not None:
            raise failure
        return recorded


def backfill_batches(due: Sequence[RelayFile], records: int) -> Iterator[list[RelayFile]]:
    """Split each source partition's offsets into the same number of ranges; one range of each makes a batch of about `records`."""
    count = math.ceil(sum(file.records for file in due) / records)
    for number in range(count):
        part = []
        for file in due:
            width = file.last_offset + 1 - file.first_offset
            first, end = (file.first_offset + width * at // count for at in (number, number + 1))
            if first < end:
                part.append(replace(file, first_offset=first, last_offset=end - 1))
        yield part


def _summarize(frame: DataFrame) -> list[RelayFile]:
    from pyspark.sql import functions as F

    return list_files(frame.withColumn("file", F.lit("")))


def _read_part(relay: DataFrame, part: Sequence[RelayFile]) -> DataFrame:
    """Return the rows between the first and the last offset of each source partition."""
    from pyspark.sql import functions as F

    firsts = {file.source: file.first_offset for file in part}
    ends = {file.source: file.last_offset + 1 for file in part}
    listed = [(s.topic, s.generation, s.partition, first, ends[s]) for s, first in firsts.items()]
    columns = "topic string, generation int, partition int, first bigint, end bigint"
    ranges = F.broadcast(relay.sparkSession.createDataFrame(listed, columns))
    # Spark skips files by the part's conditions; if there are too many, the join filters the rest.
    rows = RelayPart(firsts, ends=ends, others=False).rows(relay)
    return rows.join(ranges, ["topic", "generation", "partition"]).where("offset >= first AND offset < end")


def _sorted_by_lane(frame: DataFrame, work: Iterable[LaneAssignment]) -> DataFrame:
    from pyspark.sql import functions as F

    listed = [(s.topic, s.generation, s.partition, one.spec.claim.lane) for one in work for s in one.targets]
    lanes = frame.sparkSession.createDataFrame(listed, "topic string, generation int, partition int, lane int")
    columns = ["lane", "topic", "generation", "partition", *COLUMNS]
    return (
        frame.join(F.broadcast(lanes), ["topic", "generation", "partition"])
        .select(*columns)
        .repartition(len({lane for *_, lane in listed}), "lane")
        .sortWithinPartitions("lane", "topic", "generation", "partition", "offset")
    )


def _rows_job(work: Mapping[int, LaneAssignment]) -> Callable[[_Rows], _Rows]:
    worker_log = WorkerLog.from_environment()

    def job(relay: _Rows) -> _Rows:
        worker_log.attach()
        pieces = (piece for records in relay for piece in _split(records))
        for lane, group in groupby(pieces, key=lambda piece: piece[0]):
            targets = work[lane].targets
            batches = (Batch(source, targets[source], records) for _, source, records in group if source in targets)
            yield from result_batches(_send(work[lane], batches))

    return job


def _send(work: LaneAssignment, batches: Iterator[Batch]) -> Iterator[TaskResult]:
    with lane_log_context(work.spec):
        for record in send_lane(cached_sender(work.spec), work, batches):
            yield TaskResult(_RECORD, record.to_json())


def _split(records: pa.RecordBatch) -> Iterator[tuple[int, SourcePartition, pa.RecordBatch]]:
    lanes, topics, generations, partitions = (records.column(i).to_pylist() for i in range(4))
    keys = zip(lanes, topics, generations, partitions, strict=True)
    start = 0
    for (lane, topic, generation, partition), group in groupby(keys):
        length = sum(1 for _ in group)
        columns = records.slice(start, length).select(list(COLUMNS))
        yield lane, SourcePartition(topic, generation, partition), columns
        start += length
