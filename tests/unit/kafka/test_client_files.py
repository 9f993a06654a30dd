"""Certificates and keys of real files, in forms that both clients take."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from mirrorlake.errors import ClusterError, ConfigError, Fault
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.kafka.client_files import ClientFiles
from tests.servers.secured import STORE_PASSWORD, Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


FILES = ClientFiles(lambda problem, remedy: ConfigError([Fault("mirror.yml", "clusters.east.client", problem, remedy)]))


@pytest.mark.parametrize("name", ["client-encrypted.key", "client-pkcs1.key", "client-encrypted.pem", "client.key"])
def test_every_form_of_a_key_becomes_the_one_that_java_reads(name: str, certificates: Certificates) -> None:
    password = STORE_PASSWORD if "encrypted" in name else None
    plain = FILES.plain_key(FILES.read(certificates.path(name)), password)
    assert plain.startswith("-----BEGIN PRIVATE KEY-----")
    expected = serialization.load_pem_private_key(certificates.text("client.key").encode(), None)
    assert serialization.load_pem_private_key(plain.encode(), None).private_numbers() == expected.private_numbers()  # type: ignore[union-attr]


def test_a_java_trust_store_holds_the_ca(certificates: Certificates) -> None:
    assert FILES.trusted(certificates.path("trust.p12"), STORE_PASSWORD) == certificates.text("ca.pem")


def test_what_cannot_be_read_is_said_without_the_secret(certificates: Certificates, tmp_path: Path) -> None:
    wrong = "wrong-canary"
    with pytest.raises(ConfigError, match=r"ssl\.key\.password does not open it") as said:
        FILES.plain_key(FILES.read(certificates.path("client-encrypted.key")), wrong)
    assert wrong not in str(said.value)
    with pytest.raises(ConfigError, match=r"add ssl\.key\.password"):
        FILES.plain_key(FILES.read(certificates.path("client-encrypted.key")), None)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.password does not open it") as said:
        FILES.trusted(certificates.path("trust.p12"), wrong)
    assert wrong not in str(said.value)
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        FILES.trusted(str(tmp_path / "none.p12"), None)
    with pytest.raises(ConfigError, match="cannot be read"):
        FILES.read(str(tmp_path / "none.pem"))


def test_a_key_store_that_its_password_does_not_open_is_said_with_cluster_and_setting(
    certificates: Certificates,
) -> None:
    options = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SSL",
        "ssl.keystore.location": certificates.path("client.p12"),
        "ssl.keystore.password": "wrong-canary",
    }
    with pytest.raises(ClusterError, match=r"client of cluster east refuses .*keystore") as said:
        ClusterAdmin("east", options)
    assert "clusters.east.client" in said.value.remedy
    assert "wrong-canary" not in str(said.value)
