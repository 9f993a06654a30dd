"""MirrorMaker 2 from its jars, in dedicated mode: one JVM, for comparisons and takeovers."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from mirrorlake.errors import SandboxError
from mirrorlake.runtime import classpath, find_java
from mirrorlake.sandbox.process import start_process
from mirrorlake.sandbox.properties import JAVA_OPTIONS, properties_text

_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
_STOP_S = 60.0
_BETWEEN_LOOKS_S = 0.25
_INTERVALS = (
    "refresh.topics.interval.seconds",
    "refresh.groups.interval.seconds",
    "sync.topic.configs.interval.seconds",
    "sync.group.offsets.interval.seconds",
    "emit.checkpoints.interval.seconds",
)
_FACTORS = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "config.storage.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
)


def base_properties(
    source: str, target: str, servers: Mapping[str, str], *, topics: str, interval_s: int = 1
) -> dict[str, str]:
    """Return MM2's properties for one flow between single brokers without an authorizer.

    Args:
        source: alias of the source, which prefixes the remote topics.
        target: alias of the target.
        servers: bootstrap servers by alias.
        topics: the topics, in MM2's syntax.
        interval_s: seconds between two refreshes of topics, groups and configurations.
    """
    flow = f"{source}->{target}"
    return {
        "clusters": f"{source},{target}",
        **{f"{alias}.bootstrap.servers": address for alias, address in servers.items()},
        f"{flow}.enabled": "true",
        f"{flow}.topics": topics,
        f"{target}->{source}.enabled": "false",
        f"{target}->{source}.emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
        **dict.fromkeys(_INTERVALS, str(interval_s)),
        **dict.fromkeys(_FACTORS, "1"),
    }


def arrived(address: str, topic: str) -> int:
    """Count the committed records of a topic by reading, since ends count transaction markers; 0 if it does not exist."""
    options = {"group.id": "count", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest", **options})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        unread = set(partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found = 0
        # Silence as long as a request may take ends the count, as a lower bound. `consume` would wait as long at each end of a
        # topic for the requested number of messages.
        while unread and (message := consumer.poll(10)) is not None:
            error = message.error()
            if error is None:
                found += 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                unread.discard(message.partition())
            else:
                raise KafkaException(error)
        return found
    except KafkaException:
        return 0
    finally:
        consumer.close()


class MirrorMaker:
    """A running MirrorMaker 2; it never outlives this process.

    Args:
        folder: the folder of its properties (`file`) and its log (`log`).
        properties: all of its settings.
        java_options: options of the JVM; by default it is small and starts fast. Give your own for measurements.

    Example:
        >>> properties = ml.sandbox.base_properties("east", "central", servers, topics="orders")  # doctest: +SKIP
        >>> other = ml.sandbox.MirrorMaker(folder, properties)  # doctest: +SKIP
        >>> other.wait_for(servers["central"], "east.orders", 300)  # doctest: +SKIP
        >>> other.stop()  # doctest: +SKIP
    """

    def __init__(
        self, folder: Path, properties: Mapping[str, str], *, java_options: tuple[str, ...] = JAVA_OPTIONS
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "mm2.log"
        self.file = folder / "mm2.properties"
        self.file.write_text(properties_text(properties))
        command = [
            str(find_java().executable),
            *(*java_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("-cp", classpath("mm2"), _MAIN, str(self.file)),
        ]
        self.process: subprocess.Popen[bytes] = start_process(command, log=self.log, tied=True)

    def __repr__(self) -> str:
        return f"MirrorMaker({self.file.name}, {'running' if self.process.poll() is None else 'stopped'})"

    def wait_for(self, address: str, topic: str, records: int, *, timeout: float = 180.0) -> int:
        """Wait until a topic has `records` or more, and return the number.

        Raises:
            SandboxError: they do not arrive within `timeout` seconds, or MM2 ended before.
        """
        looks = Retrying(
            stop=stop_after_delay(timeout),
            wait=wait_fixed(_BETWEEN_LOOKS_S),
            retry=retry_if_result(lambda found: found < records and self.process.poll() is None),
            retry_error_callback=lambda _: arrived(address, topic),
        )
        found = looks(arrived, address, topic)
        if found < records:
            raise SandboxError(
                f"MirrorMaker 2 brought {found} of {records} records to {topic}: {self.last_words()}",
                consequence="it was left as it is",
                remedy=f"read {self.log}",
            )
        return found

    def stop(self) -> None:
        """Stop it cleanly: it stores its offsets; kill it after 60 s."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it like a power cut (SIGKILL)."""
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        """Return the end of its log, without stack traces."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if not line.startswith("\tat ")]
        return "\n".join(lines[-10:])
