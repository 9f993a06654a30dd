"""Keep typed tables: catch up from the relays of their topics, then take the batches of one query that all of them share.

To catch up is a batch of what the relays hold past a table's positions, up to their newest versions. The query reads the versions
after these. It keeps no progress that counts, so a table joins and leaves while others go on, one that fails stops nobody, and any
of them goes on after any pause, however little of the relays' logs is left.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.model.owner import new_owner
from mirrorlake.progress import ProgressCallback, log_context
from mirrorlake.tables.definition import TypedTable, find_tables
from mirrorlake.tables.formats import PLACE
from mirrorlake.tables.progress import (
    Overtaken,
    TableRelay,
    forget_erased,
    past,
    records_of_table,
    session_of,
    with_sources,
)
from mirrorlake.tables.writer import TableWriter, Widens, Written
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)

# While a table writes what came during the last of these, the others wait.
_CATCH_UPS = 3
# The size of a micro-batch; the default of 1 000 files would allow a batch of any size after a pause.
_MAX_BYTES_PER_TRIGGER = "512m"
# Delta's errors for commits that maintenance deleted before a slow query read them.
_CLEANED_LOG = (
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
)
_POLL_INTERVAL_S = 0.2
# A batch that was read before an erasure has ended by then.
_ERASED_LATELY = timedelta(days=1)


class TableStream:
    """Keep one typed table; `tell` gets the number of records that were read, `queries` has the query of all tables.

    Attributes:
        takes: whether the table takes the batches of the query.
        failure: why it takes no other.
    """

    def __init__(
        self,
        context: Context,
        table: TypedTable,
        *,
        tell: ProgressCallback,
        queries: SharedQuery | None = None,
        owner: str = "",
    ) -> None:
        self.table = table
        self.written = Written()
        self.takes = False
        self.failure: BaseException | None = None
        self._context = context
        self._lake = context.lake
        self._tell = tell
        self._queries = queries
        self._owner = owner or new_owner()
        self._session = session_of(context.lake.spark)
        self._writer = TableWriter(context, table, self._session, owner=self._owner)
        self._read: Mapping[str, int] = {}
        self._taking = threading.Lock()

    def run(self, stop: threading.Event, *, once: bool) -> Written:
        """Write records until `stop` is set, or with `once`, or without a query, those that the relays hold now.

        Raises:
            SafetyError: another run writes the table.
            StoreError: the table's log is broken.
            UsageError: a record is no row, and `bad_records` is `stop`; or an expression of the settings fails.
        """
        if self.table.fault is not None:
            raise self.table.fault
        anew = False
        with log_context(table=self.table.name):
            while not stop.is_set():
                try:
                    self._writer.open(anew=anew)
                    self._read, self.failure, anew = {}, None, False
                    since = self._context.now() - _ERASED_LATELY
                    forget_erased(self._lake, self.table.name, self.table.topics, since=since)
                    if once or self._queries is None:
                        self.catch_up()
                        break
                    self._queries.feed(self, stop)
                except Overtaken:
                    pass
                except Widens:
                    anew = self._writer.may_rebuild = self._may_rebuild()
                    log.info("table.widens table=%s rebuilds=%s", self.table.name, anew)
        return self.written

    def _may_rebuild(self) -> bool:
        """Return whether the relay still holds the record of each row."""
        relay, rows = self._relay(), self._lake.load_typed(self._session.read, self.table.name)
        return bool(rows.join(relay.records().select(*PLACE), PLACE, "left_anti").isEmpty())

    def _relay(self) -> TableRelay:
        return TableRelay(self._lake, self.table, self._session)

    def catch_up(self) -> Mapping[str, int]:
        """Write what the relays hold past the table's positions; return the versions that it has read."""
        relay = self._relay()
        if relay.versions != self._read:
            is_whole = self._writer.is_stale
            self._write(relay.records() if is_whole else relay.past(self._writer.progress.positions))
            self._read = relay.versions
        return self._read

    def take(self, frame: DataFrame) -> None:
        """Write a batch of the query, which also holds records of other tables and before the table's positions."""
        with self._taking:
            if self.takes:
                # A thread of the query has neither.
                frame.sparkSession.sparkContext.addJobTag(self._owner)
                with log_context(table=self.table.name):
                    self._write(past(records_of_table(frame, self.table), self._writer.progress.positions))

    def leave(self) -> None:
        """Wait for the batch under way, and take no other; its jobs are cancelled after `grace_s`."""
        # Again and again, because a job may start between two cancellations.
        while not self._taking.acquire(timeout=timing().grace_s):
            self._lake.spark.sparkContext.cancelJobsWithTag(self._owner)
        self.takes = False
        self._taking.release()

    def _write(self, records: DataFrame) -> None:
        self.written += self._writer.write(records)
        self._tell(f"table {self.table.name}", self.written.records, None)


