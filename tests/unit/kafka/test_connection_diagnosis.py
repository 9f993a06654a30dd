"""Certificates and keys in forms that both clients take, and which layer of a connection fails."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from mirrorlake.config import loads
from mirrorlake.errors import ClusterError, ConfigError, Fault
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.kafka.client_files import ClientFiles
from mirrorlake.kafka.connection_diagnosis import ClientErrorListener, ConnectionFault, diagnose_connection
from mirrorlake.kafka.errors import ClientErrors
from tests.servers.secured import Certificates

Listen = Callable[..., str]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Listen once, with TLS or without; then so much is read before the connection is closed."""
    sockets: list[socket.socket] = []

    def make(context: ssl.SSLContext | None, *, reads: int = 10) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def answer() -> None:
            with suppress(OSError):
                sock, _ = server.accept()
                with suppress(OSError), sock:
                    if context is None:
                        # A broker closes what does not speak its protocol.
                        sock.recv(reads)
                    else:
                        context.wrap_socket(sock, server_side=True).close()

        threading.Thread(target=answer, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield make
    for one in sockets:
        one.close()


def context_of(certificates: Certificates, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path(f"{name}.pem"))
    return context


def diagnosed(options: dict[str, str], said: ClientErrorListener | None = None, **more: bool) -> ConnectionFault | None:
    return diagnose_connection("east", options, said or ClientErrorListener(), **more)


def fault(options: dict[str, str], said: ClientErrorListener | None = None) -> ConnectionFault:
    found = diagnosed(options, said)
    assert found is not None
    return found


def test_a_good_certificate_is_no_trouble(certificates: Certificates, listen: Listen) -> None:
    options = {"security.protocol": "SSL", "ssl.ca.pem": certificates.text("ca.pem")}
    good = {**options, "bootstrap.servers": listen(context_of(certificates, "good"))}
    assert diagnosed(good) is None
    unchecked = {**options, "bootstrap.servers": listen(context_of(certificates, "elsewhere"))}
    assert diagnosed({**unchecked, "ssl.endpoint.identification.algorithm": "none"}) is None


def heard(code: int, text: str) -> ClientErrorListener:
    said = ClientErrorListener()
    said(KafkaError(KafkaError._TRANSPORT, "ssl://127.0.0.1:1/bootstrap: Disconnected (after 3ms in state UP)"))
    said(KafkaError(code, text))
    said(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    said(KafkaError(KafkaError._TRANSPORT, "later, and less telling"))
    return said


def test_an_outage_is_none_of_tls(certificates: Certificates) -> None:
    options = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"}
    trusting = {**options, "ssl.ca.location": certificates.path("ca.pem")}
    assert diagnosed(trusting, heard(KafkaError._TRANSPORT, "Disconnected")) is None
    token = {**trusting, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    assert diagnosed(token) is None


def test_what_a_call_did_that_went_out_before_a_login_was_refused_is_in_doubt() -> None:
    errors = ClientErrors.from_options("east", {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})
    errors.listener(KafkaError(KafkaError._AUTHENTICATION, "no"))
    timed_out = KafkaError(KafkaError._TIMED_OUT)
    assert "nothing was changed" in errors.to_cluster_error(timed_out, "create topic orders").consequence
    errors.has_worked = True
    assert "is not known" in errors.to_cluster_error(timed_out, "create topic orders").consequence


def test_a_token_that_never_comes_is_told(listen: Listen) -> None:
    options = {
        "sasl.mechanism": "OAUTHBEARER",
        "security.protocol": "SASL_PLAINTEXT",
        "bootstrap.servers": listen(None),
    }
    assert diagnosed(options, has_worked=True) is None, "it had one: the broker may be slow"
    found = fault({**options, "bootstrap.servers": listen(None)})
    assert (found.layer, found.problem) == ("SASL (token)", "no OAUTHBEARER token came in time")


def test_a_refused_client_waits_no_longer_and_a_slow_one_does() -> None:
    asked: list[float] = []

    def call(timeout_s: float) -> str:
        asked.append(timeout_s)
        if len(asked) < 3:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return "answered"

    slow = ClientErrors.from_options("east", {})
    assert slow.call_with_early_failure(call, 15.0) == "answered"
    assert len(asked) == 3

    asked.clear()
    refused = ClientErrors.from_options("east", {})
    refused.listener(KafkaError(KafkaError._AUTHENTICATION, "no"))
    with pytest.raises(KafkaException):
        refused.call_with_early_failure(call, 15.0)
    assert len(asked) == 1


def test_a_page_for_both_loads_as_it_stands() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    examples = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    assert len(examples) == 5
    for example in examples:
        rest = "\n  central: {bootstrap_servers: 'central:9092'}\nlake: {root: ./lake}\n"
        config = loads(f"{example.rstrip()}{rest}flows: [{{source: east, target: central, topics: orders}}]")
        assert config.cluster("east").client


CLIENT_FILES = ClientFiles(
    lambda problem, remedy: ConfigError([Fault("mirror.yml", "clusters.east.client", problem, remedy)])
)


def test_what_cannot_be_read_is_said_without_the_secret(certificates: Certificates, tmp_path: Path) -> None:
    wrong = "wrong-canary"
    with pytest.raises(ConfigError, match=r"ssl\.key\.password does not open it") as said:
        CLIENT_FILES.plain_key(CLIENT_FILES.read(certificates.path("client-encrypted.key")), wrong)
    assert wrong not in str(said.value)
    with pytest.raises(ConfigError, match=r"add ssl\.key\.password"):
        CLIENT_FILES.plain_key(CLIENT_FILES.read(certificates.path("client-encrypted.key")), None)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.password does not open it") as said:
        CLIENT_FILES.trusted(certificates.path("trust.p12"), wrong)
    assert wrong not in str(said.value)
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        CLIENT_FILES.trusted(str(tmp_path / "none.p12"), None)
    with pytest.raises(ConfigError, match="cannot be read"):
        CLIENT_FILES.read(str(tmp_path / "none.pem"))


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
