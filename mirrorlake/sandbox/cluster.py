"""A Kafka cluster of one node on this machine, as an object: start, stop, kill, pause."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from mirrorlake.errors import SandboxError
from mirrorlake.runtime import jars
from mirrorlake.sandbox.broker import Broker
from mirrorlake.sandbox.ports import free_ports, is_free
from mirrorlake.sandbox.process import wait_stopped
from mirrorlake.sandbox.properties import JAVA_OPTIONS, Listener

START_SECONDS = 120.0
STOP_SECONDS = 30.0
_CLASHES = 5


class KafkaCluster:
    """A real Kafka broker and controller (KRaft) in its own JVM, which never outlives this process.

    The first start chooses the port; port and data remain over any number of stops, kills and starts.

    Args:
        alias: the cluster's name in messages.
        port: the port on 127.0.0.1; None for any free port.
        directory: the folder of its data and log; None for a temporary folder, removed at the end.
        config: Kafka server properties that differ from the sandbox's.
        listeners: further listeners beside the plain one (TLS, SASL), configured by properties in `config`.
        java_options: options of the JVM.
        format_options: further arguments of `kafka-storage format`, such as `--add-scram`.

    Example:
        ```python
        with KafkaCluster("east") as east:
            print(east.bootstrap_servers)
        ```
    """

    def __init__(
        self,
        alias: str,
        *,
        port: int | None = None,
        directory: str | Path | None = None,
        config: Mapping[str, object] | None = None,
        listeners: Sequence[Listener] = (),
        java_options: Sequence[str] = JAVA_OPTIONS,
        format_options: Sequence[str] = (),
    ) -> None:
        temporary = directory is None
        place = Path(tempfile.mkdtemp(prefix=f"mirrorlake-{alias}-") if directory is None else directory).absolute()
        place.mkdir(parents=True, exist_ok=True)
        self._wanted = (Listener(port=port or 0), *listeners)
        self._broker = Broker(
            alias=alias,
            directory=place,
            listeners=self._wanted,
            config=dict(config or {}),
            java_options=tuple(java_options),
            format_options=tuple(format_options),
        )
        self._lock = threading.RLock()
        self._answered = False
        self._processes: list[subprocess.Popen[bytes]] = []
        # Runs when the cluster is garbage-collected, at the latest when the interpreter exits.
        self._end = weakref.finalize(self, _abandon, self._processes, place if temporary else None)

    @property
    def alias(self) -> str:
        return self._broker.alias

    @property
    def directory(self) -> Path:
        return self._broker.directory

    @property
    def log_path(self) -> Path:
        return self._broker.log_path

    @property
    def bootstrap_servers(self) -> str:
        return self.address()

    def address(self, listener: str = "PLAINTEXT") -> str:
        """Return `host:port` of a listener by its name.

        Raises:
            SandboxError: there is no such listener, or its port is not chosen yet.
        """
        found = next((candidate for candidate in self._broker.listeners if candidate.name == listener), None)
        if found is None or not found.port:
            raise SandboxError(
                f"{self.alias}: " + ("no address is known yet" if found else f"there is no listener {listener!r}"),
                remedy="start the cluster first, or give it a port" if found else "add it to `listeners`",
                alias=self.alias,
            )
        return found.address

    @property
    def pid(self) -> int | None:
        return process.pid if (process := self._process) else None

    @property
    def running(self) -> bool:
        """Whether the JVM exists, also if it is paused."""
        return self._process is not None

    def start(self, *, timeout: float = START_SECONDS) -> KafkaCluster:
        """Start the broker, and return when it answers; does nothing if it runs already.

        Raises:
            SandboxError: it stops at once, does not answer in time, or another process has its port.
        """
        with self._lock:
            if self.running:
                return self
            clash: SandboxError | None = None
            for _ in range(_CLASHES):
                self._choose_ports(again=clash is not None)
                try:
                    self._start_once(timeout)
                except SandboxError as error:
                    if not getattr(error, "port_taken", False):
                        raise
                    clash = error
                else:
                    return self
            raise SandboxError(
                f"{self.alias}: {_CLASHES} times another process took the port that had been free",
                consequence="the cluster is not running",
                remedy="give the cluster a port of its own with `port=`",
                alias=self.alias,
            ) from clash

    def stop(self, *, timeout: float = STOP_SECONDS) -> None:
        """Shut the broker down cleanly, or kill it after `timeout` seconds; its data remain."""
        with self._lock:
            if (process := self._process) is None:
                return
            # A paused process acts only on SIGKILL.
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
            self._processes.clear()

    def kill(self) -> None:
        """End the broker like a power cut (SIGKILL); its data remain."""
        with self._lock:
            if process := self._process:
                process.kill()
                process.wait()
            self._processes.clear()

    def restart(self, *, timeout: float = START_SECONDS) -> KafkaCluster:
        """Stop the broker cleanly and start it again, with the same port and data."""
        self.stop()
        return self.start(timeout=timeout)

    def pause(self) -> None:
        """Freeze the broker (SIGSTOP), and return once it is stopped: connections stay open, nothing is answered."""
        wait_stopped(self._signal(signal.SIGSTOP).pid)

    def resume(self) -> None:
        """Continue a paused broker (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        port = self._broker.listeners[0].port
        state = f"running, pid {self.pid}" if self.running else "stopped"
        return f"<KafkaCluster {self.alias} {self._broker.listeners[0].address if port else '(no port yet)'} {state}>"

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        return next((process for process in self._processes if process.poll() is None), None)

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        if (process := self._process) is None:
            raise SandboxError(
                f"{self.alias}: the broker is not running",
                consequence=f"{number.name} was not sent",
                remedy="start() it first",
                alias=self.alias,
            )
        process.send_signal(number)
        return process

    def _choose_ports(self, *, again: bool) -> None:
        """Give each listener without a port a free one; choose again only if another process took it."""
        # Only a cluster that never answered may change its port: later, clients know the address.
        listeners = self._wanted if again and not self._answered else self._broker.listeners
        free = iter(free_ports(len(listeners), besides={entry.port for entry in listeners}))
        chosen = tuple(entry if entry.port else replace(entry, port=next(free)) for entry in listeners)
        for entry in chosen:
            if not is_free(entry.port, host=entry.host):
                raise port_in_use(self.alias, entry.address)
        self._broker = replace(self._broker, listeners=chosen)

    def _start_once(self, timeout: float) -> None:
        since = self._broker.log_size
        process = self._broker.launch(tied=True)
        self._processes[:] = [process]
        try:
            self._broker.wait_ready(alive=lambda: process.poll() is None, timeout=timeout, since=since)
        except BaseException:
            self.kill()
            raise
        self._answered = True


def start_all(clusters: Iterable[KafkaCluster], *, timeout: float = START_SECONDS) -> list[KafkaCluster]:
    """Start clusters in parallel and return them; if one fails, the others are left as they are."""
    found = list(clusters)
    jars("broker")  # once and in sight, rather than in every thread at the same time
    with ThreadPoolExecutor(max_workers=max(1, len(found)), thread_name_prefix="mirrorlake-start") as pool:
        return list(pool.map(lambda cluster: cluster.start(timeout=timeout), found))


def port_in_use(alias: str, address: str) -> SandboxError:
    return SandboxError(
        f"{alias}: another process already listens on {address}",
        consequence="the cluster was not started, and the other process was left alone",
        remedy="stop that process, or give the cluster another port",
        alias=alias,
        address=address,
    )


def _abandon(processes: list[subprocess.Popen[bytes]], directory: Path | None) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
