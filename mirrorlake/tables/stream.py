"""Keep typed tables: catch up from the relays of their topics, then take the batches of one query that all of them share.

To catch up is a batch of what the relays hold past a table's positions, up to their newest versions. The query reads the versions
after these. It keeps no progress that counts, so a table joins and leaves while others go on, one that fails stops nobody, and any
of them goes on after any pause, however little of the relays' logs is left.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.model.owner import new_owner
from mirrorlake.progress import ProgressCallback, log_context
from mirrorlake.tables.decode import PLACE
from mirrorlake.tables.definition import TypedTable, find_tables
from mirrorlake.tables.progress import Overtaken, forget_erased
from mirrorlake.tables.relay import TableRelay, past, records_of_table, session_of, with_sources
from mirrorlake.tables.writer import TableWriter, Widens, Written
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# A batch that was read before an erasure has ended by then.
_ERASED_LATELY = timedelta(days=1)
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
# Other tables wait while one writes what it missed during its catch-up.
_MAX_BLOCKING_S = 30.0


class TableStream:
    """Keep one typed table; `tell` gets the number of records that were read, `queries` has the query of all tables."""

    def __init__(
        self, context: Context, table: TypedTable, *, tell: ProgressCallback, queries: SharedQuery, owner: str = ""
    ) -> None:
        self._context = context
        self._lake = context.lake
        self._table = table
        self._tell = tell
        self._queries = queries
        self._owner = owner or new_owner()
        self._relay = TableRelay(context.lake, table, session_of(context.lake.spark))
        self._writer = TableWriter(context, table, self._relay, owner=self._owner)
        self.written = Written()

    def run(self, stop: threading.Event, *, once: bool) -> Written:
        """Write records until `stop` is set, or with `once` those that the relays hold now.

        Raises:
            SafetyError: another run writes the table.
            StoreError: the table's log is broken.
            UsageError: a record is no row, and `bad_records` is `stop`; or an expression of the settings fails.
        """
        if self._table.fault is not None:
            raise self._table.fault
        anew = False
        with log_context(table=self._table.name):
            while not stop.is_set():
                try:
                    self._writer.open(anew=anew)
                    since = self._context.now() - _ERASED_LATELY
                    forget_erased(self._lake, self._table.name, self._table.topics, since=since)
                    if once:
                        self._catch_up()
                        break
                    self._queries.feed(_Subscriber(self._table, self._batch, self._cancel, stop), self._catch_up)
                except Overtaken:
                    anew = False
                except Widens:
                    anew = self._writer.may_rebuild = self._may_rebuild()
                    log.info("table.widens table=%s rebuilds=%s", self._table.name, anew)
                else:
                    anew = False
        return self.written

    def _may_rebuild(self) -> bool:
        """Return whether the relay still holds the record of each row."""
        self._relay.refresh()
        rows = self._lake.load_typed(self._relay.session.read, self._table.name)
        return bool(rows.join(self._relay.records().select(*PLACE), PLACE, "left_anti").isEmpty())

    def _catch_up(self) -> Mapping[str, int]:
        self._relay.refresh()
        is_whole = self._writer.is_stale
        self._write(self._relay.records() if is_whole else self._relay.past(self._writer.progress.positions))
        return self._relay.versions

    def _batch(self, records: DataFrame) -> None:
        # A thread of the query has neither.
        records.sparkSession.sparkContext.addJobTag(self._owner)
        with log_context(table=self._table.name):
            self._write(past(records_of_table(records, self._table), self._writer.progress.positions))

    def _cancel(self) -> None:
        self._lake.spark.sparkContext.cancelJobsWithTag(self._owner)

    def _write(self, records: DataFrame) -> None:
        self.written += self._writer.write(records)
        self._tell(f"table {self._table.name}", self.written.records, None)


class _Subscriber:
    """A table that takes the batches of the query, which also hold records of others and before its positions."""

    def __init__(
        self,
        table: TypedTable,
        write: Callable[[DataFrame], None],
        cancel: Callable[[], object],
        stop: threading.Event,
    ) -> None:
        self.table = table
        self.stop = stop
        self.taken = -1
        self.failure: BaseException | None = None
        self._write = write
        self._cancel = cancel
        self._lock = threading.Lock()
        self._has_left = False

    def take(self, frame: DataFrame, batch: int) -> None:
        with self._lock:
            if not self._has_left and self.failure is None:
                try:
                    self._write(frame)
                except BaseException as error:
                    self.failure = error
        self.taken = batch

    def leave(self) -> None:
        """Wait for the batch under way; take no other. Its jobs are cancelled after `grace_s`. Raise its failure, unless stopped."""
        # Again and again, because a job may start between two cancellations.
        while not self._lock.acquire(timeout=timing().grace_s):
            self._cancel()
        self._has_left = True
        self._lock.release()
        if self.failure is not None and not self.stop.is_set():
            raise self.failure


class SharedQuery:
    """Follow the relays of all typed tables by one streaming query, from the first subscriber until the last one has left.

    A query for each table would list and read the same commits again.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._running: _Query | None = None

    def feed(self, subscriber: _Subscriber, catch_up: Callable[[], Mapping[str, int]]) -> None:
        """Write the relays' records to a subscriber until it stops, or until maintenance has deleted a commit that was not read.

        `catch_up` writes what the relays hold past the subscriber's positions, and returns the versions that it read.
        """
        stop, versions = subscriber.stop, _caught_up(catch_up, subscriber.stop)
        if stop.is_set():
            return
        with self._lock:
            query = self._running
            if query is None or not query.is_active or not versions.keys() <= query.sources:
                if query is not None:
                    query.end()
                query = self._running = _Query(self._context, versions)
            query.members += 1
        try:
            with query.lock:
                # No batch is written meanwhile: what came before it is in the catch-up, what comes after it in a batch.
                catch_up()
                query.subscribers.append(subscriber)
            while not stop.wait(_POLL_INTERVAL_S) and query.is_active and subscriber.failure is None:
                pass
            subscriber.leave()
        finally:
            with self._lock:
                query.members -= 1
                if subscriber in query.subscribers:
                    query.subscribers.remove(subscriber)
                if not query.members:
                    query.end()
        if not stop.is_set():
            query.require_sound()


