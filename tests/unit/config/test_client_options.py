"""One client section, two clients: every row of the table in both directions, and what must not be set."""

from __future__ import annotations

import json
import pickle
import sys
import types
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config import loads
from mirrorlake.config.client import ClientOptions, OptionError, jaas, translate
from mirrorlake.config.client.names import LIBRDKAFKA_ONLY, ROWS
from mirrorlake.config.client.options import check_client, check_producer
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import ConfigError
from mirrorlake.kafka import librdkafka_options, spark_options
from mirrorlake.kafka.options import java_options

PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
PLAIN_LINE = f'{jaas.MODULES["PLAIN"]} required username="u" password="p";'
SCRAM_LINE = f'{jaas.MODULES["SCRAM-SHA-512"]} required username="u" password="p";'
LOGIN = {"sasl.username": "u", "sasl.password": "p"}
URL = "sasl.oauthbearer.token.endpoint.url"
IAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", URL: "https://idp/token"}
SSL = {"security.protocol": "SSL"}
PEM_TRUST = {**SSL, "ssl.truststore.type": "PEM"}
PEM = "-----BEGIN X-----\nAA==\n-----END X-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"


class Files:
    """Files by their names; `c.pem` holds a key that Java reads, every other key has to be decrypted."""

    def read(self, path: str) -> str:
        return "-----BEGIN PRIVATE KEY-----" if path == "c.pem" else f"text of {path}"

    def trusted(self, path: str, password: str | None) -> str:
        return f"certificates of {path} by {password}"

    def plain_key(self, pem: str, password: str | None) -> str:
        return f"{pem} by {password}"


def both(client: dict[str, str]) -> ClientOptions:
    return translate(client, files=Files())


def config_of(client: object = "{}", producer: str = "{}", *, servers: str = "east:9092") -> MirrorConfig:
    client = client if isinstance(client, str) else json.dumps(client)
    return loads(
        f"""
lake: {{root: ./lake}}
clusters:
  east: {{bootstrap_servers: "{servers}", client: {client}}}
  west: {{bootstrap_servers: "west:9092"}}
flows:
  - {{source: east, target: west, topics: orders, producer: {producer}}}
"""
    )


TABLE = [
    ("request.timeout.ms", "9000", "socket.timeout.ms", "9000"),
    ("metadata.max.age.ms", "60000", "topic.metadata.refresh.interval.ms", "60000"),
    ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
    ("receive.buffer.bytes", "65536", "socket.receive.buffer.bytes", "65536"),
    ("fetch.max.wait.ms", "100", "fetch.wait.max.ms", "100"),
    ("max.partition.fetch.bytes", "1048576", "fetch.message.max.bytes", "1048576"),
    ("max.request.size", "2000000", "message.max.bytes", "2000000"),
    ("buffer.memory", "33554432", "queue.buffering.max.kbytes", "32768"),
    ("linger.ms", "5", "queue.buffering.max.ms", "5"),
    ("compression.type", "zstd", "compression.codec", "zstd"),
    ("client.rack", "r1", "client.rack", "r1"),
]


@pytest.mark.parametrize(("java", "java_value", "librdkafka", "librdkafka_value"), TABLE)
def test_either_spelling_serves_both_clients(
    java: str, java_value: str, librdkafka: str, librdkafka_value: str
) -> None:
    written = both({java: java_value}), both({librdkafka: librdkafka_value})
    assert written[0] == written[1]
    assert written[0].java == {java: java_value}
    assert list(written[0].librdkafka.values()) == [librdkafka_value]


OIDC = {**OAUTH, "sasl.oauthbearer.client.id": "i", "sasl.oauthbearer.client.secret": "s"}
TOKEN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
UNSECURED = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"}


