"""`registry` of a cluster: an address, and the names of its client; secrets by reference only."""

from __future__ import annotations

import pytest
import yaml

from mirrorlake.config.schema import RegistryConfig
from mirrorlake.errors import ConfigError
from tests.builders import mirror_config


def registry(text: str) -> RegistryConfig:
    found = mirror_config(east={"registry": yaml.safe_load(text)}).clusters["east"].registry
    assert found is not None
    return found


def test_references_are_resolved_for_the_client_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    made = registry(
        "{url: 'https://sr:8081', client: {basic.auth.user.info: 'mirror:${env:REGISTRY_PASSWORD}', ssl.ca.location: /ca.pem}}"
    )
    assert "hunter2" not in repr(made)
    assert made.options() == {
        "url": "https://sr:8081",
        "basic.auth.user.info": "mirror:hunter2",
        "ssl.ca.location": "/ca.pem",
    }
    monkeypatch.setenv("REGISTRY_URL", "sr:8081")
    with pytest.raises(ConfigError, match=r"clusters\.east\.registry\.url: the reference resolves to something"):
        registry("{url: '${env:REGISTRY_URL}'}").options()


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("{url: 'sr:8081'}", "url", "the value (hidden) is not an address"),
        ("{url: 'https://me:hunter2@sr'}", "url", "has a login in it"),
        (
            "{url: 'http://sr', client: {basic.auth.user.info: 'me:hunter2'}}",
            "client.basic.auth.user.info",
            "stands in",
        ),
        ("{url: 'http://sr', client: {bearer.auth.token: hunter2}}", "client.bearer.auth.token", "stands in"),
        ("{url: 'http://sr', client: {ssl.key.password: '${env:A:-hunter2}'}}", "client.ssl.key.password", "stands in"),
        ("{url: 'http://sr', client: {basic.auth: x}}", "client.basic.auth", "does not know 'basic.auth'"),
        ("{url: 'http://sr', client: {timeout: soon}}", "client.timeout", "a number is expected"),
        ("{client: {}}", "", "'url' is missing"),
    ],
)
def test_a_fault_names_its_place_and_no_secret(text: str, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry(text)
    [fault] = caught.value.faults
    assert fault.path == f"clusters.east.registry.{place}".rstrip(".")
    assert problem in fault.problem
    assert "hunter2" not in str(caught.value)
