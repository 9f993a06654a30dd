"""Brokers that call themselves by an address that cannot be reached: clients find them, are sent on, and wait."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from mirrorlake.sandbox import KafkaCluster, Listener
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.records import new_topic

FLOW = "east->central"
FAULTS = {"NAMELESS": "name does not resolve", "REFUSING": "connection refused"}


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


@pytest.fixture
def misadvertised(make_cluster: Callable[..., KafkaCluster]) -> tuple[KafkaCluster, dict[str, str]]:
    """Run a broker whose two further listeners advertise a name that nobody knows, and a port where nobody listens."""
    own, nameless, refusing, closed = free_ports(4)
    advertised = {"NAMELESS": f"broker.invalid:{nameless}", "REFUSING": f"127.0.0.1:{closed}"}
    cluster = make_cluster(
        "east",
        port=own,
        listeners=[Listener(name="NAMELESS", port=nameless), Listener(name="REFUSING", port=refusing)],
        config={
            "advertised.listeners": ",".join(
                [f"PLAINTEXT://127.0.0.1:{own}", *(f"{name}://{address}" for name, address in advertised.items())]
            )
        },
    )
    return cluster.start(), advertised


def test_every_command_and_the_doctor_name_the_advertised_address_and_its_fault(
    misadvertised: tuple[KafkaCluster, dict[str, str]], tmp_path: Path
) -> None:
    cluster, advertised = misadvertised
    topic = new_topic(cluster, 10)
    for listener, address in advertised.items():
        wanted = f"the brokers of east call themselves {address} (from here: {FAULTS[listener]})"
        flow = {"source": "east", "target": "central", "topics": topic}
        clusters = {"east": cluster.address(listener), "central": cluster.bootstrap_servers}
        conf = str(write_conf(tmp_path, clusters, [flow]))

        findings = told("doctor", "--conf", conf, code=4)["findings"]
        [reachable] = [one for one in findings if one["check"] == "kafka.reachable" and one["subject"] == "east"]
        assert reachable["severity"] == "failure"
        assert wanted in reachable["detail"]
        assert "advertised.listeners" in reachable["fix"]
        green = [
            one["check"] for one in findings if one["subject"] == "east" and one["layer"] == "cluster" and one["ok"]
        ]
        assert green == [], "no check of this cluster is green"
        for command in (
            ["topics", "--cluster", "east"],
            ["plan"],
            ["groups", "--flow", FLOW],
            ["run", "--once"],
        ):
            done = run_cli(*command, "--conf", conf)
            assert done.returncode == 4, done.stdout
            assert wanted in done.stderr.replace("\n", " "), command
            assert "advertised.listeners" in done.stderr
        [status] = told("status", "--conf", conf, code=4)["flows"]
        assert wanted in status["unknown"]
