"""Follow relays for several typed tables at once: one streaming query, whose batches all of them write.

A query for each table would list and read the same commits again. The query keeps no progress that counts: a table's positions
are in its own commits. So a table joins and leaves while others go on, and one that fails stops nobody.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.lake import Lake
from mirrorlake.model.owner import new_owner
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.relay_records import session_of, with_sources
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

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
_POLL_INTERVAL_S = 0.2
# Other tables wait while one writes what it missed during its catch-up.
_MAX_BLOCKING_S = 30.0


class Subscriber:
    """A table that writes the batches of a shared query.

    `write` gets batches that may also hold records of other tables and records before this table's positions; `cancel` cancels its
    Spark jobs.
    """

    def __init__(
        self,
        table: TypedTable,
        write: Callable[[DataFrame], None],
        *,
        cancel: Callable[[], object],
        stop: threading.Event,
    ) -> None:
        self.table = table
        self.stop = stop
        self.last_batch: tuple[int, int] | None = None
        self._write = write
        self._cancel = cancel
        self._lock = threading.Lock()
        self._query_number: int | None = None
        self._has_missed = False
        self._failure: BaseException | None = None

    def mark_missed(self) -> None:
        """Note that a batch may have passed that this table did not write."""
        self._has_missed = True

    def take(self, frame: DataFrame, query_number: int, batch: int) -> None:
        self.last_batch = query_number, batch
        with self._lock:
            # Another query may have started past this table's positions.
            if query_number != self._query_number:
                self.mark_missed()
            elif self._failure is None:
                try:
                    self._write(frame)
                except BaseException as error:
                    self._failure = error

    def join(self, query_number: int, catch_up: Callable[[], object]) -> None:
        """Catch up if a batch was missed, then take the batches of this query; the next batch waits meanwhile."""
        with self._lock:
            if self._has_missed:
                catch_up()
            self._query_number = query_number

    def leave(self) -> None:
        """Wait for the batch under way; take no other. Its jobs are cancelled after `grace_s`. Raise its failure, unless stopped."""
        # Again and again, because a job may start between two cancellations.
        while not self._lock.acquire(timeout=timing().grace_s):
            self._cancel()
        self._query_number = None
        self._lock.release()
        if not self.stop.is_set():
            self.raise_failure()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class SharedQuery:
    """Follow relays by one streaming query, from the first subscriber that is ready until the last one has left."""

    def __init__(self, lake: Lake, sources: frozenset[str], every_s: float) -> None:
        self._lake = lake
        self._sources = sorted(sources)
        self._every_s = every_s
        self._subscribers: list[Subscriber] = []
        self._query: StreamingQuery | None = None
        self._number = 0
        self._resources = ExitStack()
        self._lock = threading.Lock()

    @contextmanager
    def _subscribed(self, subscriber: Subscriber) -> Iterator[None]:
        with self._lock:
            self._subscribers.append(subscriber)
        try:
            yield
        finally:
            with self._lock:
                self._subscribers.remove(subscriber)
                if not self._subscribers:
                    self._stop()

    def feed(self, subscriber: Subscriber, catch_up: Callable[[], Mapping[str, int]]) -> None:
        """Write the relays' records to a subscriber until it stops, or until maintenance has deleted a commit that was not read.

        `catch_up` writes what the relays hold past the subscriber's positions, and returns the versions that it read.
        """
        stop = subscriber.stop
        with self._subscribed(subscriber):
            versions = _catch_up_shortly(catch_up, stop)
            if stop.is_set():
                return
            query, number = self._running(subscriber, versions)
            subscriber.join(number, catch_up)
            while not stop.wait(_POLL_INTERVAL_S) and query.isActive:
                subscriber.raise_failure()
            subscriber.leave()
            if not stop.is_set() and (failure := query.exception()) is not None:
                if not any(sign in str(failure) for sign in _CLEANED_LOG):
                    raise failure
                log.info("tables.overtaken_by_log_cleaning table=%s", subscriber.table.name)

    def _running(self, subscriber: Subscriber, versions: Mapping[str, int]) -> tuple[StreamingQuery, int]:
        """Return the running query and its number; where none runs, start one after the versions that the subscriber has read."""
        with self._lock:
            if self._query is None or not self._query.isActive:
                for other in self._subscribers:
                    # Their catch-up may have read versions before these.
                    if other is not subscriber:
                        other.mark_missed()
                self._query = self._start(versions)
            return self._query, self._number

    def _start(self, versions: Mapping[str, int]) -> StreamingQuery:
        self._stop()
        self._number += 1
        log.info("tables.query_started sources=%s every_s=%g", ",".join(self._sources), self._every_s)
        session, relays = session_of(self._lake.spark), {}
        for source in self._sources:
            reader = (
                session.readStream.format("delta")
                .option("maxBytesPerTrigger", _MAX_BYTES_PER_TRIGGER)
                # Maintenance, erasure and repair rewrite records that an earlier commit landed.
                .option("skipChangeCommits", "true")
                # Delta refuses the version after this one while it is not there; tables drop what they have of this one.
                .option("startingVersion", versions[source])
            )
            relays[source] = self._lake.load_relay(reader, source)
        return (
            with_sources(relays)
            .writeStream.queryName(f"tables of {', '.join(self._sources)} every {self._every_s:g} s")
            .option("checkpointLocation", self._resources.enter_context(self._checkpoint_location()))
            .foreachBatch(partial(self._write, self._number))
            .trigger(processingTime=f"{int(self._every_s * 1000)} milliseconds")
            .start()
        )

    def _stop(self) -> None:
        if self._query is not None:
            self._query.stop()
        self._query = None
        self._resources.close()

    @contextmanager
    def _checkpoint_location(self) -> Iterator[str]:
        """Yield a checkpoint location that nobody needs after the query: only the driver uses it."""
        if self._lake.is_catalog:
            # A runtime with a catalog may refuse a folder of the driver.
            yield f"{self._lake.checkpoint_root()}/tables/{new_owner()}"
            return
        with TemporaryDirectory(prefix="mirrorlake-tables-", ignore_cleanup_errors=True) as folder:
            yield Path(folder).as_uri()

    def _write(self, query_number: int, frame: DataFrame, batch: int) -> None:
        # Without the lock: who ends the query holds it, and waits for this batch.
        subscribers = tuple(self._subscribers)
        if len(subscribers) < 2:
            for one in subscribers:
                one.take(frame, query_number, batch)
            return
        from pyspark import InheritableThread
        from pyspark.sql import functions as F

        topics = [F.col("topic").rlike(one.table.config.topics_regex) for one in subscribers]
        # The files are read once for all tables.
        frame = frame.where(reduce(lambda one, other: one | other, topics)).persist()
        try:
            # They have the query's properties of jobs.
            threads = [InheritableThread(target=one.take, args=(frame, query_number, batch)) for one in subscribers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            frame.unpersist()
        # pyspark connects a thread to the JVM before its target: one that got no connection took nothing.
        if any(one.last_batch != (query_number, batch) for one in subscribers):
            raise RuntimeError("a thread of a table ended before it took its batch")


def _catch_up_shortly(catch_up: Callable[[], Mapping[str, int]], stop: threading.Event) -> Mapping[str, int]:
    """Catch up until what comes meanwhile is little, or no less than before; return the versions that were read last."""
    took_s = math.inf
    while True:
        begun, before_s = time.monotonic(), took_s
        versions = catch_up()
        took_s = time.monotonic() - begun
        if stop.is_set() or took_s < _MAX_BLOCKING_S or took_s >= before_s:
            return versions


class SharedQueries:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._queries: dict[tuple[frozenset[str], float], SharedQuery] = {}
        self._lock = threading.Lock()

    def find(self, table: TypedTable) -> SharedQuery:
        sources, every_s = frozenset(table.topics), table.config.every.total_seconds()
        with self._lock:
            return self._queries.setdefault((sources, every_s), SharedQuery(self._context.lake, sources, every_s))
