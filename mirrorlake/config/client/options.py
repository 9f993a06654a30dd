"""Translate one `client:` section for two clients: Java's inside Spark, librdkafka in mirrorlake.

Names of either client are accepted and translated for each; a name that only one client has goes to that client. Names that
would break a law, that Spark refuses, or that neither client has are findings with a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mirrorlake.config import secrets
from mirrorlake.config.client import jaas
from mirrorlake.config.client.names import BY_NAME, JAVA_ONLY, LIBRDKAFKA_ONLY, REFUSED, ROWS, KeyFiles, Scope, Sides
from mirrorlake.config.client.sasl import NO_COUNTERPART, SASL_NAMES, no_mechanism, sasl
from mirrorlake.config.client.tls import TLS_NAMES, tls
from mirrorlake.config.faults import SettingsFault, did_you_mean

Role = Literal["admin", "consumer", "producer"]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Prefixes of MirrorMaker 2 and Kafka Connect for one client of a cluster.
_ONE_CLIENT = ("consumer.", "producer.", "admin.", "source.", "target.")
_SCOPES: dict[str, Scope] = (
    JAVA_ONLY | LIBRDKAFKA_ONLY | {row.librdkafka: row.scope for row in ROWS} | {row.java: row.scope for row in ROWS}
)
_KNOWN = {"security.protocol", *BY_NAME, *JAVA_ONLY, *LIBRDKAFKA_ONLY, *TLS_NAMES, *SASL_NAMES}


class OptionError(ValueError):
    """A client section has faults; the texts never contain a value."""

    def __init__(self, findings: list[SettingsFault]) -> None:
        self.findings = findings
        super().__init__("; ".join(f"{finding.place[0]}: {finding.problem}" for finding in findings))

    @classmethod
    def of(cls, key: str, error: jaas.JaasError) -> OptionError:
        return cls([SettingsFault((key,), error.problem, error.remedy)])


@dataclass(frozen=True)
class ClientOptions:
    java: Mapping[str, str] = field(repr=False)
    librdkafka: Mapping[str, str] = field(repr=False)

    def java_for(self, role: Role) -> dict[str, str]:
        return _taken(self.java, role)

    def librdkafka_for(self, role: Role) -> dict[str, str]:
        return _taken(self.librdkafka, role)


def translate(client: Mapping[str, str], *, files: KeyFiles | None, shaded: bool = False) -> ClientOptions:
    """Translate a client section, with every reference resolved, for both clients.

    `shaded`: Kafka's Java classes have Databricks' prefix `kafkashaded.`. An `OptionError` contains every finding.

    Example:
        >>> options = translate({"socket.timeout.ms": "9000"}, files=None)
        >>> options.java, options.librdkafka
        ({'request.timeout.ms': '9000'}, {'socket.timeout.ms': '9000'})
    """
    sides = _sides(Sides(client, files, shaded))
    if sides.findings:
        raise OptionError(sides.findings)
    return ClientOptions(sides.java, sides.librdkafka)


def check_client(client: Mapping[str, str]) -> list[SettingsFault]:
    """Return the faults of a client section as written, with references unresolved."""
    return _sides(Sides(client)).findings


def check_producer(producer: Mapping[str, str]) -> list[SettingsFault]:
    """Return the faults of a flow's producer section, which may only tune: the connection belongs to the cluster."""
    sides = Sides(producer)
    _tuning(sides)
    for key in producer:
        if key == "security.protocol" or key in TLS_NAMES or key in SASL_NAMES:
            sides.fault(key, "it belongs to the connection", "write it under client of the target cluster")
        elif _SCOPES.get(key) == "consumer":
            sides.fault(key, "it belongs to a consumer", "write it under client of the source cluster")
        elif key in JAVA_ONLY:
            sides.fault(key, "only Java knows it, and mirrorlake produces with librdkafka")
    return sides.findings


def resolve(client: Mapping[str, str], expand: Callable[[str, str], str]) -> dict[str, str]:
    """Return a client section with its references resolved.

    References inside a login line are resolved value by value and escaped: a secret can never become part of the line's syntax.
    `expand` gets the setting's name, `sasl.jaas.config.<option>` inside a line, and the text.
    """
    return {
        key: _line(value, expand) if key == "sasl.jaas.config" else expand(key, value) for key, value in client.items()
    }