@pytest.mark.parametrize(
    ("base", "ours", "line"),
    [
        (PLAIN, LOGIN, PLAIN_LINE),
        (
            OAUTH,
            {**OIDC, "sasl.oauthbearer.scope": "c", "sasl.oauthbearer.extensions": "k=v"},
            f'{jaas.MODULES["OAUTHBEARER"]} required clientId="i" clientSecret="s" scope="c" extension_k="v";',
        ),
        (TOKEN, UNSECURED, f'{jaas.MODULES["OAUTHBEARER"]} required unsecuredLoginStringClaim_sub="alice";'),
    ],
    ids=["password", "oidc", "unsecured"],
)
def test_a_login_is_spelled_for_both(base: dict[str, str], ours: dict[str, str], line: str) -> None:
    options = both({**base, **ours})
    assert options == both({**base, "sasl.jaas.config": line})
    assert options.java["sasl.jaas.config"] == line
    if base == PLAIN:
        assert options.librdkafka == {**PLAIN, **LOGIN}
    if base == OAUTH:
        assert options.java["sasl.login.callback.handler.class"].endswith("oauthbearer.OAuthBearerLoginCallbackHandler")
        assert options.librdkafka["sasl.oauthbearer.method"] == "oidc"


def test_databricks_shaded_classes_are_written_and_read() -> None:
    shaded = translate(OIDC, files=Files(), shaded=True).java
    assert shaded["sasl.jaas.config"].startswith("kafkashaded.org.apache.kafka.")
    assert shaded["sasl.login.callback.handler.class"].startswith("kafkashaded.org.apache.kafka.")
    assert both(dict(shaded)) == both(OIDC)


