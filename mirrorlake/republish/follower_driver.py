"""The driver's half of `follower.py`: assign a plan to tasks, read their commits from the ledger, and copy them to the lake."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirrorlake.errors import ClusterUnreachable, LoginRefused, MirrorlakeError
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.lake import RelayFile, RelayLog, copy_interval_s, poll_interval_s
from mirrorlake.model.flow import SourcePartition, transactional_id
from mirrorlake.model.owner import short_owner
from mirrorlake.republish.follower import FollowerSpec, read_results, run_follower
from mirrorlake.republish.lane_tasks import LaneAssignment
from mirrorlake.republish.owned_flow import OwnedFlow
from mirrorlake.runtime import LiveTasks, RunMarker, load_pyspark
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# How often the driver reads the ledger of its tasks.
LEDGER_INTERVAL_S = 1.0
# A committed record is visible only after the coordinator has written its marker.
_VISIBLE_TIMEOUT_S = 10.0


class LedgerOutages:
    """Tolerate an unreachable ledger, and log the start and the end of each outage once."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._since: float | None = None

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Tolerate an unreachable ledger: the tasks retry on their own, and their commits stay in it.

        A refused login is raised: only a new start reads the secret again.
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
    """Send the files, and unless it `ends` there, also later commits of the relay, until `stop` is set.

    Return the source partitions that were not ready; files of them must be planned again. `relay` is the log as it was listed for
    `files`. `spark` is a session of this flow alone; None runs the lanes in threads of this process.
    """
    load_pyspark()
    from pyspark import cloudpickle

    owned.ensure_remote_topics({file.source for file in files})
    if not ends:
        owned.ensure_sent_topics()
        with _logging_failure(owned.flow.name):
            owned.ensure_empty_topics()
    claim = owned.claims.claim
    folder = f"{owned.lake.checkpoint_root()}/live/republish.{transactional_id(claim.flow, 0)}"
    pace_s = poll_interval_s(relay.path, owned.flow.trigger)
    # On a store each check of the marker is a request.
    run_marker = RunMarker(folder, claim.epoch, interval_s=pace_s if ":/" in relay.path else 0.0)
    lanes = _assign_lanes(owned, files, ends=ends)
    if not lanes:
        return set()
    tasks = min(tasks, len(lanes))
    work = [
        FollowerSpec(
            lanes=tuple(lanes[number::tasks]),
            relay=relay.path,
            version=relay.version,
            ends=ends,
            ignored=frozenset(ignored),
            run_marker=run_marker,
            poll_interval_s=pace_s,
            polls_quickly=not owned.flow.trigger and ":/" not in relay.path,
            caches_producers=spark is not None,
        )
        for number in range(tasks)
    ]
    if spark is None:
        # A copy each, as workers have: a view is not shared between threads.
        work = [cloudpickle.loads(cloudpickle.dumps(one)) for one in work]
    name, options = f"republish {claim.flow}@{short_owner(claim.owner)}", owned.settings.reader_options
    with LedgerReader(owned.flow.target, owned.flow.ledger_topic, options) as ledger:
        read_to = {lane: max(0, ledger.ends(lane)[1] - 1) for lane in range(claim.lanes)}
        with LiveTasks(
            spark, work, run_follower, run_marker=run_marker, name=name, grace_s=timing().grace_s, end_apart=ends
        ) as live:
            _watch(owned, live, ledger, read_to, ends=ends, stop=stop)
        owned.record_from_ledger(ledger, read_to)
        unready, last = read_results(live.results())
        _await_ledger(owned, ledger, read_to, last)
    return unready


def _assign_lanes(owned: OwnedFlow, files: Iterable[RelayFile], *, ends: bool) -> list[LaneAssignment]:
    """Return the lanes with their files: lanes with due files if the followers end, else all lanes."""
    due = owned.group_by_lane(files)
    sources: dict[int, set[SourcePartition]] = {}
    for source in owned.ready:
        sources.setdefault(owned.lane_of(source), set()).add(source)
    lanes = sorted(due) if ends else range(owned.claims.claim.lanes)
    return [owned.assign_lane(lane, sources.get(lane, set()), files=due.get(lane, ())) for lane in lanes]


def _watch(
    owned: OwnedFlow,
    live: LiveTasks,
    ledger: LedgerReader,
    read_to: dict[int, int],
    *,
    ends: bool,
    stop: threading.Event,
) -> None:
    outages = LedgerOutages(owned.flow.name)
    next_copy, next_check = 0.0, time.monotonic() + timing().ready_interval_s
    while not live.wait(LEDGER_INTERVAL_S) and not stop.is_set():
        is_due = time.monotonic() >= next_copy
        if is_due:
            next_copy = time.monotonic() + copy_interval_s(owned.lake.address)
        with outages.tolerated():
            owned.record_from_ledger(ledger, read_to, copies=is_due)
        owned.settings.listener.polled()
        owned.progress.report()
        if not ends and time.monotonic() >= next_check:
            next_check = time.monotonic() + timing().ready_interval_s
            is_ready = False
            with _logging_failure(owned.flow.name):
                is_ready = owned.ensure_empty_topics()
            # The tasks must end for a released topic: the records that it missed are sent before newer ones (law D).
            is_ready |= owned.release_topics()
            if is_ready:
                return


def _await_ledger(owned: OwnedFlow, ledger: LedgerReader, read_to: dict[int, int], last: Mapping[int, int]) -> None:
    deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
    while any(owned.claims.seqs.get(lane, -1) < seq for lane, seq in last.items()):
        if time.monotonic() > deadline:
            # Another producer's open transaction hides the records; the next start counts them.
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
