"""One broker with a listener of each kind, its certificates, and a token server: what a client meets in a guarded network."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from flask import Flask, Response, jsonify, request
from werkzeug.serving import make_server

from mirrorlake.sandbox import KafkaCluster
from mirrorlake.sandbox.properties import JAVA_OPTIONS, Listener

USER, PASSWORD, STORE_PASSWORD = "mirror", 'pass"word\\ with $igns', "canarypassphrase9f1"
CLIENT_ID, CLIENT_SECRET = "mirror-client", "client-secret"
KINDS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "WRONG_HOST": "SSL",
    "EXPIRED": "SSL",
    "PLAIN_TEXT_LOGIN": "SASL_PLAINTEXT",
    "SASL_TLS": "SASL_SSL",
    "OAUTH": "SASL_SSL",
}
_SECURITY = "org.apache.kafka.common.security"
_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass
class Certificates:
    """A CA, what it issued to broker and client, and another CA that nobody trusts."""

    folder: Path
    ca: trustme.CA = field(default_factory=lambda: trustme.CA(key_type=trustme.KeyType.RSA))

    def __post_init__(self) -> None:
        self.write("ca.pem", self.ca.cert_pem.bytes())
        self.write("other-ca.pem", trustme.CA().cert_pem.bytes())
        past = datetime.now(timezone.utc) - timedelta(days=1)
        self.server("good", "127.0.0.1", "localhost")
        self.server("elsewhere", "broker.elsewhere.example")
        self.server("expired", "127.0.0.1", not_before=past - timedelta(days=9), not_after=past)
        self._client()

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def server(self, name: str, *hosts: str, **validity: Any) -> None:
        """Write `<name>.pem`: key in the form that Java reads, and chain."""
        leaf = self.ca.issue_cert(*hosts, key_type=trustme.KeyType.RSA, **validity)
        self.write(f"{name}.pem", _pkcs8(leaf.private_key_pem.bytes()) + _chain(leaf))

    def _client(self) -> None:
        leaf = self.ca.issue_cert("mirror.example", common_name="mirror", key_type=trustme.KeyType.RSA)
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        plain, chain = _pkcs8(leaf.private_key_pem.bytes()), _chain(leaf)
        encrypted = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(STORE_PASSWORD.encode()),
        )
        traditional = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        self.write("client.pem", plain + chain)
        self.write("client.crt", chain)
        self.write("client.key", plain)
        self.write("client-pkcs1.key", traditional)
        self.write("client-encrypted.key", encrypted)
        self.write("client-encrypted.pem", encrypted + chain)
        own, *rest = x509.load_pem_x509_certificates(chain)
        store = pkcs12.serialize_key_and_certificates(
            b"mirror", key, own, rest, serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        )
        self.write("client.p12", store)
        trusted = x509.load_pem_x509_certificates(self.ca.cert_pem.bytes())
        java = [pkcs12.PKCS12Certificate(one, b"ca") for one in trusted]
        self.write(
            "trust.p12",
            pkcs12.serialize_java_truststore(java, serialization.BestAvailableEncryption(STORE_PASSWORD.encode())),
        )


def _pkcs8(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _chain(leaf: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems)


class TokenServer:
    """Tokens for a client's id and secret (OIDC client credentials), and the keys that prove them (JWKS), on loopback."""

    def __init__(self) -> None:
        self.is_down = False
        self.lifetime_s = 3600
        self.issued: list[str] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        app = Flask("tokens")
        app.post("/token")(self._token)
        app.get("/keys")(self._keys)
        self._server = make_server("127.0.0.1", 0, app, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()

    def _token(self) -> Response | tuple[Response, int]:
        if self.is_down:
            return jsonify(error="down for repair"), 503
        given = request.authorization
        if given is None or (given.username, given.password) != (CLIENT_ID, CLIENT_SECRET):
            return jsonify(error="invalid_client"), 401
        now = int(time.time())
        claims = {"sub": CLIENT_ID, "iat": now, "exp": now + self.lifetime_s, "iss": self.url, "aud": "kafka"}
        claims["scope"] = request.form.get("scope", "mirror")
        token = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "one"})
        self.issued.append(token)
        return jsonify(access_token=token, token_type="Bearer", expires_in=self.lifetime_s)  # noqa: S106

    def _keys(self) -> Response:
        numbers = self._key.public_key().public_numbers()

        def text(number: int) -> str:
            return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8)).rstrip(b"=").decode()

        one = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": text(numbers.n), "e": text(numbers.e)}
        return jsonify(keys=[one])


