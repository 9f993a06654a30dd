"""Connections of every kind by both clients, and what is said where one fails."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.loading import loads
from mirrorlake.config.schema import ClusterConfig
from mirrorlake.errors import ClusterUnreachable, LoginRefused
from mirrorlake.kafka import ClusterAdmin, librdkafka_options, spark_options
from tests.kit.records import new_topic
from tests.servers.secured import PASSWORD, STORE_PASSWORD, Secured

LISTENERS = ["TLS", "MTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTH"]


def cluster_of(address: str, client: dict[str, str]) -> ClusterConfig:
    clusters = {"east": {"bootstrap_servers": address, "client": client}, "west": {"bootstrap_servers": "west:1"}}
    flow = {"source": "east", "target": "west", "topics": "t"}
    return loads(json.dumps({"lake": {"root": "./lake"}, "clusters": clusters, "flows": [flow]})).cluster("east")


def read_by_java(spark: SparkSession, cluster: ClusterConfig, topic: str) -> int:
    return spark.read.format("kafka").options(**spark_options(cluster), subscribe=topic).load().count()


@pytest.fixture(scope="module")
def topic(secured: Secured) -> str:
    return new_topic(secured.cluster, 5, partitions=1)


def without(client: dict[str, str], *names: str) -> dict[str, str]:
    return {key: value for key, value in client.items() if key not in names}


FILES = ("ssl.certificate.location", "ssl.key.location")
FORMS = {
    "the CA as text": "TLS",
    "a trust store of Java": "TLS",
    "names unchecked, as Java writes it": "WRONG_HOST",
    "key and chain in two files": "MTLS",
    "an encrypted key": "MTLS",
    "an encrypted key in one file": "MTLS",
    "a key in PKCS#1": "MTLS",
    "a PKCS#12 store": "MTLS",
    "certificate and key as text": "MTLS",
    "a login line of Java": "PLAIN",
}


def client_of(form: str, secured: Secured) -> dict[str, str]:
    at, held = secured.certificates.path, secured.certificates.text
    client = secured.client(FORMS.get(form, form))
    match form:
        case "the CA as text":
            return {**without(client, "ssl.ca.location"), "ssl.ca.pem": held("ca.pem")}
        case "a trust store of Java":
            store = {"ssl.truststore.location": at("trust.p12"), "ssl.truststore.password": STORE_PASSWORD}
            return {**without(client, "ssl.ca.location"), **store}
        case "names unchecked, as Java writes it":
            return {**client, "ssl.endpoint.identification.algorithm": ""}
        case "key and chain in two files":
            return {**client, FILES[0]: at("client.crt"), FILES[1]: at("client.key")}
        case "an encrypted key":
            key = {FILES[1]: at("client-encrypted.key"), "ssl.key.password": STORE_PASSWORD}
            return {**client, FILES[0]: at("client.crt"), **key}
        case "an encrypted key in one file":
            return {**client, **dict.fromkeys(FILES, at("client-encrypted.pem")), "ssl.key.password": STORE_PASSWORD}
        case "a key in PKCS#1":
            return {**client, FILES[0]: at("client.crt"), FILES[1]: at("client-pkcs1.key")}
        case "a PKCS#12 store":
            store = {"ssl.keystore.location": at("client.p12"), "ssl.keystore.password": STORE_PASSWORD}
            return {**without(client, *FILES), **store}
        case "certificate and key as text":
            text = {"ssl.certificate.pem": held("client.crt"), "ssl.key.pem": held("client.key")}
            return {**without(client, *FILES), **text}
        case "a login line of Java":
            escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            line = f'{module} required username="mirror" password="{escaped}";'
            return {**without(client, "sasl.username", "sasl.password"), "sasl.jaas.config": line}
    return client


@pytest.mark.parametrize("form", [*LISTENERS, *FORMS])
def test_one_section_serves_both_clients(form: str, secured: Secured, topic: str, spark: SparkSession) -> None:
    cluster = cluster_of(secured.address(FORMS.get(form, form)), client_of(form, secured))
    assert topic in ClusterAdmin("east", librdkafka_options(cluster, role="admin"), probes=True).topic_names()
    assert read_by_java(spark, cluster, topic) == 5


FAILURES: dict[str, tuple[str, dict[str, str | None], str, str]] = {
    "wrong CA": ("TLS", {"ssl.ca.location": "other-ca.pem"}, "TLS", "name the CA that issued it"),
    "wrong host name": ("WRONG_HOST", {}, "TLS", "write a name of the certificate"),
    "expired certificate": ("EXPIRED", {}, "TLS", "renew the broker's certificate"),
    "no client certificate": ("MTLS", dict.fromkeys(FILES), "TLS", "add ssl.certificate.location"),
    "plain client, TLS listener": (
        "TLS",
        {"security.protocol": None, "ssl.ca.location": None},
        "TLS",
        "security.protocol of clusters.east.client to SSL",
    ),
    "login in plain text, TLS listener": (
        "PLAIN",
        {"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": None},
        "TLS",
        "SASL_SSL",
    ),
    "TLS client, plain listener": ("PLAINTEXT", {}, "TLS", "name a TLS listener"),
    "wrong password": ("PLAIN", {"sasl.password": "canary-wrong-9f1"}, "SASL", "check sasl.username"),
    "wrong SCRAM password": ("SCRAM-SHA-512", {"sasl.password": "canary-wrong-9f1"}, "SASL", "check sasl.username"),
    "unknown mechanism": ("OAUTH as PLAIN", {}, "SASL", "one of the broker's mechanisms"),
    "wrong client secret": (
        "OAUTH",
        {"sasl.oauthbearer.client.secret": "canary-wrong-9f1"},
        "SASL (token)",
        "the client's id and secret",
    ),
    "no token server": (
        "OAUTH",
        {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"},
        "SASL (token)",
        "token.endpoint.url of clusters.east.client answers",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_connection_that_fails_names_client_cluster_layer_and_fix(what: str, secured: Secured) -> None:
    kind, change, layer, remedy = FAILURES[what]
    client = secured.client({"PLAINTEXT": "TLS", "OAUTH as PLAIN": "PLAIN"}.get(kind, kind))
    for key, value in change.items():
        if value is None:
            del client[key]
        else:
            client[key] = secured.certificates.path(value) if value.endswith(".pem") else value
    listener = kind.partition(" ")[0]
    cluster = cluster_of(
        secured.cluster.address(listener) if listener == "PLAINTEXT" else secured.address(listener), client
    )
    options = {**librdkafka_options(cluster, role="admin"), "socket.connection.setup.timeout.ms": 3000}
    admin = ClusterAdmin("east", options, probes=True)
    with pytest.raises(ClusterUnreachable) as said:
        admin.topic_names()
    assert said.value.exit_code == 4
    assert f"cluster east: {layer} fails at 127.0.0.1:" in said.value.cause
    assert "librdkafka" in said.value.cause
    assert remedy in said.value.remedy
    assert "canary" not in str(said.value)
    assert isinstance(said.value, LoginRefused) == layer.startswith("SASL")


def test_a_token_server_that_was_away_is_asked_again(secured: Secured, topic: str) -> None:
    cluster = cluster_of(secured.address("OAUTH"), secured.client("OAUTH"))
    secured.tokens.is_down = True
    with pytest.raises(LoginRefused, match=r"SASL \(token\)"):
        ClusterAdmin("east", librdkafka_options(cluster, role="admin"), probes=True).topic_names()
    secured.tokens.is_down = False
    assert topic in ClusterAdmin("east", librdkafka_options(cluster, role="admin"), probes=True).topic_names()
