"""Keep a typed table: a Structured Streaming query over the relays of its topics.

Each start first reads what the relays hold past the table's positions, up to their newest versions, as a batch. The query reads
the versions after these, and gives way to such a batch where maintenance has deleted the next one. So a table needs no checkpoint
location of an earlier run, and goes on after any pause, however little of the relays' logs is left.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.lake import RelayPart
from mirrorlake.landing import await_query
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.owner import new_owner
from mirrorlake.progress import ProgressCallback, log_context
from mirrorlake.runtime import is_connect, prepare
from mirrorlake.tables.commits import Overtaken, forget_erased
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.make import make_writer
from mirrorlake.tables.worker_files import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

# The size of a micro-batch; the default of 1 000 files would allow a batch of any size after a pause.
_MAX_BYTES_PER_TRIGGER = "512m"
# Delta's errors for commits that maintenance deleted before a slow query read them.
_CLEANED_LOG = (
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
)
# A batch that was read before an erasure has ended by then.
_ERASED_LATELY = timedelta(days=1)


class TableStream:
    """Keep one typed table.

    Args:
        context: the mirror's.
        table: the table.
        tell: gets the number of records that were read.
    """

    def __init__(self, context: Context, table: TypedTable, *, tell: ProgressCallback) -> None:
        self._context = context
        self._lake = context.lake
        self._table = table
        self._tell = tell
        self._owner = new_owner()
        self._writer = make_writer(context, table, owner=self._owner)
        self.written = Written()
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event, *, once: bool) -> Written:
        """Write records until `stop` is set, or with `once` those that the relays hold now.

        Raises:
            SafetyError: another run writes the table.
            UsageError: a record is no row, and `bad_records` is `stop`; or an expression of the settings fails.
        """
        if self._table.fault is not None:
            raise self._table.fault
        with log_context(table=self._table.name):
            self._session = session_of(self._lake.spark)
            is_read = False
            while not stop.is_set() and not (once and is_read):
                self._writer.open()
                since = self._context.now() - _ERASED_LATELY
                forget_erased(self._lake, self._table.name, self._table.topics, since=since)
                with suppress(Overtaken):
                    self._read(stop, once=once)
                    is_read = True
        return self.written

    def _read(self, stop: threading.Event, *, once: bool) -> None:
        every_s = self._table.config.every.total_seconds()
        versions = self._catch_up()
        while not once and not stop.is_set():
            if is_connect(self._lake.spark):
                stop.wait(every_s)
            else:
                self._follow(versions, stop, every_s)
            if not stop.is_set():
                versions = self._catch_up()

    def _catch_up(self) -> dict[str, int]:
        """Write what the relays hold past the positions, and return the versions that were read."""
        versions, frames = {}, []
        for source in self._table.topics:
            location = self._lake.relay_location(source)
            versions[source] = self._lake.version(location)
            reader = self._session.read.option("versionAsOf", versions[source])
            relay = self._lake.load_relay(reader, source)
            positions = self._writer.progress.positions.get(source, {})
            frames.append(records_of_table(RelayPart(positions).rows(relay), self._table, source))
        self._write(reduce(lambda one, other: one.unionByName(other), frames))
        return versions

    def _follow(self, versions: Mapping[str, int], stop: threading.Event, every_s: float) -> None:
        """Write the relays' new versions until `stop` is set, or until maintenance has deleted one that was not read."""
        frames = []
        for source, version in versions.items():
            reader = (
                self._session.readStream.format("delta")
                .option("maxBytesPerTrigger", _MAX_BYTES_PER_TRIGGER)
                # A version that is not there yet is refused; what was read of this one is left out again.
                # Maintenance, erasure and repair rewrite records that were landed before.
                .option("skipChangeCommits", "true")
                .option("failOnDataLoss", "true")
                .option("startingVersion", version)
            )
            frames.append(records_of_table(self._lake.load_relay(reader, source), self._table, source))
        with self._checkpoint_location() as location:
            query = (
                reduce(lambda one, other: one.unionByName(other), frames)
                .writeStream.queryName(self._table.stream)
                .option("checkpointLocation", location)
                .foreachBatch(self._batch)
                .trigger(processingTime=f"{int(every_s * 1000)} milliseconds")
                .start()
            )
            try:
                await_query(query, stop)
            except Exception as error:
                failure, self._failure = self._failure, None
                if failure is None and any(sign in str(error) for sign in _CLEANED_LOG):
                    log.info("tables.overtaken_by_log_cleaning table=%s", self._table.name)
                    return
                raise failure or error from None

    @contextmanager
    def _checkpoint_location(self) -> Iterator[str]:
        """Yield a checkpoint location that nobody needs after the query: only the driver uses it."""
        if self._lake.is_catalog:
            # A runtime with a catalog may refuse a folder of the driver.
            yield f"{self._lake.checkpoint_root()}/tables/{self._table.name}/{self._owner}"
            return
        with TemporaryDirectory(prefix="mirrorlake-table-", ignore_cleanup_errors=True) as folder:
            yield Path(folder).as_uri()

    def _batch(self, frame: DataFrame, batch: int) -> None:
        try:
            # Spark calls from a thread of its own.
            with log_context(table=self._table.name, batch=batch):
                self._write(frame)
        except BaseException as error:
            self._failure = error
            raise

    def _write(self, frame: DataFrame) -> None:
        self.written += self._writer.write(past(frame, self._writer.progress.positions))
        self._tell(f"table {self._table.name}", self.written.records, None)


def session_of(spark: SparkSession) -> SparkSession:
    """Return a session for one table: the transaction of a MERGE is a setting of its session."""
    if is_connect(spark):
        return spark
    session = prepare(spark.newSession())
    for name in ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone"):
        session.conf.set(name, str(spark.conf.get(name)))
    return session


def records_of_table(relay: DataFrame, table: TypedTable, source: str) -> DataFrame:
    """Return the records of a table's topics, with their coordinates as columns of the table."""
    from pyspark.sql import functions as F

    chosen = relay.where(F.col("topic").rlike(table.config.topics_regex))
    if "{topic}" in table.config.name:
        chosen = chosen.where(F.col("topic").isin(*table.topics[source]))
    return chosen.select(
        F.lit(source).alias("_source"),
        *(F.col(name).alias(f"_{name}") for name in ("topic", "generation", "partition", "offset", "timestamp")),
        "key",
        "value",
        *(["headers"] if table.config.through else []),
    )


def past(frame: DataFrame, positions: Mapping[str, Mapping[SourcePartition, int]]) -> DataFrame:
    """Return the records at or past the position of their partition."""
    if not any(positions.values()):
        return frame
    return _with_position(frame, positions).where("_offset >= coalesce(_position, 0)").drop("_position")


def before(frame: DataFrame, positions: Mapping[str, Mapping[SourcePartition, int]]) -> DataFrame:
    """Return the records before the position of their partition."""
    return _with_position(frame, positions).where("_offset < _position").drop("_position")


def _with_position(frame: DataFrame, positions: Mapping[str, Mapping[SourcePartition, int]]) -> DataFrame:
    from pyspark.sql import functions as F

    known = [
        (source, at.topic, at.generation, at.partition, position)
        for source, of_source in positions.items()
        for at, position in of_source.items()
    ]
    columns = "_source string, _topic string, _generation int, _partition int, _position bigint"
    table = F.broadcast(frame.sparkSession.createDataFrame(known, columns))
    return frame.join(table, ["_source", "_topic", "_generation", "_partition"], "left")