@dataclass
class Secured:
    """The broker, and how a client logs in at each of its listeners."""

    cluster: KafkaCluster
    certificates: Certificates
    tokens: TokenServer

    def client(self, kind: str) -> dict[str, str]:
        """Return the `client:` section of a listener, or of a mechanism at SASL_TLS."""
        trust = {"ssl.ca.location": self.certificates.path("ca.pem")}
        login = {"sasl.username": USER, "sasl.password": PASSWORD}
        pem = self.certificates.path("client.pem")
        mutual = {"ssl.certificate.location": pem, "ssl.key.location": pem}
        if kind in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            return {"security.protocol": "SASL_SSL", "sasl.mechanism": kind, **login, **trust}
        if kind == "OAUTH":
            return {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": f"{self.tokens.url}/token",
                "sasl.oauthbearer.client.id": CLIENT_ID,
                "sasl.oauthbearer.client.secret": CLIENT_SECRET,
                "sasl.oauthbearer.scope": "mirror",
                **trust,
            }
        return {"security.protocol": "SSL", **trust, **(mutual if kind == "MTLS" else {})}

    def set_scram(self, password: str) -> None:
        """Set the password of both SCRAM mechanisms, as whoever rotates it does."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(USER, info, password.encode())
            [future] = admin.alter_user_scram_credentials([change]).values()
            future.result()

    def address(self, kind: str) -> str:
        return self.cluster.address(kind if kind in KINDS else "SASL_TLS")


def _config(certificates: Certificates, tokens: TokenServer) -> Mapping[str, object]:
    found: dict[str, object] = {}

    def put(listener: str, **settings: object) -> None:
        names = {name.replace("__", "-").replace("_", "."): value for name, value in settings.items()}
        found.update({f"listener.name.{listener.lower()}.{name}": value for name, value in names.items()})

    served = {"WRONG_HOST": "elsewhere", "EXPIRED": "expired"}
    for name, protocol in KINDS.items():
        if "SSL" in protocol:
            pem = certificates.path(f"{served.get(name, 'good')}.pem")
            put(name, ssl_keystore_type="PEM", ssl_keystore_location=pem)
    trust = certificates.path("ca.pem")
    put("MTLS", ssl_client_auth="required", ssl_truststore_type="PEM", ssl_truststore_location=trust)
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    for name in ("PLAIN_TEXT_LOGIN", "SASL_TLS"):
        put(
            name,
            sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            plain_sasl_jaas_config=f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{escaped}";',
            scram__sha__256_sasl_jaas_config=f"{_SECURITY}.scram.ScramLoginModule required;",
            scram__sha__512_sasl_jaas_config=f"{_SECURITY}.scram.ScramLoginModule required;",
        )
    put(
        "OAUTH",
        sasl_enabled_mechanisms="OAUTHBEARER",
        oauthbearer_sasl_jaas_config=f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        oauthbearer_sasl_server_callback_handler_class=_HANDLER,
        oauthbearer_sasl_oauthbearer_jwks_endpoint_url=f"{tokens.url}/keys",
        oauthbearer_sasl_oauthbearer_expected_audience="kafka",
    )
    return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start the broker for the tests of one file."""
    certificates, tokens = Certificates(tmp_path_factory.mktemp("certificates")), TokenServer()
    cluster = KafkaCluster(
        "secured",
        listeners=[Listener(name=name, protocol=protocol) for name, protocol in KINDS.items()],
        config=_config(certificates, tokens),
        java_options=(
            *JAVA_OPTIONS,
            # From Kafka 4.0 on every address has to be allowed.
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.url}/keys,{tokens.url}/token",
        ),
    )
    cluster.start()
    made = Secured(cluster, certificates, tokens)
    made.set_scram(PASSWORD)
    yield made
    cluster.kill()
    tokens.close()
