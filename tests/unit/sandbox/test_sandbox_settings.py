"""The sandbox's settings as text and as addresses: no broker needed."""

from __future__ import annotations

import javaproperties
import pytest

from mirrorlake.errors import SandboxError
from mirrorlake.sandbox.detached import loopback_listener
from mirrorlake.sandbox.properties import properties_text


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
        ("east", "127.0.0.1:1,127.0.0.1:2"),
        ("../east", "127.0.0.1:9092"),
        ("", "127.0.0.1:9092"),
    ],
)
def test_anything_else_is_refused(alias: str, address: str) -> None:
    with pytest.raises(SandboxError, match="nothing was started"):
        loopback_listener(alias, address)
