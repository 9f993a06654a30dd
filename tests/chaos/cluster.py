"""A cluster of one or three real brokers, each with a proxy of its own before the listener that the mirror uses."""

from __future__ import annotations

import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient

from mirrorlake.sandbox import KafkaCluster, start_all
from mirrorlake.sandbox.ports import LOOPBACK, free_ports
from mirrorlake.sandbox.properties import Listener, properties_text, server_properties
from tests.chaos.proxy import FAIR, Proxy, Weather

_WAY = "PROXIED"
_REPLICATED = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 5_000,
    "leader.imbalance.check.interval.seconds": 5,
}


class Side:
    """The brokers of one cluster. Writers and checkers use `direct`, the mirror `proxied`.

    Args:
        alias: the cluster's name.
        folder: where its data are, a folder a broker.
        brokers: 1, or 3 with every topic on all of them and two of them needed to write.
    """

    def __init__(self, alias: str, folder: Path, *, brokers: int = 1) -> None:
        self.alias = alias
        self._folder = folder
        numbers = range(1, brokers + 1)
        ports = iter(free_ports(4 * brokers))
        self._ports = {number: [next(ports) for _ in range(4)] for number in numbers}
        self.nodes: Sequence[KafkaCluster] = [self._node(number) for number in numbers]
        self.proxies = [Proxy(proxied, inner) for _, inner, proxied, _ in self._ports.values()]

    @property
    def direct(self) -> str:
        return ",".join(f"{LOOPBACK}:{direct}" for direct, *_ in self._ports.values())

    @property
    def proxied(self) -> str:
        return ",".join(f"{LOOPBACK}:{proxied}" for _, _, proxied, _ in self._ports.values())

    @property
    def replication(self) -> int:
        return len(self.nodes)

    def data(self, number: int) -> Path:
        return self._folder / f"{self.alias}-{number}"

    def start(self) -> None:
        self._format_alike()
        start_all(self.nodes)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def set_weather(self, weather: Weather = FAIR) -> None:
        for proxy in self.proxies:
            proxy.weather = weather

    def reset(self) -> None:
        for proxy in self.proxies:
            proxy.reset()

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def _node(self, number: int) -> KafkaCluster:
        direct, inner, proxied, controller = self._ports[number]
        config: dict[str, object] = {
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{direct},{_WAY}://{LOOPBACK}:{proxied}",
            "transaction.max.timeout.ms": 900_000,
        }
        if len(self._ports) > 1:
            voters = ",".join(f"{one}@{LOOPBACK}:{ports[3]}" for one, ports in self._ports.items())
            listeners = {"PLAINTEXT": direct, _WAY: inner, "CONTROLLER": controller}
            config |= _REPLICATED | {
                "node.id": number,
                "controller.quorum.voters": voters,
                "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in listeners.items()),
            }
        return KafkaCluster(
            self.alias,
            port=direct,
            directory=self.data(number),
            config=config,
            listeners=[Listener(name=_WAY, port=inner)],
        )

    def _format_alike(self) -> None:
        """Give the brokers of one cluster one cluster id: the storage of the first, with other node ids."""
        if len(self.nodes) == 1 or (self.data(1) / "data").exists():
            return
        first, *others = self.nodes
        broker = first._broker
        properties = broker.directory / "server.properties"
        wanted = server_properties(broker.data, broker.listeners, controller_port=0, config=broker.config)
        properties.write_text(properties_text(wanted))
        broker._format(properties)
        for number, node in enumerate(others, 2):
            shutil.copytree(first.directory / "data", node.directory / "data")
            meta = node.directory / "data" / "meta.properties"
            lines = [line for line in meta.read_text().splitlines() if not line.startswith(("node.id", "directory.id"))]
            directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            meta.write_text("\n".join([*lines, f"node.id={number}", f"directory.id={directory}"]) + "\n")
