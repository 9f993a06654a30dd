"""The driver's half of `follower.py`: share a plan out to tasks, read from the ledger what they commit, and copy it to the lake."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from mirrorlake.errors import ClusterUnreachable, LoginRefused, MirrorlakeError
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.lake import RelayFile, RelayLog, copy_interval_s, poll_interval_s
from mirrorlake.landing import GRACE_S
from mirrorlake.model.flow import SourcePartition, transactional_id
from mirrorlake.model.owner import short_owner
from mirrorlake.republish.follower import FollowerSpec, read_results, run_follower
from mirrorlake.republish.lane_tasks import LaneAssignment
from mirrorlake.republish.owned_flow import OwnedFlow
from mirrorlake.runtime import LiveTasks, RunMarker

log = logging.getLogger(__name__)

# How often the ledger of long-lived tasks is read.
LEDGER_INTERVAL_S = 1.0
# How often live tasks are started again for topics that are empty, and whose remote topic was made meanwhile.
READY_INTERVAL_S = 30.0
# A committed record is visible once the coordinator has written its marker.
_VISIBLE_TIMEOUT_S = 10.0


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


def send_by_followers(
    owned: OwnedFlow,
    relay: RelayLog,
    files: Sequence[RelayFile],
    spark: SparkSession | None,
    *,
    tasks: int,
    ends: bool,
    ignored: Iterable[str],
    stop: threading.Event,
) -> set[SourcePartition]:
    """Send the files, and unless it `ends` there what is committed to the relay after them, until `stop` is set.

    `files` of the listed `relay` hold what the ledger does not; `ignored` source topics are not sent. The lanes are shared
    among `tasks` tasks of a session that nothing else uses; without `spark` they are threads of this process. Return the
    source partitions that were not ready: what they wait for is to be planned again.
    """
    owned.ensure_remote_topics({file.source for file in files})
    if not ends:
        owned.ensure_sent_topics()
        with _logging_failure(owned.flow.name):
            owned.ensure_empty_topics()
    claim = owned.claims.claim
    folder = f"{owned.lake.checkpoint_root()}/live/republish.{transactional_id(claim.flow, 0)}"
    pace_s = poll_interval_s(relay.path, owned.flow.trigger)
    # On a store each look is a request.
    run_marker = RunMarker(folder, claim.epoch, interval_s=pace_s if ":/" in relay.path else 0.0)
    lanes = _assign_lanes(owned, files, ends=ends)
    if not lanes:
        return set()
    # The lanes of one task share the rate that a flow is held to.
    tasks = 1 if owned.flow.rate.rate else min(tasks, len(lanes))
    work = [
        FollowerSpec(
            lanes=tuple(lanes[number::tasks]),
            relay=relay.path,
            version=relay.version,
            ends=ends,
            ignored=frozenset(ignored),
            run_marker=run_marker,
            poll_interval_s=pace_s,
            looks_quickly=not owned.flow.trigger and ":/" not in relay.path,
            caches_producers=spark is not None,
        )
        for number in range(tasks)
    ]
    if spark is None:
        # Each has a view of its own, as a worker has.
        work = [cloudpickle.loads(cloudpickle.dumps(one)) for one in work]
    name, options = f"republish {claim.flow}@{short_owner(claim.owner)}", owned.settings.reader_options
    with LedgerReader(owned.flow.target, owned.flow.ledger_topic, options) as ledger:
        read_to = {lane: max(0, ledger.ends(lane)[1] - 1) for lane in range(claim.lanes)}
        with LiveTasks(
            spark, work, run_follower, run_marker=run_marker, name=name, grace_s=GRACE_S, end_apart=ends
        ) as live:
            _watch(owned, live, ledger, read_to, ends=ends, stop=stop)
        owned.record_from_ledger(ledger, read_to)
        unready, last = read_results(live.results())
        _await_ledger(owned, ledger, read_to, last)
    return unready


def _assign_lanes(owned: OwnedFlow, files: Iterable[RelayFile], *, ends: bool) -> list[LaneAssignment]:
    """Return the lanes with their files; of a flow that stays on all, with the partitions that are ready."""
    due = owned.group_by_lane(files)
    sources: dict[int, set[SourcePartition]] = {}
    for source in owned.ready:
        sources.setdefault(owned.lane_of(source), set()).add(source)
    lanes = sorted(due) if ends else range(owned.claims.claim.lanes)
    return [
        owned.assign_lane(lane, sources.get(lane, set()), files=due.get(lane, ()), rate=owned.flow.rate.rate)
        for lane in lanes
    ]


def _watch(
    owned: OwnedFlow,
    live: LiveTasks,
    ledger: LedgerReader,
    read_to: dict[int, int],
    *,
    ends: bool,
    stop: threading.Event,
) -> None:
    """Take note of what the tasks commit, until they have ended, or are to end."""
    outages = LedgerOutages(owned.flow.name)
    next_copy, next_check = 0.0, time.monotonic() + READY_INTERVAL_S
    while not live.wait(LEDGER_INTERVAL_S) and not stop.is_set():
        is_due = time.monotonic() >= next_copy
        if is_due:
            next_copy = time.monotonic() + copy_interval_s(owned.lake.address)
        with outages.tolerated():
            owned.record_from_ledger(ledger, read_to, copies=is_due)
        owned.settings.listener.polled(None)
        owned.progress.report()
        if not ends and time.monotonic() >= next_check:
            next_check = time.monotonic() + READY_INTERVAL_S
            is_ready = False
            with _logging_failure(owned.flow.name):
                is_ready = owned.ensure_empty_topics()
            # The tasks end for what was released: what it missed is sent before they go on with it (law D).
            is_ready |= owned.release_topics()
            if is_ready:
                return


def _await_ledger(owned: OwnedFlow, ledger: LedgerReader, read_to: dict[int, int], last: Mapping[int, int]) -> None:
    """Wait until the ledger shows what the tasks committed last."""
    deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
    while any(owned.claims.seqs.get(lane, -1) < seq for lane, seq in last.items()):
        if time.monotonic() > deadline:
            # A stranger's open transaction hides it; the next start counts it.
            log.warning("republish.ledger_hidden flow=%s", owned.flow.name)
            return
        time.sleep(0.02)
        owned.record_from_ledger(ledger, read_to)


@contextmanager
def _logging_failure(flow: str) -> Iterator[None]:
    try:
        yield
    except MirrorlakeError as error:
        log.info("republish.not_looked flow=%s why=%s", flow, error.cause)
