"""The streams that each process runs now, so that no other process starts them a second time.

Processes of this machine see a lock (`context/locks.py`). Those of other machines see a sign in the lake: a small
file that its process rewrites every `process_sign_interval_s`, and removes at its end. Clocks of two machines
disagree, so a reader watches for changes of the sign. A sign that does not change for 2.5 times its own interval is
of a process that died, and the reader removes it.

Neither excludes another process: if two run all the same, table and ledger decide (law F, `lake/fenced_writer.py`).
The newer one goes on; the older one stops with exit 3, or waits if the newer one is a command that ends soon.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from mirrorlake.context.locks import Locks
from mirrorlake.render import format_time
from mirrorlake.runtime import Folder, cache_directory, open_folder, send_heartbeats
from mirrorlake.timing import timing

log = logging.getLogger(__name__)

# A slow store or a busy machine delays a sign; two are late at most.
_GONE_AFTER = 2.5
# The beats at which a process removes the signs of processes that died before it.
_CLEANS_AT = (1, 4)
_POLL_S, _MIN_BETWEEN_S = 0.5, 1.0
# Without credentials each read of S3 takes seconds.
_RETRY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """The sign of a process: the streams it carries, permanently or for a `temporary` command."""

    id: str
    host: str
    process: int
    since: str
    streams: tuple[str, ...]
    temporary: bool
    every_s: float

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}"


@dataclass(slots=True)
class _Seen:
    """A sign at its last read: unchanged `since` a time of this machine's clock; `is_gone` once its process has died."""

    sign: Sign
    text: str
    since: float
    has_changed: bool = False
    is_gone: bool = False


