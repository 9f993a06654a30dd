"""The settings of a sandbox broker: small, with a fast start, and fast retention and transaction time-outs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from mirrorlake.sandbox.ports import LOOPBACK

# 190 MB resident, ready 1.3 s and 1.6 CPU seconds after its start on an idle machine. The second compiler makes these 1.7 and
# 2.6, and three brokers of a demo took 31 CPU seconds instead of 19; plain produce costs the same. The data for `jstat`,
# written every 50 ms, cost a twentieth of an idle broker's CPU.
JAVA_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# At a finer level, the broker's client libraries log a hundred kilobytes of settings at each start.
LOGGING_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka=info",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
)

NODE_ID = 1
PLAINTEXT = "PLAINTEXT"
_CONTROLLER = "CONTROLLER"

_DEFAULTS: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": NODE_ID,
    "controller.listener.names": _CONTROLLER,
    "inter.broker.listener.name": PLAINTEXT,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    # One node: no second replica is possible, and few partitions make the first use of a coordinator fast.
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2,
    # The default of 128 MiB would not fit into the heap.
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    "log.cleaner.backoff.ms": 1000,
    # Retention and time-outs act within a second instead of minutes, for demos and tests.
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 500,
    "file.delete.delay.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    # A killed broker may rejoin only when its former session has expired; the default is 9 s.
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 1_000,
    # An idle node writes to its metadata log every five seconds, not twice a second: a fifth of its idle CPU.
    "metadata.max.idle.interval.ms": 5_000,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address for clients of a broker; port 0 is any free port."""

    name: str = PLAINTEXT
    protocol: str = PLAINTEXT
    port: int = 0
    host: str = LOOPBACK

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def server_properties(
    data: Path, listeners: Sequence[Listener], *, controller_port: int, config: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Return the properties of a combined broker and controller; `config` overrides any of them."""
    host = listeners[0].host
    controller = Listener(name=_CONTROLLER, port=controller_port, host=host)
    places = {
        # The static quorum: its address may change between two starts while the data stay valid.
        "controller.quorum.voters": f"{NODE_ID}@{controller.address}",
        "listeners": ",".join(f"{listener.name}://{listener.address}" for listener in (*listeners, controller)),
        "advertised.listeners": ",".join(f"{listener.name}://{listener.address}" for listener in listeners),
        "listener.security.protocol.map": ",".join(
            f"{listener.name}:{listener.protocol}" for listener in (*listeners, controller)
        ),
        "log.dirs": data,
    }
    merged = {**_DEFAULTS, **places, **(config or {})}
    return {key: str(value) for key, value in merged.items()}


def properties_text(properties: Mapping[str, str]) -> str:
    return str(javaproperties.dumps(properties, timestamp=False))
