"""Land every record of the source topics, byte for byte, into the relay of the source cluster.

A long-lived task or a query reads, then appends with the batch's own transaction id. Before each start, relay, commits and (for
a query) its checkpoint location are compared with the source. What cannot be continued without a loss is refused (`halt`), or
recorded in `gaps` and skipped (`record`): records that left the source, a truncated log.

Law F (repeatable): a commit carries how far its batch has read, and the table knows the batches it holds. Two landers of one
source, or one that slept, write nothing twice: the relay has one writer (`mirrorlake.lake.fenced_writer`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from mirrorlake.errors import ClusterUnreachable, LanderReplaced
from mirrorlake.kafka import ClusterAdmin, leaderless_error
from mirrorlake.lake import FencedRelayWriter, Lake
from mirrorlake.landing.context import LandingContext
from mirrorlake.landing.live_driver import LiveDriver
from mirrorlake.landing.query_driver import QueryDriver, reported_ends
from mirrorlake.landing.retry import backoff_s, retry_or_raise, should_wait_for_source
from mirrorlake.landing.settings import LandSettings
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.runtime import LiveTaskSlots
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


class Lander:
    """Land one source cluster. It only reads from the source (law H).

    Several starts of one stream share a `writer`, which knows whether another lander claimed the relay between them.
    """

    def __init__(
        self,
        lake: Lake,
        admin: ClusterAdmin,
        settings: LandSettings,
        *,
        now: Callable[[], datetime],
        tell: ProgressCallback = ignore_progress,
        writer: FencedRelayWriter | None = None,
    ) -> None:
        self._admin = admin
        self._settings = settings
        self._context = LandingContext(lake, admin, settings, now=now, writer=writer)
        self._live = LiveDriver(self._context, self._account_periodically)
        self._query = QueryDriver(self._context, self._account_periodically)
        self._slots = partial(LiveTaskSlots, lambda: lake.spark)
        # Tasks write the relay's log themselves, so they land only if this process reaches the lake without Spark.
        self._is_live = settings.live and lake.relay_log(settings.alias) is not None
        self._next_account = 0.0
        self._tell = partial(tell, f"land {settings.alias}")
        self._is_heard = tell is not ignore_progress
        self._once = False
        self._left: int | None = None

    @property
    def records(self) -> int:
        return self._context.accounts.records

    def run(self, *, once: bool, stop: threading.Event, rebuild: bool = False) -> None:
        """Land until the source is drained (`once`), or until `stop` is set and the present batch has landed.

        `rebuild` makes a new checkpoint location from the relay, after the old one was lost.

        Raises:
            CheckpointLost: the checkpoint location disagrees with the relay.
            SourceGap: records left the source before they were landed, and `on_gap` is `halt`.
            ClusterUnreachable: the source does not answer, or a drain left out leaderless partitions.
        """
        attempts, self._once, context = 0, once, self._context
        slot_count = (self._settings.tasks or 1) if self._is_live and not once else 0
        with self._slots(slot_count) as slots:
            while not stop.is_set():
                is_live = self._is_live and self._live.can_read and slots.is_enough
                # Without `__consumer_offsets` the reader would make the broker create it (law H).
                is_live = is_live and (not once or self._admin.was_consumed())
                try:
                    start = context.prepare(
                        once=once, rebuild=rebuild, is_live=is_live, may_resume=self._query.may_resume
                    )
                except ClusterUnreachable as error:
                    if not should_wait_for_source(error, attempts, once=once):
                        raise
                    attempts += 1
                    stop.wait(backoff_s(attempts))
                    continue
                rebuild, batches, is_replaced = False, context.batches, False
                if once and context.is_drained:
                    # A query would find the same, but starting Spark costs more than this whole run.
                    self._tell(self.records, self.records)
                    self._require_leaders()
                    return
                try:
                    if is_live:
                        is_done = self._live.land(start or {}, stop, once=once, slot_count=slots.taken)
                    else:
                        is_done = self._query.land(start, stop, once=once)
                except Exception as error:
                    is_replaced = isinstance(error, LanderReplaced)
                    if is_replaced:
                        raise
                    if stop.is_set():
                        # The turn took longer than the stop's grace period.
                        return
                    attempts = 1 if context.batches > batches else attempts + 1
                    failure = None if is_live else self._query.failure
                    try:
                        retry_or_raise(self._admin, error, failure, attempts, once=once, stop=stop)
                    except LanderReplaced:
                        is_replaced = True
                        raise
                    continue
                finally:
                    # The successor of a fenced lander accounts for its batches.
                    if not is_replaced:
                        context.account_for_landed()
                if once and is_done:
                    self._tell(self.records, None if stop.is_set() else self.records)
                    if not stop.is_set():
                        self._require_leaders()
                    return

    def _require_leaders(self) -> None:
        if leaderless := self._context.leaderless:
            landed = "all other partitions were landed up to their ends"
            raise leaderless_error(self._settings.alias, leaderless, landed=landed)

    def _account_periodically(self, query: StreamingQuery | None = None) -> None:
        if time.monotonic() >= self._next_account:
            before, context = self.records, self._context
            context.update_landed()
            context.account_for_landed()
            self._next_account = time.monotonic() + timing().account_interval_s
            if self._is_heard and self._once:
                # Remaining offsets estimate the remaining records: some are markers or compacted away.
                ends = self._admin.last_stable_offsets(context.current) if query is None else reported_ends(query)
                self._left = context.accounts.remaining_offsets(ends)
            if query is None:
                self._settings.listener.landed(self.records - before)
        self._tell(self.records, None if self._left is None else self.records + self._left)
