"""The driver's half of `live.py`: start a flow's long-lived tasks, read from the ledger what they commit, and copy it to the lake."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager

from pyspark.sql import SparkSession

from mirrorlake.errors import ClusterUnreachable, LoginRefused, MirrorlakeError
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.lake import RelayLog
from mirrorlake.landing import GRACE_S
from mirrorlake.model.flow import SourcePartition, transactional_id
from mirrorlake.model.owner import short_owner
from mirrorlake.republish.live import LOOK_EVERY_S, UNREADY, LiveWork, follow_live
from mirrorlake.republish.owned_flow import OwnedFlow
from mirrorlake.runtime import GoesOn, LiveTasks

log = logging.getLogger(__name__)

# How often the ledger of long-lived tasks is read, and how often it is copied to the lake: an append costs 40 ms of CPU, and
# questions read what the tables lack from the ledger.
KEEP_EVERY_S = 1.0
COPY_EVERY_S = 5.0
# How often live tasks are started again for topics that are empty, and whose remote topic was made meanwhile.
READY_EVERY_S = 30.0


class LedgerOutages:
    """Go on while a flow's ledger does not answer; log the begin and the end of each outage once."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._since: float | None = None

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Go on where the ledger cannot be read: the tasks have a patience of their own, and what they commit waits there.

        A refused login is raised: tasks send over connections that are open, and only a new start resolves the secret again.
        """
        try:
            yield
        except LoginRefused:
            raise
        except ClusterUnreachable as error:
            if self._since is None:
                self._since = time.monotonic()
                log.warning("republish.ledger_away flow=%s why=%s", self._flow, error.cause)
        else:
            if self._since is not None:
                log.warning("republish.ledger_back flow=%s after_s=%.0f", self._flow, time.monotonic() - self._since)
                self._since = None


def send_by_tasks(
    owned: OwnedFlow,
    relay: RelayLog,
    spark: SparkSession,
    *,
    tasks: int,
    ignored: Set[SourcePartition],
    stop: threading.Event,
) -> set[SourcePartition]:
    """Send by long-lived tasks until `stop` is set, or they end; return the source partitions that were not ready."""
    flow, heard, claim = owned.flow, owned.settings.listener, owned.claims.claim
    owned.make_all_ready()
    with _logging_failure(flow.name):
        owned.make_empty_ready()
    folder = f"{owned.lake.checkpoint_root()}/live/republish.{transactional_id(claim.flow, 0)}"
    goes_on = GoesOn(folder, claim.epoch)
    by_lane: dict[int, set[SourcePartition]] = {lane: set() for lane in range(claim.lanes)}
    for source in owned.ready:
        by_lane[owned.lane_of(source)].add(source)
    work = [
        LiveWork(
            lanes=tuple(owned.lane_work(lane, by_lane[lane]) for lane in range(number, claim.lanes, tasks)),
            relay=relay.path,
            version=relay.version,
            ignored=frozenset(ignored),
            goes_on=goes_on,
            pace_s=max(LOOK_EVERY_S, flow.trigger.total_seconds()),
        )
        for number in range(tasks)
    ]
    outages = LedgerOutages(flow.name)
    name, options = f"republish {flow.name}@{short_owner(claim.owner)}", owned.settings.reader_options
    with LedgerReader(flow.target, flow.ledger_topic, options) as ledger:
        read_to = {lane: max(0, ledger.ends(lane)[1] - 1) for lane in by_lane}
        next_copy, next_look = 0.0, time.monotonic() + READY_EVERY_S
        with LiveTasks(spark, work, follow_live, goes_on=goes_on, name=name, grace_s=GRACE_S) as live:
            while not live.wait(KEEP_EVERY_S) and not stop.is_set():
                is_due = time.monotonic() >= next_copy
                if is_due:
                    next_copy = time.monotonic() + COPY_EVERY_S
                with outages.tolerated():
                    owned.keep_since(ledger, read_to, copies=is_due)
                heard.looked(None)
                owned.progress.report()
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + READY_EVERY_S
                    is_ready = False
                    with _logging_failure(flow.name):
                        is_ready = owned.make_empty_ready()
                    # The tasks end for what was released: what it missed is sent before they go on with it (law D).
                    is_ready |= owned.check_waiting()
                    if is_ready:
                        break
        owned.keep_since(ledger, read_to)
    return {
        SourcePartition(*key) for answer in live.answers() if answer.kind == UNREADY for key in json.loads(answer.body)
    }


@contextmanager
def _logging_failure(flow: str) -> Iterator[None]:
    try:
        yield
    except MirrorlakeError as error:
        log.info("republish.not_looked flow=%s why=%s", flow, error.cause)
