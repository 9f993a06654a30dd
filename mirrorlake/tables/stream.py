"""Keep a typed table: catch up from the relays of its topics, then take the batches of a shared query.

To catch up is a batch of what the relays hold past the table's positions, up to their newest versions. The query reads the versions
after these, and gives way to such a batch where maintenance has deleted the next one. So a table needs no checkpoint location of an
earlier run, and goes on after any pause, however little of the relays' logs is left.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.lake import RelayPart
from mirrorlake.model.owner import new_owner
from mirrorlake.progress import ProgressCallback, log_context
from mirrorlake.tables.commits import Overtaken, forget_erased
from mirrorlake.tables.definition import TypedTable
from mirrorlake.tables.make import make_writer
from mirrorlake.tables.relay_records import past, records_of_table, session_of, with_sources
from mirrorlake.tables.shared_query import SharedQueries, Subscriber
from mirrorlake.tables.worker_files import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A batch that was read before an erasure has ended by then.
_ERASED_LATELY = timedelta(days=1)


class TableStream:
    """Keep one typed table; `tell` gets the number of records that were read."""

    def __init__(
        self, context: Context, table: TypedTable, *, tell: ProgressCallback, queries: SharedQueries | None = None
    ) -> None:
        self._context = context
        self._lake = context.lake
        self._table = table
        self._tell = tell
        self._queries = SharedQueries(context) if queries is None else queries
        self._owner = new_owner()
        self._writer = make_writer(context, table, owner=self._owner)
        self.written = Written()

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
        if once:
            self._catch_up()
            return
        while not stop.is_set():
            subscriber = Subscriber(self._table, self._batch, cancel=self._cancel, stop=stop)
            self._queries.find(self._table).feed(subscriber, self._catch_up)

    def _catch_up(self) -> dict[str, int]:
        versions, relays = {}, {}
        for source in self._table.topics:
            location = self._lake.relay_location(source)
            versions[source] = self._lake.version(location)
            reader = self._session.read.option("versionAsOf", versions[source])
            positions = self._writer.progress.positions.get(source, {})
            relays[source] = RelayPart(positions).rows(self._lake.load_relay(reader, source))
        self._write(with_sources(relays))
        return versions

    def _batch(self, records: DataFrame) -> None:
        # A thread of the query has neither.
        records.sparkSession.sparkContext.addJobTag(self._owner)
        with log_context(table=self._table.name):
            self._write(records)

    def _cancel(self) -> None:
        self._lake.spark.sparkContext.cancelJobsWithTag(self._owner)

    def _write(self, records: DataFrame) -> None:
        chosen = past(records_of_table(records, self._table), self._writer.progress.positions)
        self.written += self._writer.write(chosen)
        self._tell(f"table {self._table.name}", self.written.records, None)