class RunningFlows:
    """Show other processes which streams this one carries, and read theirs.

    `root` returns the folder of the lake's checkpoint locations, which every process of the lake reaches. `lake` is given if it is a
    folder of this machine: its locks show which process carries a stream. `clock` never goes back.
    """

    def __init__(
        self,
        root: Callable[[], str],
        lake: Path | None,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root = root
        self._lake = lake
        # For another lake the machine's own folder shows which processes of this machine run.
        self._locks = Locks((cache_directory() if lake is None else lake) / "running")
        self._now = now
        self._clock = clock
        self._wait = wait
        self._seen: dict[str, _Seen] = {}
        self._next_look = clock()
        self._looking = threading.Lock()

    @contextmanager
    def announce_running(self, streams: Iterable[str], *, temporary: bool = False) -> Iterator[str]:
        """Show other processes that this one carries some streams, and yield the id of its sign.

        The owner of a stream that a `temporary` owner replaced claims it again once the sign is gone.
        """
        sign = Sign(
            id=uuid.uuid4().hex,
            host=socket.gethostname(),
            process=os.getpid(),
            since=format_time(self._now()),
            streams=tuple(streams),
            temporary=temporary,
            every_s=timing().process_sign_interval_s,
        )
        with ExitStack() as held:
            for name in self._locks_of(sign):
                # A folder that may not be written, or that has no locks, is no reason not to run.
                with suppress(OSError):
                    held.enter_context(self._locks.hold(name, str(sign), is_left=name != sign.id))
            held.enter_context(self._signing(sign))
            yield sign.id

    def on_this_machine(self, streams: Iterable[str]) -> Mapping[str, str]:
        """Return the processes on this machine by stream, this one included; {} if the lake is not a local folder."""
        return {} if self._lake is None else {name: said for name in streams if (said := self._locks.holder(name))}

    def find_running(self, streams: Sequence[str]) -> Mapping[str, str]:
        """Return the known processes on any machine by stream, this one included."""
        found = {
            name: str(one.sign) for one in self._read_signs() if not one.sign.temporary for name in one.sign.streams
        }
        found |= self.on_this_machine(streams)
        return {name: found[name] for name in streams if name in found}

    def await_running(self, streams: Sequence[str]) -> Mapping[str, str]:
        """Wait until a sign of another machine has changed or all are gone, and return the processes by stream."""
        logged: set[str] = set()
        while not self.on_this_machine(streams):
            carriers = [
                one for one in self._read_signs() if not one.sign.temporary and {*streams} & {*one.sign.streams}
            ]
            if any(one.has_changed for one in carriers) or not carriers:
                break
            for sign in (one.sign for one in carriers if one.sign.id not in logged):
                logged.add(sign.id)
                within_s = _GONE_AFTER * sign.every_s
                log.warning("presence.waits for=%s why=its next sign of life is due within %.0f s", sign, within_s)
            self._wait(_POLL_S)
        return self.find_running(streams)

    def is_alive(self, sign: str) -> bool:
        """Return whether the process of a sign runs, as far as is known."""
        return any(one.sign.id == sign for one in self._read_signs())

    @contextmanager
    def _signing(self, sign: Sign) -> Iterator[None]:
        number = count()

        def write(beat: str) -> None:
            self._folder.write(sign.id, json.dumps({**asdict(sign), "beat": beat}))
            if next(number) in _CLEANS_AT and not sign.temporary:
                self._read_signs()

        try:
            write("")
        except Exception as error:
            # A store that only Spark reaches, for example: the process runs all the same, unseen by other machines.
            log.info("presence.no_sign why=%s", error)
            yield
            return
        try:
            with send_heartbeats(write, interval_s=sign.every_s):
                yield
        finally:
            self._remove(sign.id)

    def _read_signs(self) -> list[_Seen]:
        """Return the signs of running processes, as far as is known, read at most once a second."""
        with self._looking:
            if self._clock() >= self._next_look:
                self._next_look = self._clock() + _MIN_BETWEEN_S
                try:
                    self._read()
                except Exception as error:
                    # The caller works with the lake, too, and gets its error there.
                    log.info("presence.no_look why=%s", error)
                    self._next_look = self._clock() + _RETRY_S
            return [one for one in self._seen.values() if not one.is_gone]

    def _read(self) -> None:
        found, now = dict[str, _Seen](), self._clock()
        # A name with a dot is a file that its process is writing.
        for name in (name for name in self._folder.names() if not name.startswith(".")):
            try:
                text = self._folder.read(name)
            except FileNotFoundError:
                continue
            if (sign := _sign_of(text)) is None:
                continue
            seen = self._seen.get(name)
            if seen is None or seen.text != text:
                seen = _Seen(sign, text, now, has_changed=seen is not None)
            if not seen.is_gone and self._is_gone(seen, now):
                # A sign that may not be removed is remembered.
                seen.is_gone = True
                log.info("presence.gone sign=%s of=%s", name, sign)
                self._remove(name)
            found[name] = seen
        self._seen = found

    def _is_gone(self, seen: _Seen, now: float) -> bool:
        if seen.sign.host == socket.gethostname():
            names = self._locks_of(seen.sign)
            if any(map(self._locks.holder, names)):
                seen.has_changed = True
            elif any(map(self._locks.exists, names)):
                # A folder without locks, which has no lock files, proves nothing.
                return True
        return now - seen.since > _GONE_AFTER * seen.sign.every_s

    def _remove(self, sign: str) -> None:
        with suppress(Exception):
            self._folder.remove(sign)
            self._locks.remove(sign)

    @cached_property
    def _folder(self) -> Folder:
        return open_folder(f"{self._root()}/running")

    def _locks_of(self, sign: Sign) -> tuple[str, ...]:
        # In the lake's folder the successive processes of a stream share its lock; a command has its own.
        return (sign.id,) if sign.temporary or self._lake is None else sign.streams


def _sign_of(text: str) -> Sign | None:
    """Parse a sign, or return None for a sign of a later release."""
    try:
        found: dict[str, Any] = json.loads(text)
        known = {field.name: found[field.name] for field in fields(Sign)}
        return Sign(**{**known, "streams": tuple(known["streams"])})
    except (ValueError, TypeError, KeyError):
        return None
