"""Run streams side by side, each with a stop of its own, so that one is changed while the others go on untouched."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.errors import ClusterUnreachable, MirrorlakeError
from mirrorlake.streams.healing import FIRST_S, outlast

log = logging.getLogger(__name__)

# A look at the table `control` costs 20 ms of a core; an operator who pauses does not mind to wait so long.
LOOK_EVERY_S = 3.0
_TICK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream that should run: `made_of` is the fingerprint of its settings, another one means to start it again."""

    name: str
    made_of: str
    call: Callable[[threading.Event], Any]


@dataclass(slots=True)
class _Running:
    stream: Stream
    future: Future[Any]
    stop: threading.Event = field(default_factory=threading.Event)


class Supervisor:
    """Keep the streams running that are wanted, until `stop` is set.

    Args:
        wanted: is asked every `look_every_s` seconds which streams should run.
        stop: ends all of them between two batches.
        outlasts: wait for a cluster that goes away, instead of raising.
        look_every_s: time between two looks.
    """

    def __init__(
        self,
        wanted: Callable[[], Iterable[Stream]],
        stop: threading.Event,
        *,
        outlasts: bool = True,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._wanted = wanted
        self._stop = stop
        self._outlasts = outlasts
        self._look_every_s = look_every_s
        self._running: dict[str, _Running] = {}
        self._results: dict[str, list[Any]] = {}
        self._failure: BaseException | None = None

    def run(self) -> Mapping[str, Sequence[Any]]:
        """Return what the calls of each stream returned.

        Raises:
            MirrorlakeError: the first failure of a stream, after the others finished their batch.
        """
        wanted: dict[str, Stream] = {}
        first_s, next_look = FIRST_S, time.monotonic()
        with ThreadPoolExecutor(max_workers=1024, thread_name_prefix="mirrorlake") as pool:
            try:
                while not self._stop.is_set() and self._failure is None:
                    if time.monotonic() >= next_look:
                        wanted = {stream.name: stream for stream in self._wanted()}
                        next_look = time.monotonic() + self._look_every_s
                        self._start(pool, wanted, first_s)
                        # What is added later does not end the others by an address that is wrong.
                        first_s = 0.0
                    if self._stop_unwanted(wanted):
                        next_look = time.monotonic()
                    self._wait()
            finally:
                for one in self._running.values():
                    one.stop.set()
                while self._running:
                    self._wait()
        if self._failure is not None:
            raise self._failure
        return self._results

    def _start(self, pool: ThreadPoolExecutor, wanted: Mapping[str, Stream], first_s: float) -> None:
        for name, stream in wanted.items():
            if name not in self._running:
                log.info("stream.start what=%s", name)
                stop = threading.Event()
                self._running[name] = _Running(stream, pool.submit(self._call, stream, stop, first_s), stop)

    def _call(self, stream: Stream, stop: threading.Event, first_s: float) -> Any:
        if not self._outlasts:
            return stream.call(stop)
        return outlast(lambda: stream.call(stop), stop, what=stream.name, first_s=first_s)

    def _stop_unwanted(self, wanted: Mapping[str, Stream]) -> bool:
        """Stop what is not wanted as it is; tell whether something is on its way out."""
        for name, one in self._running.items():
            if (name not in wanted or wanted[name].made_of != one.stream.made_of) and not one.stop.is_set():
                log.info("stream.stop what=%s", name)
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
            elif isinstance(error, ClusterUnreachable) and one.stop.is_set() and not self._stop.is_set():
                # A flow is often paused because its target is away.
                log.info("stream.stopped_while_away what=%s", name)
            else:
                self._failure = self._failure or error


def drain(
    calls: Mapping[str, Callable[[], Any]], *, tick: Callable[[], None] = lambda: None
) -> tuple[list[Any], list[BaseException]]:
    """Run the calls side by side, each to its own end whatever becomes of the others; return results and failures.

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
            log.warning("run.failed what=%s why=%s next=%s", name, why, then)
    return [future.result() for future in futures.values() if future.exception() is None], failures
