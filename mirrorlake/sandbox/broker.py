"""One broker in one directory: format its storage, start its JVM, wait until it answers, read its log.

```
<directory>/server.properties   written at every start
<directory>/data/               Kafka's log directory
<directory>/broker.log          output of the JVM, over all starts
<directory>/format.log          output of the storage tool
```
"""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from mirrorlake.errors import SandboxError
from mirrorlake.runtime import (
    cache_directory,
    class_data,
    classpath,
    find_java,
    jars,
    java_properties,
    write_atomically,
)
from mirrorlake.sandbox.ports import free_ports
from mirrorlake.sandbox.process import start_process
from mirrorlake.sandbox.properties import (
    JAVA_OPTIONS,
    LOGGING_OPTIONS,
    NODE_ID,
    Listener,
    properties_text,
    server_properties,
)

# Each attempt is short, so that the death of the JVM is noticed soon.
_LOOK_SECONDS = 1.0
_BETWEEN_LOOKS_SECONDS = 0.05
_FORMAT_SECONDS = 120
_FORMAT_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TAIL_LINES = 20
# The features of a new cluster with their levels: the first records that its controller reads.
_FEATURES = "bootstrap.checkpoint"
_PORT_TAKEN = "Address already in use"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    alias: str
    directory: Path
    listeners: tuple[Listener, ...]
    config: Mapping[str, object] = field(default_factory=dict)
    java_options: Sequence[str] = JAVA_OPTIONS
    format_options: Sequence[str] = ()

    @property
    def log_path(self) -> Path:
        return self.directory / "broker.log"

    @property
    def log_size(self) -> int:
        """The log's size in bytes; 0 without a log."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def cluster_id(self) -> str | None:
        """The cluster id of the formatted storage; None before that."""
        path = self.data / "meta.properties"
        lines = path.read_text().splitlines() if path.exists() else []
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)

    def launch(self, *, tied: bool, besides: Collection[int] = ()) -> subprocess.Popen[bytes]:
        """Write the settings, format the storage at the first start, and start the JVM.

        The controller avoids the ports `besides`, which other brokers are about to take.
        """
        properties = self.directory / "server.properties"
        (controller_port,) = free_ports(1, besides={*besides, *(listener.port for listener in self.listeners)})
        wanted = server_properties(self.data, self.listeners, controller_port=controller_port, config=self.config)
        write_atomically(properties, properties_text(wanted), mode=0o600)
        if not (self.data / "meta.properties").exists():
            self._format(properties)
        options = (*LOGGING_OPTIONS, *self.java_options, *_archived("broker"))
        return start_process(_java(options, "kafka.Kafka", str(properties)), log=self.log_path, tied=tied)

    def wait_ready(self, *, alive: Callable[[], bool], timeout: float, since: int = 0) -> None:
        """Wait until the broker answers an administrative call and is a registered member of the cluster.

        The error, after `timeout` seconds or the JVM's end, has its log since byte `since`.
        """
        client = AdminClient(
            {
                "bootstrap.servers": self.listeners[0].address,
                "log_level": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
            }
        )

        def look() -> None:
            if not alive():
                raise self.dead(since=since)
            metadata = client.list_topics(timeout=_LOOK_SECONDS)
            # Another broker may have taken the port, and answers long before ours notices and ends.
            if not metadata.brokers or metadata.cluster_id != self.cluster_id:
                raise KafkaException("no broker of this cluster is registered yet")

        attempts = Retrying(
            stop=stop_after_delay(timeout),
            wait=wait_fixed(_BETWEEN_LOOKS_SECONDS),
            retry=retry_if_exception_type(KafkaException),
        )
        try:
            attempts(look)
        except RetryError as error:
            raise SandboxError(
                f"{self.alias}: the broker at {self.listeners[0].address} did not answer within {timeout:.0f} s"
                f"{self._last_words(since)}",
                consequence="the cluster cannot be used",
                remedy=f"read {self.log_path}; a busy machine may need a longer time-out",
                alias=self.alias,
            ) from error

    def dead(self, *, since: int = 0) -> SandboxError:
        """Return the error for a JVM that ended by itself; `port_taken` if another server had its port."""
        words = self._last_words(since)
        return SandboxError(
            f"{self.alias}: the broker stopped while it was starting{words}",
            consequence="the cluster is not running",
            remedy=f"read {self.log_path}",
            alias=self.alias,
            port_taken=_PORT_TAKEN in words,
        )

    def _format(self, properties: Path) -> None:
        cluster_id, kept = _new_id(), _kept_features()
        # The tool's output, except ids, depends only on Kafka's version, so it runs once: a run takes half a CPU second.
        # The tool must check a cluster's own settings and options.
        is_plain = not (self.config or self.format_options)
        if is_plain and kept.exists():
            write_atomically(self.data / _FEATURES, kept.read_bytes())
            # Last: this file marks a formatted storage.
            ids = {"version": "1", "cluster.id": cluster_id, "node.id": str(NODE_ID), "directory.id": _new_id()}
            write_atomically(self.data / "meta.properties", properties_text(ids))
            return
        log = self.directory / "format.log"
        # An id that starts with a dash would be parsed as an option.
        arguments = ("format", f"--cluster-id={cluster_id}", "--config", str(properties), *self.format_options)
        with log.open("wb") as output:
            done = subprocess.run(
                _java(
                    (*LOGGING_OPTIONS, *_FORMAT_OPTIONS, *_archived("format")), "kafka.tools.StorageTool", *arguments
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_FORMAT_SECONDS,
                check=False,
            )
        if done.returncode:
            raise SandboxError(
                f"{self.alias}: Kafka's storage tool refused to format {self.data}:\n{_tail(log, 0)}",
                consequence="the broker was not started",
                remedy=f"check the settings in {properties} and that {self.directory} is writable",
                alias=self.alias,
            )
        if is_plain:
            # Without a writable cache the tool runs each time.
            with suppress(OSError):
                write_atomically(kept, (self.data / _FEATURES).read_bytes())

    def _last_words(self, since: int) -> str:
        words = _tail(self.log_path, since)
        return f"; its last output:\n{words}\n" if words else ""


def _new_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _kept_features() -> Path:
    """Return the cache file of the features that Kafka's storage tool gives a new cluster."""
    [server] = [jar for jar in jars("broker") if jar.name.startswith("kafka_")]
    return cache_directory() / "storage" / f"{server.stem}.{_FEATURES}"


def _java(options: Sequence[str], main: str, *arguments: str) -> list[str]:
    return [str(find_java().executable), *java_properties(), *options, "-cp", classpath("broker"), main, *arguments]


def _archived(name: str) -> list[str]:
    return class_data(name, find_java(), jars("broker"))


def _tail(log: Path, since: int) -> str:
    lines = log.read_bytes()[since:].decode(errors="replace").splitlines() if log.exists() else []
    # The frames of a stack trace would hide the important line.
    kept = [line for line in lines if line.strip() and not line.startswith("\tat ")]
    return "\n".join(kept[-_TAIL_LINES:])
