"""A broker that tells how many bytes of a topic it gave to consumers, over JMX as its monitoring would ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirrorlake.sandbox import KafkaCluster
from mirrorlake.sandbox.ports import LOOPBACK, free_ports
from mirrorlake.sandbox.properties import JAVA_OPTIONS
from tests.kit.java import java

_JMX_TOOL = "org.apache.kafka.tools.JmxTool"


class Metered:
    """A running cluster whose metrics can be read."""

    def __init__(self, alias: str) -> None:
        (port,) = free_ports(1)
        self._url = f"service:jmx:rmi:///jndi/rmi://{LOOPBACK}:{port}/jmxrmi"
        self.cluster = KafkaCluster(alias, java_options=(*JAVA_OPTIONS, *_jmx_options(port))).start()

    def bytes_out(self, topic: str) -> int:
        """Return the bytes of a topic's record batches that consumers were sent since the broker started."""
        name = f"kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={topic}"
        options = ("--attributes", "Count", "--one-time", "--report-format", "properties")
        printed = java(_JMX_TOOL, "--jmx-url", self._url, "--object-name", name, *options)
        return int(printed.strip().rpartition("=")[2])

    def bytes_held(self, topic: str) -> int:
        segments = (self.cluster.directory / "data").glob(f"{topic}-[0-9]*/*.log")
        return sum(segment.stat().st_size for segment in segments)


def _jmx_options(port: int) -> tuple[str, ...]:
    remote = "-Dcom.sun.management.jmxremote"
    return (
        f"{remote}.port={port}",
        f"{remote}.rmi.port={port}",
        f"{remote}.host={LOOPBACK}",
        f"{remote}.authenticate=false",
        f"{remote}.ssl=false",
        f"-Djava.rmi.server.hostname={LOOPBACK}",
    )


@pytest.fixture(scope="module")
def origin() -> Iterator[Metered]:
    """Start a metered broker for the tests of one file."""
    metered = Metered("origin")
    yield metered
    metered.cluster.kill()
