"""Follow relays for several typed tables at once: one streaming query, whose batches all of them write.

A query for each table would list and read the same commits again. The query keeps no progress that counts: a table's positions
are in its own commits. So a table joins and leaves while others go on, and one that fails stops nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.lake import Lake
from mirrorlake.landing import GRACE_S
from mirrorlake.model.owner import new_owner
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.relay_records import session_of, with_source

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
_LOOK_EVERY_S = 0.2
_SHORT_S = 30.0


class Subscriber:
    """A table that writes the batches of a shared query.

    Args:
        table: the table.
        write: writes a batch of relay records, those of other tables and those before its positions among them.
        stop: is set when the table is to leave.
    """

    def __init__(self, table: TypedTable, write: Callable[[DataFrame], None], stop: threading.Event) -> None:
        self.table = table
        self.stop = stop
        self._write = write
        self._lock = threading.Lock()
        self._run: int | None = None
        self._has_missed = False
        self._failure: BaseException | None = None

    def miss(self) -> None:
        """Note that there was a batch, or may have been one, which this table did not write."""
        self._has_missed = True

    def take(self, frame: DataFrame, run: int) -> None:
        """Write a batch of a run of the query, unless the table is not ready for that run, or has failed."""
        with self._lock:
            # Of another run, batches may lie between its positions and this one.
            if run != self._run:
                self.miss()
            elif self._failure is None:
                try:
                    self._write(frame)
                except BaseException as error:
                    self._failure = error

    def get_ready(self, run: int, catch_up: Callable[[], object]) -> None:
        """Take the batches of a run from now on; `catch_up` writes those that were missed, while the next one waits."""
        with self._lock:
            if self._has_missed:
                catch_up()
            self._run = run

    def leave(self, others: Sequence[Subscriber]) -> None:
        """Take no further batch, after the one under way; if all others leave, too, it is given `GRACE_S`.

        Raises:
            BaseException: what a batch failed with.
        """
        while not self._lock.acquire(timeout=GRACE_S):
            if all(one.stop.is_set() for one in others):
                # The end of the query cuts it.
                return
        self._run = None
        self._lock.release()
        self.require_unfailed()

    def require_unfailed(self) -> None:
        """Raise what a batch failed with, if one did."""
        if self._failure is not None:
            raise self._failure


class SharedQuery:
    """Follow relays by one streaming query, from the first subscriber that is ready until the last one has left.

    Args:
        lake: the lake of the relays.
        sources: their clusters.
        every_s: seconds between two batches.
    """

    def __init__(self, lake: Lake, sources: frozenset[str], every_s: float) -> None:
        self._lake = lake
        self._sources = sorted(sources)
        self._every_s = every_s
        self._subscribers: list[Subscriber] = []
        self._query: StreamingQuery | None = None
        self._run = 0
        self._resources = ExitStack()
        self._lock = threading.Lock()

    @contextmanager
    def _subscribed(self, subscriber: Subscriber) -> Iterator[None]:
        """Give a subscriber all batches while the block runs, once it is ready."""
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
        """Give a subscriber the relays' records until it is to stop, or until maintenance has deleted a commit that was not read.

        `catch_up` writes what the relays hold past the subscriber's positions, and returns the versions that it read.

        Raises:
            StreamingQueryException: the query failed.
            BaseException: what the subscriber failed with.
        """
        stop = subscriber.stop
        with self._subscribed(subscriber):
            took_s = _SHORT_S
            # Other tables wait for what it misses meanwhile.
            while took_s >= _SHORT_S:
                if stop.is_set():
                    return
                begun = time.monotonic()
                versions = catch_up()
                took_s = time.monotonic() - begun
            with self._lock:
                query = self._query
                if query is None or not query.isActive:
                    for other in self._subscribers:
                        if other is not subscriber:
                            other.miss()
                    query = self._start(versions)
                run = self._run
            subscriber.get_ready(run, catch_up)
            while not stop.wait(_LOOK_EVERY_S) and query.isActive:
                subscriber.require_unfailed()
            subscriber.leave(self._subscribers)
            if not stop.is_set() and (failure := query.exception()) is not None:
                if not any(sign in str(failure) for sign in _CLEANED_LOG):
                    raise failure
                log.info("tables.overtaken_by_log_cleaning table=%s", subscriber.table.name)

    def _start(self, versions: Mapping[str, int]) -> StreamingQuery:
        self._stop()
        self._run += 1
        log.info("tables.query_started sources=%s every_s=%g", ",".join(self._sources), self._every_s)
        session, frames = session_of(self._lake.spark), []
        for source in self._sources:
            reader = (
                session.readStream.format("delta")
                .option("maxBytesPerTrigger", _MAX_BYTES_PER_TRIGGER)
                # Maintenance, erasure and repair rewrite records that were landed before.
                .option("skipChangeCommits", "true")
                .option("failOnDataLoss", "true")
                # A version that is not there yet is refused; each table leaves out again what it has read of this one.
                .option("startingVersion", versions[source])
            )
            frames.append(with_source(self._lake.load_relay(reader, source), source))
        self._query = (
            reduce(lambda one, other: one.unionByName(other), frames)
            .writeStream.queryName(f"tables of {', '.join(self._sources)} every {self._every_s:g} s")
            .option("checkpointLocation", self._resources.enter_context(self._checkpoint_location()))
            .foreachBatch(partial(self._batch, self._run))
            .trigger(processingTime=f"{int(self._every_s * 1000)} milliseconds")
            .start()
        )
        return self._query

    def _stop(self) -> None:
        if self._query is not None and self._query.isActive:
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

    def _batch(self, run: int, frame: DataFrame, _number: int) -> None:
        # Without the lock: who ends the query holds it, and waits for this batch.
        subscribers = tuple(self._subscribers)
        if len(subscribers) < 2:
            for one in subscribers:
                one.take(frame, run)
            return
        from pyspark import InheritableThread
        from pyspark.sql import functions as F

        topics = [F.col("topic").rlike(one.table.config.topics_regex) for one in subscribers]
        # The files are read once for all tables.
        frame = frame.where(reduce(lambda one, other: one | other, topics)).persist()
        try:
            # They have the job group of the query, whose end cancels their jobs.
            threads = [InheritableThread(target=one.take, args=(frame, run)) for one in subscribers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            frame.unpersist()


class SharedQueries:
    """The queries of one process: tables of the same sources and interval share one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queries: dict[tuple[frozenset[str], float], SharedQuery] = {}
        self._lock = threading.Lock()

    def of(self, table: TypedTable) -> SharedQuery:
        """Return the query of a table."""
        sources, every_s = frozenset(table.topics), table.config.every.total_seconds()
        with self._lock:
            return self._queries.setdefault((sources, every_s), SharedQuery(self._context.lake, sources, every_s))