TLS = [
    ({"ssl.ca.location": "ca.pem"}, {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}),
    ({"ssl.ca.pem": PEM}, {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": PEM}),
    (
        {"ssl.certificate.location": "c.pem", "ssl.key.location": "c.pem"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "c.pem"},
    ),
    (
        {"ssl.certificate.pem": PEM, "ssl.key.pem": KEY},
        {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": PEM, "ssl.keystore.key": KEY},
    ),
    (
        {"ssl.keystore.location": "c.p12", "ssl.keystore.password": "k"},
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "c.p12", "ssl.keystore.password": "k"},
    ),
    ({"ssl.endpoint.identification.algorithm": "none"}, {"ssl.endpoint.identification.algorithm": ""}),
    ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
]


@pytest.mark.parametrize(("librdkafka", "java"), TLS)
def test_tls_is_spelled_for_both(librdkafka: dict[str, str], java: dict[str, str]) -> None:
    options = both({**SSL, **librdkafka})
    assert options == both({**SSL, **java})
    assert options.java == {**SSL, **java}
    assert options.librdkafka == {**SSL, **librdkafka}


WRONG = [
    ({"requst.timeout.ms": "1"}, "did you mean 'request.timeout.ms'?"),
    ({"kafka.client.id": "x"}, "write client.id"),
    ({"group.id": "x"}, "Spark refuses it"),
    ({"auto.offset.reset": "latest"}, "use `start:` of the flow"),
    ({"key.deserializer": "x"}, "law C"),
    ({"enable.auto.commit": "true"}, "law H"),
    ({"interceptor.classes": "x"}, "law C"),
    ({"isolation.level": "read_uncommitted"}, "aborted records"),
    ({"enable.idempotence": "false"}, "law D"),
    ({"acks": "1"}, "law E"),
    ({"transactional.id": "x"}, "law F"),
    ({"max.block.ms": "1"}, "remove it"),
    ({"compression.zstd.level": "3"}, "write compression.level"),
    ({"error_cb": "f"}, "a settings file cannot hold a function"),
    ({"request.timeout.ms": "1", "socket.timeout.ms": "1"}, "another name of request.timeout.ms"),
    ({"security.protocol": "SASL_SLL"}, "did you mean 'SASL_SSL'?"),
    ({"ssl.ca.location": "ca.pem"}, "would stay unencrypted"),
    ({"sasl.mechanism": "PLAIN", **LOGIN}, "it would be ignored"),
    ({"security.protocol": "SASL_SSL", **LOGIN}, "sasl.mechanism is missing"),
    ({**SSL, "ssl.truststore.location": "trust.jks"}, "keytool -exportcert"),
    ({**SSL, "ssl.truststore.location": "trust"}, "write ssl.ca.location"),
    ({**PEM_TRUST, "ssl.truststore.location": "a", "ssl.truststore.password": "x"}, "no password"),
    ({**SSL, "ssl.keystore.location": "k.jks", "ssl.keystore.password": "x"}, "deststoretype PKCS12"),
    ({**SSL, "ssl.keystore.location": "k.p12"}, "add ssl.keystore.password"),
    ({**SSL, "ssl.certificate.location": "c.pem"}, "add ssl.key.location"),
    ({**SSL, "ssl.key.pem": "x", "ssl.certificate.pem": "x", "ssl.key.location": "k"}, "given in two ways"),
    ({**SSL, "ssl.ca.location": "a.pem", "ssl.ca.pem": "x"}, "trust is configured twice"),
    ({**SSL, "ssl.ca.location": "probe"}, "name the file"),
    ({**SSL, "ssl.endpoint.identification.algorithm": "off"}, "write https"),
    ({**SSL, "enable.ssl.certificate.verification": "false"}, "name the CA"),
    ({**SSL, "ssl.cipher.suites": "x"}, "IANA names"),
    ({**PLAIN, "sasl.mechanism": "GSSAPI"}, "without Kerberos"),
    ({**IAM, "sasl.jaas.config": f'{IAM_MODULE} required awsRoleExternalId="x";'}, "has no option awsRoleExternalId"),
    ({**IAM, "sasl.jaas.config": f'{IAM_MODULE} required awsRoleSessionName="x";'}, "no effect without a role"),
    ({**IAM, "sasl.jaas.config": f'{IAM_MODULE} required awsProfileName="x" awsRoleArn="y";'}, "not both"),
    ({**IAM, "sasl.jaas.config": "org.acme.Login required;"}, "is not the module of AWS_MSK_IAM"),
    ({**IAM, "sasl.client.callback.handler.class": "org.acme.Handler"}, "is not Amazon's handler"),
    ({**IAM, "security.protocol": "SASL_PLAINTEXT"}, "over TLS only"),
    ({**OAUTH, "sasl.client.callback.handler.class": "org.acme.Handler"}, "cannot serve librdkafka"),
    ({**PLAIN, "sasl.username": "u"}, "add sasl.password"),
    ({**PLAIN, **LOGIN, "sasl.jaas.config": PLAIN_LINE}, "given twice"),
    ({**PLAIN, "sasl.jaas.config": SCRAM_LINE}, "not the module"),
    ({**PLAIN, "sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required;"}, "is refused"),
    ({**PLAIN, "sasl.jaas.config": "com.sun.security.auth.module.LdapLoginModule required;"}, "is refused"),
    ({**SCRAM, "sasl.jaas.config": SCRAM_LINE.replace(";", ' tokenauth="true";')}, "delegation tokens"),
    ({**PLAIN, "sasl.jaas.config": "nonsense"}, "not a login line"),
    ({**OAUTH}, "client.id is missing"),
    ({**OAUTH, "sasl.oauthbearer.method": "default"}, "only oidc works"),
    ({**OAUTH, "sasl.login.callback.handler.class": "my.Handler"}, "cannot serve librdkafka"),
]


@pytest.mark.parametrize(("client", "text"), WRONG)
def test_what_cannot_serve_both_clients_is_a_finding_with_a_remedy(client: dict[str, str], text: str) -> None:
    findings = check_client(client)
    assert any(text in f"{finding.problem}; {finding.remedy}" for finding in findings), findings
    assert all(finding.place[0] in client for finding in findings)
    with pytest.raises(OptionError):
        both(client)


@pytest.mark.parametrize(
    "spelled",
    [
        {"sasl.jaas.config": f'{IAM_MODULE} required awsRoleArn="arn:r" awsRoleSessionName="s";'},
        {
            "sasl.jaas.config": f'{IAM_MODULE} required awsRoleArn="arn:r" awsRoleSessionName="s";',
            "sasl.client.callback.handler.class": "shadedmskiam.software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{jaas.MODULES["OAUTHBEARER"]} required awsRoleArn="arn:r" awsRoleSessionName="s";',
            "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        },
    ],
)
def test_msk_s_login_serves_both_clients_from_one_spelling(
    spelled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java takes Amazon's handler, librdkafka a call-back that signs with Amazon's signer, wherever it is sent."""
    calls = []

    def signed(region: str, role: str, sts_session_name: str) -> tuple[str, int]:
        calls.append((region, role, sts_session_name))
        return "token", 1_700_000_900_000

    provider = types.SimpleNamespace(generate_auth_token_from_role_arn=signed)
    signer = types.SimpleNamespace(MSKAuthTokenProvider=provider)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
    servers = "b-1.mirror.abc.c2.kafka.eu-west-1.amazonaws.com:9098"
    cluster = config_of({**IAM, **spelled}, servers=servers).cluster("east")
    java = java_options(cluster)
    assert java["sasl.mechanism"] == "AWS_MSK_IAM"
    assert java["sasl.client.callback.handler.class"] == "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    assert jaas.parse(java["sasl.jaas.config"]).module == IAM_MODULE
    shaded = java_options(cluster, shaded=True)
    assert shaded["sasl.jaas.config"].startswith(f"shadedmskiam.{IAM_MODULE}"), "as Databricks ships it"
    for role in ("admin", "consumer", "producer"):
        options = librdkafka_options(cluster, role=role)  # type: ignore[arg-type]
        sign = pickle.loads(pickle.dumps(options["oauth_cb"]))  # noqa: S301 - our own bytes
        assert sign("") == ("token", 1_700_000_900.0)
        assert options["sasl.mechanism"] == "OAUTHBEARER"
        assert not [name for name in options if name.startswith("mirrorlake.")]
    assert calls == [("eu-west-1", "arn:r", "s")] * 3
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"mirrorlake\[msk\]"):
        librdkafka_options(cluster, role="admin")


def test_msk_s_region_comes_from_the_brokers_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", types.SimpleNamespace(MSKAuthTokenProvider=None))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    own = config_of(IAM, servers="kafka.internal:9098").cluster("east")
    with pytest.raises(ConfigError, match="AWS_REGION"):
        librdkafka_options(own, role="admin")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert librdkafka_options(own, role="admin")["oauth_cb"].region == "eu-north-1"
    serverless = config_of(IAM, servers="boot-a.c1.kafka-serverless.us-east-1.amazonaws.com:9098").cluster("east")
    assert librdkafka_options(serverless, role="admin")["oauth_cb"].region == "us-east-1"


def test_each_role_takes_its_own() -> None:
    options = both({"linger.ms": "1", "fetch.min.bytes": "1", "client.id": "x"})
    assert options.librdkafka_for("admin") == {"client.id": "x"}
    assert options.librdkafka_for("consumer") == {"client.id": "x", "fetch.min.bytes": "1"}
    assert options.librdkafka_for("producer") == {"client.id": "x", "linger.ms": "1"}
    assert options.java_for("consumer") == {"client.id": "x", "fetch.min.bytes": "1"}


@pytest.mark.parametrize(
    "key", ["ssl.ca.location", "sasl.password", "fetch.min.bytes", "max.poll.records", "acks", "nope"]
)
def test_a_flows_producer_section_is_for_tuning_only(key: str) -> None:
    assert check_producer({key: "1"})


VALUES = {
    "client.dns.lookup": "use_all_dns_ips",
    "metadata.recovery.strategy": "none",
    "compression.type": "lz4",
    "compression.level": "3",
    "debug": "security",
    "broker.address.family": "v4",
    "ssl.curves.list": "P-256",
    "ssl.sigalgs.list": "RSA+SHA256",
    "message.max.bytes": "1000000",
    "fetch.max.bytes": "1000000",
    "max.in.flight.requests.per.connection": "5",
    "log_level": "0",
    **dict.fromkeys(
        ("check.crcs", "enable.metrics.push", "enable.random.seed", "log.connection.close", "log.thread.name"), "true"
    ),
    **dict.fromkeys(("socket.keepalive.enable", "socket.nagle.disable", "topic.metadata.refresh.sparse"), "true"),
}
NEEDS_A_FILE = {"https.ca.location", "https.ca.pem", "ssl.crl.location", "ssl.providers"}


@pytest.mark.parametrize("name", sorted({row.librdkafka for row in ROWS} | set(LIBRDKAFKA_ONLY) - NEEDS_A_FILE))
def test_librdkafka_knows_every_name_of_the_table(name: str) -> None:
    options = both({name: VALUES.get(name, "3000")})
    if name in options.librdkafka_for("producer"):
        Producer({"log_level": "0", **options.librdkafka_for("producer")})
    else:
        Consumer({"log_level": "0", "group.id": "x", **options.librdkafka_for("consumer")})


@pytest.mark.law("E", "H")
def test_the_edge_adds_what_the_laws_need() -> None:
    cluster = config_of("{linger.ms: 50}", "{linger.ms: 7}").cluster("east")
    producer = librdkafka_options(cluster, role="producer", extra={"linger.ms": "7"})
    assert (producer["enable.idempotence"], producer["acks"]) == ("true", "all"), "law E: a loss was never counted"
    assert producer["linger.ms"] == "7", "the flow beats the cluster"
    assert librdkafka_options(cluster, role="producer")["linger.ms"] == "50", "the cluster beats the default"
    consumer = librdkafka_options(cluster, role="consumer")
    assert consumer["isolation.level"] == java_options(cluster)["isolation.level"] == "read_committed"
    assert consumer["enable.auto.commit"] == "false", "law H: nothing is written to a source"
    assert java_options(cluster)["allow.auto.create.topics"] == "false", "law H: reading never creates a topic"
    assert all(name.startswith("kafka.") for name in spark_options(cluster))
    assert spark_options(cluster)["kafka.bootstrap.servers"] == "east:9092"


tuning = st.dictionaries(
    st.sampled_from([row.java for row in ROWS]),
    st.integers(1, 2**20).map(lambda number: str(number * 1024)),
    max_size=6,
)
printable = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
connections = st.one_of(
    st.just({}),
    st.builds(lambda name, word: {**SCRAM, "sasl.username": name, "sasl.password": word}, printable, printable),
    st.builds(
        lambda name, word: {**OAUTH, "sasl.oauthbearer.client.id": name, "sasl.oauthbearer.client.secret": word},
        printable,
        printable,
    ),
    st.sampled_from([{**SSL, **librdkafka} for librdkafka, _ in TLS]),
)


@given(connections, tuning)
def test_translation_is_stable_from_either_side(connection: dict[str, str], options: dict[str, str]) -> None:
    once = both({**connection, **options})
    assert both(dict(once.java)).java == once.java
    assert both(dict(once.librdkafka)) == once, "java -> librdkafka -> java gives the same settings"


@given(printable)
def test_a_secret_inside_a_login_line_stays_a_value(secret: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ML_WORD", secret)
        line = f'{jaas.MODULES["PLAIN"]} required username="u" password="${{env:ML_WORD}}";'
        config = config_of(f"{{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.jaas.config: '{line}'}}")
        cluster = config.cluster("east")
        assert librdkafka_options(cluster, role="admin")["sasl.password"] == secret
        assert jaas.parse(java_options(cluster)["sasl.jaas.config"]).options == {"username": "u", "password": secret}


def test_a_whole_login_line_may_be_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").mkdir()
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path))
    (tmp_path / "s" / "line").write_text(f"{PLAIN_LINE}\n", encoding="utf-8")
    client = '{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.jaas.config: "${secret:s/line}"}'
    cluster = config_of(client).cluster("east")
    assert librdkafka_options(cluster, role="admin")["sasl.password"] == "p"
