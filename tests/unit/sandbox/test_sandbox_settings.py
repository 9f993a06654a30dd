"""The sandbox's settings as text and as addresses, and its sample traffic: no broker needed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from confluent_kafka import KafkaError, KafkaException

from mirrorlake.errors import SandboxError
from mirrorlake.model.flow import TopicPartition
from mirrorlake.sandbox import broker, ports, traffic
from mirrorlake.sandbox.detached import loopback_listener
from mirrorlake.sandbox.ports import free_ports
from mirrorlake.sandbox.properties import Listener, properties_text, server_properties


def test_given_settings_win() -> None:
    given = {"auto.create.topics.enable": "true", "message.max.bytes": 10}
    assert server_properties(Path("/d"), [Listener(port=1)], controller_port=2)["auto.create.topics.enable"] == "false"
    properties = server_properties(Path("/d"), [Listener(port=1)], controller_port=2, config=given)
    assert properties["auto.create.topics.enable"] == "true"
    assert properties["message.max.bytes"] == "10"


def test_values_survive_javas_properties_format() -> None:
    given = {"a": "C:\\x", "b": "line\nbreak", "c": "é→😀", "east->west.topics": " a=b:c#d!"}
    text = properties_text(given)
    assert "c=\\u00e9\\u2192\\ud83d\\ude00" in text, "Java reads these files as Latin-1"
    assert javaproperties.loads(text) == given


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:19092", "127.0.0.1:19092"),
        ("localhost:19092", "127.0.0.1:19092"),
        ("127.9.9.9:1", "127.9.9.9:1"),
        ("[::1]:19092", "[::1]:19092"),
    ],
)
def test_addresses_of_this_machine_are_accepted(address: str, expected: str) -> None:
    assert loopback_listener("east", address).address == expected


@pytest.mark.parametrize(
    ("alias", "address"),
    [
        ("east", "10.0.0.1:9092"),
        ("east", "kafka.example.com:9092"),
        ("east", "0.0.0.0:9092"),
        ("east", "127.0.0.1"),
        ("east", "127.0.0.1:0"),
        ("east", "127.0.0.1:65536"),
        ("east", "127.0.0.1:1,127.0.0.1:2"),
        ("../east", "127.0.0.1:9092"),
        ("", "127.0.0.1:9092"),
    ],
)
def test_anything_else_is_refused(alias: str, address: str) -> None:
    with pytest.raises(SandboxError, match="nothing was started"):
        loopback_listener(alias, address)


def test_a_controller_gets_no_port_of_a_listener_which_nobody_listens_on_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, others, left = free_ports(3)
    monkeypatch.setattr(ports, "_RANGE", [own, others, left])
    for name in ("_archived", "_java", "start_process"):
        monkeypatch.setattr(broker, name, lambda *_, **__: [])
    made = broker.Broker(alias="east", directory=tmp_path, listeners=(Listener(port=own),))
    made.data.mkdir()
    (made.data / "meta.properties").touch()
    for _ in range(20):
        made.launch(tied=True, besides=[others])
        assert f"CONTROLLER://127.0.0.1:{left}" in (tmp_path / "server.properties").read_text().replace("\\:", ":")


class Coming:
    """Stands for a consumer whose coordinator loads at first."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.committed: list[Any] = []
        self.closed = False

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        assert not asynchronous
        if self.answers:
            raise KafkaException(KafkaError(self.answers.pop(0)))
        self.committed = [(one.topic, one.partition, one.offset) for one in offsets]

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("answers", "committed"),
    [
        ([KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS], [("orders", 1, 5)]),
        ([KafkaError.GROUP_AUTHORIZATION_FAILED], []),
    ],
)
def test_a_coordinator_that_loads_is_waited_for_and_any_other_refusal_is_told_at_once(
    answers: list[int], committed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Coming(*answers)
    monkeypatch.setattr(traffic, "Consumer", lambda _: consumer)
    with nullcontext() if committed else pytest.raises(KafkaException):
        traffic._read_half("127.0.0.1:1", {TopicPartition("orders", 1): 10})
    assert (consumer.committed, consumer.closed) == (committed, True)
