"""The local clusters of a settings file: brokers that outlive the command that started them.

`<directory>/sandbox.json` has pid and start time of each broker, so that a pid reused by another program is never signalled.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import signal
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from mirrorlake.errors import SandboxError
from mirrorlake.runtime import jars, locked, write_atomically
from mirrorlake.sandbox.broker import Broker
from mirrorlake.sandbox.cluster import START_SECONDS, STOP_SECONDS, port_in_use
from mirrorlake.sandbox.ports import LOOPBACK, is_free
from mirrorlake.sandbox.process import identity, is_alive, send_signal
from mirrorlake.sandbox.properties import Listener

_ALIAS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"\[?(?P<host>[^,\]]+?)\]?:(?P<port>\d+)")
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRow:
    alias: str
    address: str
    pid: int | None
    state: str
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    alias: str
    address: str
    pid: int
    identity: str

    def alive(self) -> bool:
        return is_alive(self.pid, self.identity)


class Sandbox:
    """The detached clusters below one directory, one sub-directory each."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()

    def up(self, clusters: Mapping[str, str], *, timeout: float = START_SECONDS) -> list[SandboxRow]:
        """Start the clusters that do not run, at `host:port` by alias, and return when every cluster answers.

        Nothing is started if an address is not on this machine, is used twice, or belongs to another process.
        """
        listeners = {alias: loopback_listener(alias, address) for alias, address in clusters.items()}
        _refuse_shared(listeners)
        jars("broker")
        with self._locked():
            entries = self._load()
            missing = {a: at for a, at in listeners.items() if not self._is_up(entries.get(a), alias=a, listener=at)}
            for alias, listener in missing.items():
                if not is_free(listener.port, host=listener.host):
                    raise port_in_use(alias, listener.address)
            brokers = {
                alias: Broker(alias=alias, directory=self.directory / alias, listeners=(listener,))
                for alias, listener in listeners.items()
            }
            starts = {alias: broker.log_size for alias, broker in brokers.items()}
            saving = threading.Lock()

            def launch(alias: str) -> None:
                entry = _launch(brokers[alias], besides=[listener.port for listener in listeners.values()])
                # At once: if others or this command fail, `down` still stops every started broker.
                with saving:
                    entries[alias] = entry
                    document = json.dumps([asdict(one) for one in entries.values()], indent=2)
                    write_atomically(self._state, document + "\n")

            with ThreadPoolExecutor(max_workers=max(1, len(listeners)), thread_name_prefix="mirrorlake-up") as pool:
                list(pool.map(launch, missing))
                waiting = [
                    pool.submit(broker.wait_ready, alive=entries[alias].alive, timeout=timeout, since=starts[alias])
                    for alias, broker in brokers.items()
                ]
                for done in waiting:
                    done.result()
        return self.status()

    def down(self, *, purge: bool = False, timeout: float = STOP_SECONDS) -> list[SandboxRow]:
        """Stop every cluster cleanly, or by force after `timeout` seconds; `purge` removes data and logs, too."""
        with self._locked():
            entries = self._load()
            for entry in entries.values():
                # A paused broker would not act on SIGTERM.
                for number in (signal.SIGCONT, signal.SIGTERM):
                    send_signal(entry.pid, entry.identity, number)
            deadline = time.monotonic() + timeout
            for entry in entries.values():
                if not _gone(entry, deadline):
                    send_signal(entry.pid, entry.identity, signal.SIGKILL)
                    _gone(entry, time.monotonic() + timeout)
            rows = self._rows(entries)
            if purge:
                for alias in entries:
                    if (place := self.directory / alias).exists():
                        shutil.rmtree(place)
                self._state.unlink(missing_ok=True)
        return rows

    def status(self) -> list[SandboxRow]:
        return self._rows(self._load())

    @property
    def _state(self) -> Path:
        return self.directory / "sandbox.json"

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.directory / "sandbox.lock")

    def _rows(self, entries: Mapping[str, _Entry]) -> list[SandboxRow]:
        alive = {alias: entry.alive() for alias, entry in entries.items()}
        return [
            SandboxRow(
                alias=alias,
                address=entry.address,
                pid=entry.pid if alive[alias] else None,
                state="running" if alive[alias] else "stopped",
                log=self.directory / alias / "broker.log",
            )
            for alias, entry in sorted(entries.items())
        ]

    def _is_up(self, entry: _Entry | None, *, alias: str, listener: Listener) -> bool:
        if entry is None or not entry.alive():
            return False
        if entry.address != listener.address:
            raise SandboxError(
                f"{alias}: the sandbox runs it at {entry.address}, and the settings now say {listener.address}",
                consequence="nothing was started",
                remedy="mirrorlake sandbox down, then up again",
                alias=alias,
            )
        return True

    def _load(self) -> dict[str, _Entry]:
        try:
            rows = json.loads(self._state.read_text())
            return {row["alias"]: _Entry(**row) for row in rows}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise SandboxError(
                f"{self._state} cannot be read ({error})",
                consequence="it is not known which brokers run here",
                remedy="stop the brokers by hand (java kafka.Kafka), then remove the file",
            ) from error


def loopback_listener(alias: str, bootstrap_servers: str) -> Listener:
    """Return the sandbox's listener; refuse an alias that cannot name a directory, and all but one loopback address."""
    parts = _ADDRESS.fullmatch(bootstrap_servers.strip())
    host = parts["host"] if parts else ""
    local = LOOPBACK if host == "localhost" else host
    if parts is None or not _ALIAS.fullmatch(alias) or not _is_loopback(local) or not 0 < int(parts["port"]) < 2**16:
        raise SandboxError(
            f"{alias}: the sandbox cannot be a cluster at {bootstrap_servers!r}",
            consequence="nothing was started",
            remedy="the sandbox is for clusters of this machine: write one address such as 127.0.0.1:19092",
            alias=alias,
        )
    return Listener(port=int(parts["port"]), host=local)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refuse_shared(listeners: Mapping[str, Listener]) -> None:
    owners: dict[str, str] = {}
    for alias, listener in listeners.items():
        if (other := owners.setdefault(listener.address, alias)) != alias:
            raise SandboxError(
                f"{other} and {alias} have the same address {listener.address}",
                consequence="nothing was started",
                remedy="give each cluster a port of its own",
                alias=alias,
            )


def _launch(broker: Broker, *, besides: Collection[int]) -> _Entry:
    broker.directory.mkdir(parents=True, exist_ok=True)
    process = broker.launch(tied=False, besides=besides)
    # Popen must not wait for this process; from now on the record in `sandbox.json` counts.
    process.returncode = 0
    started = identity(process.pid)
    if started is None:
        raise broker.dead()
    return _Entry(alias=broker.alias, address=broker.listeners[0].address, pid=process.pid, identity=started)


def _gone(entry: _Entry, deadline: float) -> bool:
    while entry.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