def _line(line: str, expand: Callable[[str, str], str]) -> str:
    key = "sasl.jaas.config"
    try:
        login = jaas.parse(line)
        values = {name: expand(f"{key}.{name}", value) for name, value in login.options.items()}
        return jaas.build(jaas.Login(login.module, values))
    except jaas.JaasError as error:
        if secrets.is_reference(line):
            return expand(key, line)
        raise OptionError.of(key, error) from None


def _taken(options: Mapping[str, str], role: Role) -> dict[str, str]:
    return {key: value for key, value in options.items() if _SCOPES.get(key, "any") in ("any", role)}


def _sides(sides: Sides) -> Sides:
    _protocol(sides)
    tls(sides)
    sasl(sides)
    _tuning(sides)
    return sides


def _protocol(sides: Sides) -> None:
    client = sides.options
    protocol = client.get("security.protocol", "PLAINTEXT")
    if secrets.has_reference(protocol):
        return
    protocol = protocol.upper()
    if protocol not in _PROTOCOLS:
        sides.fault("security.protocol", "no such protocol", did_you_mean(protocol, _PROTOCOLS))
        return
    if "security.protocol" in client:
        sides.both("security.protocol", protocol)
    # Only the first setting of each kind is a finding.
    for key in [key for key in client if key in TLS_NAMES and "SSL" not in protocol][:1]:
        problem = f"the connection would stay unencrypted: security.protocol is {protocol}"
        sides.fault(key, problem, "set it to SSL or SASL_SSL")
    for key in [key for key in client if key in SASL_NAMES and "SASL" not in protocol][:1]:
        problem = f"it would be ignored: security.protocol is {protocol}"
        sides.fault(key, problem, "set it to SASL_SSL or SASL_PLAINTEXT")
    if "SASL" in protocol and not {"sasl.mechanism", "sasl.mechanisms"} & set(client):
        no_mechanism(sides, "security.protocol")


def _tuning(sides: Sides) -> None:
    spelled: dict[str, str] = {}
    for key, value in sides.options.items():
        row = BY_NAME.get(key)
        if row is not None:
            first = spelled.setdefault(row.java, key)
            if first != key:
                sides.fault(key, f"it is another name of {first}, which is also set", "keep one of them")
            in_java = key == row.java
            sides.java[row.java] = value if in_java else row.to_java(value)
            sides.librdkafka[row.librdkafka] = row.to_librdkafka(value) if in_java else value
        elif key in JAVA_ONLY:
            sides.java[key] = value
        elif key in LIBRDKAFKA_ONLY:
            sides.librdkafka[key] = value
        elif key not in _KNOWN:
            sides.fault(key, *_refusal(key))


def _refusal(key: str) -> tuple[str, ...]:
    """Return the problem of a refused name, and the remedy unless it is to remove the name."""
    if key in REFUSED:
        problem, *remedy = REFUSED[key]
        return (f"'{key}' is refused: {problem}", *remedy)
    if key in NO_COUNTERPART:
        return f"'{key}' is refused: {NO_COUNTERPART[key]}", "use PLAIN, SCRAM or OIDC client credentials"
    if key.startswith("sasl.kerberos."):
        return "confluent-kafka's wheel is built without Kerberos", "use SCRAM, OAUTHBEARER or a client certificate"
    if key.startswith("sasl.oauthbearer.assertion."):
        return ("the Java client inside Spark 4.0 knows client credentials only",)
    if key.startswith(_ONE_CLIENT):
        return (
            "one connection serves every client of the cluster, and this name sets it for one of them only",
            "write it without the prefix if it is for all clients, else remove it",
        )
    if key.startswith("kafka."):
        return "the prefix kafka. is Spark's", f"write {key.removeprefix('kafka.')}"
    meant = did_you_mean(key, sorted(_KNOWN))
    return f"neither client knows '{key}'", meant if meant.startswith("did") else "see the clients' documentation"