class SharedQuery:
    """Follow the relays of all typed tables by one streaming query, from the first table until the last one has left.

    A query for each table would list and read the same commits again.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        # Held while a batch is written.
        self._batches = threading.Lock()
        self._members: list[TableStream] = []
        self._query: StreamingQuery | None = None
        self._sources: set[str] = set()
        self._resources = ExitStack()

    def feed(self, stream: TableStream, stop: threading.Event) -> None:
        """Write the relays' records to a table until it stops, or until the query ends or another takes its place."""
        for _ in range(_CATCH_UPS):
            versions = stream.catch_up()
            if stop.is_set():
                return
        with self._lock:
            query = self._query
            if query is None or not query.isActive or not versions.keys() <= self._sources:
                query = self._started(versions)
            self._members.append(stream)
        try:
            with self._batches:
                # No batch is written meanwhile: what came before it is in the catch-up, what comes after it in a batch.
                stream.catch_up()
                stream.takes = query is self._query
            while stream.takes and not stop.wait(_POLL_INTERVAL_S) and query.isActive and stream.failure is None:
                pass
        finally:
            stream.leave()
            with self._lock:
                self._members.remove(stream)
                if not self._members:
                    self._end()
        if stop.is_set():
            return
        if stream.failure is not None:
            raise stream.failure
        # Maintenance may have been faster.
        if (failure := query.exception()) is not None:
            if not any(sign in str(failure) for sign in _CLEANED_LOG):
                raise failure
            log.info("tables.overtaken_by_log_cleaning")

    def _started(self, versions: Mapping[str, int]) -> StreamingQuery:
        """Start a query over the relays of all tables, of these from versions on; tables of one before leave it."""
        self._end()
        lake, tables = self._context.lake, find_tables(self._context)
        self._sources = {source for table in tables for source in table.topics} | versions.keys()
        session, relays = session_of(lake.spark), {}
        for source in sorted(self._sources):
            version = versions[source] if source in versions else lake.version(lake.relay_location(source))
            reader = (
                session.readStream.format("delta")
                .option("maxBytesPerTrigger", _MAX_BYTES_PER_TRIGGER)
                # Maintenance, erasure and repair rewrite records that an earlier commit landed.
                .option("skipChangeCommits", "true")
                # Delta refuses the version after this one while it is not there; tables drop what they have of this one.
                .option("startingVersion", version)
            )
            relays[source] = lake.load_relay(reader, source)
        # A runtime with a catalog may refuse a folder of the driver; nobody needs this one after the query.
        place = f"{lake.checkpoint_root()}/tables/{new_owner()}"
        if not lake.is_catalog:
            made = TemporaryDirectory(prefix="mirrorlake-tables-", ignore_cleanup_errors=True)
            place = Path(self._resources.enter_context(made)).as_uri()
        every = min((table.config.every for table in tables), default=timedelta(seconds=5))
        log.info("tables.query_started sources=%s every_s=%g", ",".join(relays), every.total_seconds())
        self._query = (
            with_sources(relays)
            .writeStream.queryName(f"tables of {', '.join(relays)}")
            .option("checkpointLocation", place)
            .foreachBatch(self._write)
            .trigger(processingTime=f"{int(every.total_seconds() * 1000)} milliseconds")
            .start()
        )
        return self._query

    def _end(self) -> None:
        # Not within a batch, whose jobs it would cancel.
        with self._batches:
            for one in self._members:
                one.takes = False
            query, self._query = self._query, None
        if query is not None:
            query.stop()
        self._resources.close()

    def _write(self, frame: DataFrame, _: int) -> None:
        from pyspark import inheritable_thread_target
        from pyspark.sql import functions as F

        with self._batches:
            takers = [one for one in [*self._members] if one.takes and one.failure is None]
            if not takers:
                return
            topics = [F.col("topic").rlike(one.table.config.topics_regex) for one in takers]
            # The files are read once for all tables.
            frame = frame.where(reduce(lambda one, other: one | other, topics))
            frame = frame.persist() if len(takers) > 1 else frame
            try:
                with ThreadPoolExecutor(len(takers)) as pool:
                    # They have the query's properties of jobs, each a copy: tags of jobs are among them.
                    session = frame.sparkSession
                    taking = {one: pool.submit(inheritable_thread_target(session)(one.take), frame) for one in takers}
            finally:
                frame.unpersist()
            for one, taken in taking.items():
                one.failure = taken.exception()