class _Query:
    """One streaming query over relays, from versions on; `lock` is held while a batch is written."""

    def __init__(self, context: Context, versions: Mapping[str, int]) -> None:
        lake, tables = context.lake, find_tables(context)
        self.sources = {source for table in tables for source in table.topics} | versions.keys()
        self.subscribers: list[_Subscriber] = []
        self.members = 0
        self.lock = threading.Lock()
        self._resources = ExitStack()
        session, relays = session_of(lake.spark), {}
        for source in sorted(self.sources):
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

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    def end(self) -> None:
        self._query.stop()
        self._resources.close()

    def require_sound(self) -> None:
        """Raise why the query has failed, unless maintenance was faster."""
        if (failure := self._query.exception()) is not None:
            if not any(sign in str(failure) for sign in _CLEANED_LOG):
                raise failure
            log.info("tables.overtaken_by_log_cleaning")

    def _write(self, frame: DataFrame, batch: int) -> None:
        from pyspark import InheritableThread
        from pyspark.sql import functions as F

        with self.lock:
            subscribers = [one for one in self.subscribers if one.failure is None]
            if not subscribers:
                return
            topics = [F.col("topic").rlike(one.table.config.topics_regex) for one in subscribers]
            # The files are read once for all tables.
            frame = frame.where(reduce(lambda one, other: one | other, topics))
            frame = frame.persist() if len(subscribers) > 1 else frame
            try:
                # They have the query's properties of jobs.
                threads = [InheritableThread(target=one.take, args=(frame, batch)) for one in subscribers]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            finally:
                frame.unpersist()
            for one in subscribers:
                if one.taken != batch:
                    # pyspark connects a thread to the JVM before its target: one that got no connection took nothing.
                    one.failure = one.failure or RuntimeError("the thread of a table ended before it took its batch")


def _caught_up(catch_up: Callable[[], Mapping[str, int]], stop: threading.Event) -> Mapping[str, int]:
    """Catch up until what comes meanwhile is little, or no less than before; return the versions that were read last."""
    took_s = math.inf
    while True:
        begun, before_s = time.monotonic(), took_s
        versions = catch_up()
        took_s = time.monotonic() - begun
        if stop.is_set() or took_s < _MAX_BLOCKING_S or took_s >= before_s:
            return versions
