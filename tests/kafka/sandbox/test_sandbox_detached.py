"""Clusters that outlive the command which started them, and that only their own sandbox stops."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.errors import SandboxError
from mirrorlake.sandbox import Sandbox
from mirrorlake.sandbox.ports import free_ports
from mirrorlake.sandbox.process import identity
from tests.servers.brokers import admin_of


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path / "sandbox")
    yield sandbox
    sandbox.down(purge=True)


@pytest.fixture
def addresses() -> dict[str, str]:
    return {alias: f"127.0.0.1:{port}" for alias, port in zip(("east", "west"), free_ports(2), strict=True)}


def states(sandbox: Sandbox) -> dict[str, str]:
    return {row.alias: row.state for row in sandbox.status()}


def test_up_outlives_its_command_moves_no_cluster_and_down_keeps_the_data(
    sandbox: Sandbox, addresses: dict[str, str]
) -> None:
    assert sandbox.status() == []
    address = addresses["east"]
    script = "import sys; from mirrorlake.sandbox import Sandbox; Sandbox(sys.argv[1]).up({'east': sys.argv[2]})"
    subprocess.run([sys.executable, "-c", script, str(sandbox.directory), address], check=True, timeout=400)

    [row] = sandbox.status()
    assert (row.alias, row.state, row.address) == ("east", "running", address)
    before = admin_of(address).list_topics(timeout=60).cluster_id
    [again] = sandbox.up({"east": address})
    assert again.pid == row.pid, "up must leave running brokers as they are"
    with pytest.raises(SandboxError, match="the settings now say"):
        sandbox.up({"east": addresses["west"]})

    assert {row.state for row in sandbox.down()} == {"stopped"}
    assert states(sandbox) == {"east": "stopped"}
    sandbox.up({"east": address})
    assert admin_of(address).list_topics(timeout=60).cluster_id == before, "the data were not kept"

    sandbox.down(purge=True)
    assert sandbox.status() == []
    assert not (sandbox.directory / "east").exists()


def test_down_never_signals_a_stranger_with_a_recycled_pid(sandbox: Sandbox) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            entry = {"alias": "east", "address": "127.0.0.1:19092", "pid": stranger.pid, "identity": "another:life"}
            sandbox.directory.mkdir(parents=True)
            (sandbox.directory / "sandbox.json").write_text(json.dumps([entry]))
            assert states(sandbox) == {"east": "stopped"}
            sandbox.down()
            assert identity(stranger.pid) is not None
            assert stranger.poll() is None, "down stopped a process that is not its own"
        finally:
            stranger.kill()


def test_a_port_of_a_stranger_is_refused_before_anything_starts(sandbox: Sandbox, addresses: dict[str, str]) -> None:
    host, port = addresses["west"].split(":")
    with (
        socket.create_server((host, int(port))),
        pytest.raises(SandboxError, match=f"already listens on {host}:{port}"),
    ):
        sandbox.up(addresses)
    assert sandbox.status() == []


def test_a_lost_record_is_reported_and_not_guessed(sandbox: Sandbox) -> None:
    sandbox.directory.mkdir(parents=True)
    record = sandbox.directory / "sandbox.json"
    record.write_text("{")
    with pytest.raises(SandboxError, match="cannot be read"):
        sandbox.status()
    record.unlink()
