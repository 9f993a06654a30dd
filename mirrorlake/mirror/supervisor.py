"""Run streams side by side, each with its own stop, so that one can change or fail while the others go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

from mirrorlake.errors import ClusterUnreachable, MirrorlakeError, StartAbandoned
from mirrorlake.mirror.parked_streams import ParkedStream, Stream, park_stream
from mirrorlake.model.parked import stream_facts, worst
from mirrorlake.timing import timing

log = logging.getLogger(__name__)

# A read of the table `control` costs 20 ms of a core; an operator who pauses can wait that long.
POLL_INTERVAL_S = 3.0
_TICK_S = 0.2


class Work(Protocol):
    """The work of a supervisor."""

    def wanted(self) -> Iterable[Stream]:
        """Return the streams that should run now."""

    def report(self, waiting: Mapping[str, ParkedStream], healthy: Mapping[str, datetime]) -> None:
        """Record the parked streams, and those that run well, each with the time since which it runs."""

    def lost(self) -> MirrorlakeError | None:
        """Return why no stream can run any more, or None while they can."""


@dataclass(slots=True)
class _Running:
    stream: Stream
    future: Future[Any]
    stop: threading.Event = field(default_factory=threading.Event)
    started: float = field(default_factory=time.monotonic)


class Supervisor:
    """Run the wanted streams until `stop` is set.

    A stream that fails is parked, and the others go on. If a restart can help, it is retried with growing pauses;
    otherwise it waits until its settings change or a person resumes it. A stream that another owner has claimed is
    not restarted by itself, so two mirrors never fight over it.
    """

    def __init__(
        self,
        work: Work,
        stop: threading.Event,
        *,
        isolates: bool = True,
        look_every_s: float = POLL_INTERVAL_S,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._work = work
        self._stop = stop
        self._isolates = isolates
        self._look_every_s = look_every_s
        self._now = now
        self._running: dict[str, _Running] = {}
        self._parked: dict[str, ParkedStream] = {}
        self._results: dict[str, list[Any]] = {}
        self._failure: BaseException | None = None
        self._began = time.monotonic()

    def run(self) -> Mapping[str, Sequence[Any]]:
        """Run the streams until they end, and return the results of each stream's calls.

        Raises:
            MirrorlakeError: the worst reason, if every stream is parked and none is retried; or nothing can run any more.
                Without isolation, the first failure, after the others finished their batch.
        """
        wanted: dict[str, Stream] = {}
        next_look = self._began = time.monotonic()
        with ThreadPoolExecutor(max_workers=1024, thread_name_prefix="mirrorlake") as pool:
            try:
                while not self._stop.is_set() and self._failure is None:
                    if time.monotonic() >= next_look or any(self._is_due(one) for one in wanted.values()):
                        wanted = {stream.name: stream for stream in self._work.wanted()}
                        next_look = time.monotonic() + self._look_every_s
                        self._start(pool, wanted)
                        self._work.report(self._parked, self._healthy())
                    if self._stop_unwanted(wanted):
                        next_look = time.monotonic()
                    self._wait()
                    self._end_where_all_are_parked(wanted)
            except KeyboardInterrupt:
                # The stop button of a notebook; a second press does not wait for the current batches.
                self._stop.set()
            finally:
                for one in self._running.values():
                    one.stop.set()
                while self._running:
                    self._wait()
        if self._failure is not None:
            self._work.report(self._parked, {})
            raise self._failure
        return self._results

    def _start(self, pool: ThreadPoolExecutor, wanted: Mapping[str, Stream]) -> None:
        for name in [name for name in self._parked if name not in wanted]:
            del self._parked[name]
        for name, stream in wanted.items():
            place = self._parked.get(name)
            if name in self._running or not (place is None or place.may_start(stream)):
                continue
            if place is not None and (place.retry_at is None or stream.made_of != place.stream.made_of):
                # A person has acted, so earlier failures no longer count.
                del self._parked[name]
            log.info("stream.start what=%s", name, extra={"facts": stream_facts(name)})
            stop = threading.Event()
            self._running[name] = _Running(stream, pool.submit(stream.call, stop), stop)

    def _is_due(self, stream: Stream) -> bool:
        place = self._parked.get(stream.name)
        return place is not None and stream.name not in self._running and place.may_start(stream)

    def _healthy(self) -> dict[str, datetime]:
        """Return the running streams, and since when they run; one that failed before must run for 60 s first."""
        since = time.monotonic() - timing().healthy_s
        for name, one in self._running.items():
            if one.started <= since and (place := self._parked.pop(name, None)) is not None:
                failed_s = (self._now() - place.parked.since).total_seconds() - timing().healthy_s
                log.warning(
                    "stream.recovered what=%s failed_s=%.0f", name, failed_s, extra={"facts": stream_facts(name)}
                )
        now, clock = self._now(), time.monotonic()
        return {
            name: now - timedelta(seconds=clock - one.started)
            for name, one in self._running.items()
            if name not in self._parked
        }

    def _stop_unwanted(self, wanted: Mapping[str, Stream]) -> bool:
        """Stop streams that are no longer wanted as they are; return whether any stream is stopping."""
        for name, one in self._running.items():
            if (name not in wanted or wanted[name].replaces(one.stream)) and not one.stop.is_set():
                log.info("stream.stop what=%s", name, extra={"facts": stream_facts(name)})
                one.stop.set()
        return any(one.stop.is_set() for one in self._running.values())

    def _wait(self) -> None:
        if not self._running:
            self._stop.wait(_TICK_S)
            return
        wait([one.future for one in self._running.values()], timeout=_TICK_S, return_when=FIRST_COMPLETED)
        for name, one in list(self._running.items()):
            if not one.future.done():
                continue
            del self._running[name]
            error = one.future.exception()
            if error is None:
                self._results.setdefault(name, []).append(one.future.result())
            elif isinstance(error, StartAbandoned):
                log.info("stream.not_begun what=%s", name, extra={"facts": stream_facts(name)})
            elif isinstance(error, ClusterUnreachable) and one.stop.is_set() and not self._stop.is_set():
                # A flow is often paused because its target is away.
                log.info("stream.stopped_while_away what=%s", name, extra={"facts": stream_facts(name)})
            elif self._isolates and isinstance(error, Exception):
                # A restart would fail for ever; the process manager starts another process. A requested stop may end the JVM
                # first, which is not a failure.
                if not self._stop.is_set() and (lost := self._work.lost()) is not None:
                    self._failure = self._failure or lost
                self._park(one, error)
            else:
                self._failure = self._failure or error

    def _park(self, one: _Running, error: Exception) -> None:
        name, now = one.stream.name, time.monotonic()
        before = self._parked.get(name) if now - one.started < timing().healthy_s else None
        never_came = now - self._began < timing().setup_s if before is None else before.never_came
        self._parked[name] = park_stream(one.stream, error, before, now=self._now, never_came=never_came)

    def _end_where_all_are_parked(self, wanted: Mapping[str, Stream]) -> None:
        """End the command if no stream runs or will restart by itself."""
        # A restarted stream stays in `_parked` until it has recovered.
        places = [self._parked.get(name) for name in wanted if name not in self._running]
        found = {place.parked: place.error for place in places if place is not None and place.is_hopeless}
        if wanted and len(found) == len(wanted) and self._failure is None:
            log.warning("run.all_parked streams=%s", len(found))
            reason = worst(found)
            self._failure = found[reason] if reason is not None else None


def drain(
    calls: Mapping[str, Callable[[], Any]], *, tick: Callable[[], None] = lambda: None
) -> tuple[list[Any], list[BaseException]]:
    """Run the calls side by side, each to its own end even if others fail; return results and failures.

    `tick` is called about five times a second by this thread.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(calls)), thread_name_prefix="mirrorlake") as pool:
        futures = {name: pool.submit(call) for name, call in calls.items()}
        while wait(futures.values(), timeout=_TICK_S).not_done:
            tick()
    failures = []
    for name, future in futures.items():
        error = future.exception()
        if error is not None:
            failures.append(error)
            why, then = (error.cause, error.remedy) if isinstance(error, MirrorlakeError) else (str(error), "")
            log.warning("run.failed what=%s why=%s next=%s", name, why, then, extra={"facts": stream_facts(name)})
    return [future.result() for future in futures.values() if future.exception() is None], failures
