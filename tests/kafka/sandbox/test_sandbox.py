"""Clusters that belong to this process: they answer, they keep their data, and they go when we go."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import javaproperties
import pytest
from confluent_kafka import KafkaException

from mirrorlake.errors import SandboxError
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.sandbox import broker as broker_module
from mirrorlake.sandbox import cluster as cluster_module
from mirrorlake.sandbox.ports import free_ports
from mirrorlake.sandbox.process import identity, is_alive
from tests.kit.processes import wait_until
from tests.servers.brokers import admin_of

MakeCluster = Callable[..., KafkaCluster]


def test_a_cluster_says_what_it_is_and_to_start_it_twice_changes_nothing(east: KafkaCluster) -> None:
    before = east.pid
    assert east.start().pid == before
    assert repr(east) == f"<KafkaCluster east {east.bootstrap_servers} running, pid {east.pid}>"
    assert east.log_path.stat().st_size > 0


def test_a_cluster_finds_another_port_keeps_silent_while_paused_and_stops(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as stranger:
        # Lost between choice and start.
        taken = stranger.getsockname()[1]
        choices = iter([[taken]])
        monkeypatch.setattr(cluster_module, "free_ports", lambda count, **_: next(choices, None) or free_ports(count))
        monkeypatch.setattr(cluster_module, "is_free", lambda *_, **__: True)
        own = make_cluster().start()
        assert own.bootstrap_servers != f"127.0.0.1:{taken}"
    admin = admin_of(own.bootstrap_servers)
    admin.list_topics(timeout=60)

    own.pause()
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    assert own.running

    own.resume()
    assert admin.list_topics(timeout=60).brokers, "a resumed broker answers"
    own.pause()
    own.stop()
    assert not own.running, "stop() must work on a paused broker"


def test_a_signal_needs_a_running_cluster(make_cluster: MakeCluster) -> None:
    with pytest.raises(SandboxError, match="not running"):
        make_cluster().pause()


def test_a_terminal_interrupt_does_not_reach_the_broker(east: KafkaCluster) -> None:
    assert east.pid is not None
    assert os.getsid(east.pid) != os.getsid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_a_cluster_dies_with_its_process_and_not_with_the_thread_that_started_it(tmp_path: Path) -> None:
    script = """
        import sys, threading, time
        from mirrorlake.sandbox import KafkaCluster
        cluster = KafkaCluster("orphan", directory=sys.argv[1])
        thread = threading.Thread(target=cluster.start)
        thread.start(); thread.join(); time.sleep(0.5)
        sys.stdout.write(f"{cluster.pid}\\n"); sys.stdout.flush()
        time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        born = identity(pid)
        assert born is not None, "the broker must outlive the thread that started it"
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid, born), "the broker ends with its killed parent")


def test_a_cluster_that_nobody_holds_any_more_is_ended() -> None:
    cluster = KafkaCluster("forgotten").start()
    pid, directory = cluster.pid, cluster.directory
    assert pid is not None
    born = identity(pid)
    assert born is not None
    del cluster
    wait_until(lambda: not is_alive(pid, born), "the broker ends with its object")
    wait_until(lambda: not directory.exists(), "its temporary directory is gone")


def test_a_port_of_another_process_is_refused_and_left_alone(make_cluster: MakeCluster) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(SandboxError, match=f"another process already listens on 127.0.0.1:{port}"):
            make_cluster(port=port).start()
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_a_broker_that_cannot_start_fails_at_once_with_its_last_words(make_cluster: MakeCluster) -> None:
    with pytest.raises(SandboxError, match="NoSuchOption") as failed:
        make_cluster(java_options=["-XX:+NoSuchOption"]).start()
    assert "did not answer within" not in str(failed.value), "it waited for a broker that had ended"


def test_settings_that_kafka_refuses_are_named(make_cluster: MakeCluster) -> None:
    with pytest.raises(SandboxError, match=r"storage tool refused(?s:.*)log\.segment\.bytes"):
        make_cluster(config={"log.segment.bytes": "many"}).start()


def test_a_storage_made_from_kept_features_is_that_of_the_storage_tool(
    east: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "_kept_features", lambda: tmp_path / "features")
    written = (east.directory / "server.properties").read_text()
    made = [replace(east._broker, directory=tmp_path / name) for name in ("by the tool", "kept")]
    for one in made:
        one.data.mkdir(parents=True)
        properties = one.directory / "server.properties"
        properties.write_text(written.replace(str(east.directory), str(one.directory)))
        one._format(properties)
    assert [(one.directory / "format.log").exists() for one in made] == [True, False]
    tool, kept = ({path.name: path.read_bytes() for path in one.data.iterdir()} for one in made)
    assert {name: content for name, content in tool.items() if name != "meta.properties"} == {
        name: content for name, content in kept.items() if name != "meta.properties"
    }
    ids = [javaproperties.loads(one["meta.properties"].decode()) for one in (tool, kept)]
    assert ids[0].keys() == ids[1].keys()
    assert {key for key in ids[0] if ids[0][key] != ids[1][key]} == {"cluster.id", "directory.id"}


def test_an_address_is_known_only_after_the_port_is(make_cluster: MakeCluster) -> None:
    own = make_cluster()
    assert "no port yet" in repr(own)
    with pytest.raises(SandboxError, match="no address is known yet"):
        _ = own.bootstrap_servers
