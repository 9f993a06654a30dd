"""A port that is closed, silent or has no name is told with its address, before any client waits for its time-outs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.context import Context
from mirrorlake.doctor import try_cluster
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka import ClusterAdmin, Groups, RecordReader, librdkafka_options, probe
from mirrorlake.kafka import admin as admin_module
from mirrorlake.kafka.errors import ClientErrors
from mirrorlake.kafka.reach import require_listening
from tests.builders import NOON, mirror_config

REFUSED, NAMELESS = "127.0.0.1:9", "nobody.invalid:9092"


@pytest.fixture
def listening() -> Iterator[str]:
    """Give an address where somebody listens, who need not be a broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Give an address whose queue of connections is full, so that a new one gets no answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        yield f"127.0.0.1:{address[1]}"
        for one in waiting:
            one.close()


def test_each_address_is_told_by_what_is_wrong_with_it(listening: str, silent: str) -> None:
    # A look ends with its last address; to ask for a name may take a second.
    found = probe({"east": f"{listening},{REFUSED}", "west": NAMELESS}, timeout_s=60.0)
    assert found == {
        "east": {listening: "", REFUSED: "connection refused"},
        "west": {NAMELESS: "name does not resolve"},
    }
    assert probe({"west": silent}, timeout_s=0.5) == {"west": {silent: "no answer within 0.5 s"}}


def test_one_address_that_listens_is_enough(listening: str) -> None:
    require_listening("east", f"{REFUSED},{listening}")
    with pytest.raises(
        ClusterUnreachable, match=r"east does not answer: 127\.0\.0\.1:9 connection refused.*sandbox up"
    ):
        require_listening("east", REFUSED)


def test_no_client_waits_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    # librdkafka would get so long before the test fails.
    monkeypatch.setenv("MIRRORLAKE_TIMING", "admin_timeout_s=0.5")
    config = mirror_config({"source": "east", "target": "central", "topics": "orders"})
    cluster = config.cluster("east").model_copy(update={"bootstrap_servers": (REFUSED,)})
    said = rf"does not answer: {REFUSED} connection refused"
    options = librdkafka_options(cluster, role="consumer")
    with pytest.raises(ClusterUnreachable, match=said):
        ClusterAdmin("east", librdkafka_options(cluster, role="admin"), probes=True).topic_names()
    with pytest.raises(ClusterUnreachable, match=said):
        Groups("east", options, probes=True).states()
    with pytest.raises(ClusterUnreachable, match=said), RecordReader("east", options, probes=True) as reader:
        reader.ends("orders", 0)
    tried = try_cluster(cluster, "east")
    assert (tried.ok, "connection refused" in tried.problem) == (False, True)


def test_a_client_that_was_answered_once_is_left_to_itself(listening: str) -> None:
    errors = ClientErrors(alias="east", servers=listening, probes=True)
    with errors.translating("ask"):
        pass
    # By now it knows brokers that the settings do not name.
    errors.servers = REFUSED
    with errors.translating("ask"):
        pass


def test_a_client_that_answers_nothing_any_more_is_an_error_in_time_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context(mirror_config(), spark=object(), now=lambda: NOON, display=lambda: None)  # type: ignore[arg-type]
    admin = context.admin("east")
    monkeypatch.setattr(admin_module, "timing", lambda: SimpleNamespace(admin_timeout_s=0))
    monkeypatch.setattr(admin_module, "_LOST_AFTER_S", 0.01)
    asked: Any = SimpleNamespace(describe_topics=lambda *_, **__: {"t": Future[None]()}, poll=lambda _: 0)
    monkeypatch.setattr(admin, "_client", asked)
    admin._errors.probes = False
    assert context.admin("east") is admin
    with pytest.raises(ClusterUnreachable):
        admin.describe(["t"])
    assert context.admin("east") is not admin
