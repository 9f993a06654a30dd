"""One `client:` section for two clients: Java's inside Spark, librdkafka in mirrorlake.

Names of either client are accepted and become the right spelling for each; a name that only one client knows goes to
that one only. Names that would break a law, that Spark refuses, or that nobody knows are findings, with what to do
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mirrorlake.config import secrets
from mirrorlake.config.client import jaas
from mirrorlake.config.client.names import BY_NAME, JAVA_ONLY, LIBRDKAFKA_ONLY, REFUSED, Scope, Sides
from mirrorlake.config.client.sasl import NO_COUNTERPART, SASL_NAMES, sasl
from mirrorlake.config.client.tls import TLS_NAMES, tls
from mirrorlake.config.faults import SettingsFault, did_you_mean

Role = Literal["admin", "consumer", "producer"]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# The prefixes by which MirrorMaker 2 and Kafka Connect address one client of a cluster.
_ONE_CLIENT = ("consumer.", "producer.", "admin.", "source.", "target.")
_SCOPES: dict[str, Scope] = (
    JAVA_ONLY
    | LIBRDKAFKA_ONLY
    | {row.librdkafka: row.scope for row in BY_NAME.values()}
    | {row.java: row.scope for row in BY_NAME.values()}
)
_KNOWN = {"security.protocol", *BY_NAME, *JAVA_ONLY, *LIBRDKAFKA_ONLY, *TLS_NAMES, *SASL_NAMES}


class OptionError(ValueError):
    """Report what is wrong with a client section; the texts never hold a value."""

    def __init__(self, findings: list[SettingsFault]) -> None:
        self.findings = findings
        super().__init__("; ".join(f"{finding.place[0]}: {finding.problem}" for finding in findings))

    @classmethod
    def of(cls, key: str, error: jaas.JaasError) -> OptionError:
        """Return the error for a setting whose login line is wrong."""
        return cls([SettingsFault((key,), error.problem, error.remedy)])


@dataclass(frozen=True)
class ClientOptions:
    """A client section as each client spells it.

    Attributes:
        java: for Spark's Kafka source, without Spark's `kafka.` prefix.
        librdkafka: for every role together.
    """

    java: Mapping[str, str] = field(repr=False)
    librdkafka: Mapping[str, str] = field(repr=False)

    def java_for(self, role: Role) -> dict[str, str]:
        """Select the options for a Java client of this role."""
        return _taken(self.java, role)

    def librdkafka_for(self, role: Role) -> dict[str, str]:
        """Select the options for a librdkafka client of this role."""
        return _taken(self.librdkafka, role)


def translate(client: Mapping[str, str], *, read: Callable[[str], str], shaded: bool = False) -> ClientOptions:
    """Spell a client section for both clients.

    Args:
        client: names and values, with every reference resolved.
        read: returns the text of a PEM file.
        shaded: whether Kafka's Java classes carry Databricks' prefix `kafkashaded.`.

    Raises:
        OptionError: with every finding.

    Example:
        >>> options = translate({"socket.timeout.ms": "9000"}, read=str)
        >>> options.java, options.librdkafka
        ({'request.timeout.ms': '9000'}, {'socket.timeout.ms': '9000'})
    """
    sides = _sides(client, read, shaded=shaded)
    if sides.findings:
        raise OptionError(sides.findings)
    return ClientOptions(sides.java, sides.librdkafka)


def check_client(client: Mapping[str, str]) -> list[SettingsFault]:
    """Check a client section as written, with references unresolved."""
    return _sides(client, None, shaded=False).findings


def check_producer(producer: Mapping[str, str]) -> list[SettingsFault]:
    """Check a flow's producer section: it may only tune, the connection belongs to the cluster."""
    sides = Sides()
    _tuning(producer, sides)
    for key in producer:
        if key == "security.protocol" or key in TLS_NAMES or key in SASL_NAMES:
            sides.fault(key, "it belongs to the connection", "write it under client of the target cluster")
        elif _SCOPES.get(key) == "consumer":
            sides.fault(key, "it belongs to a consumer", "write it under client of the source cluster")
        elif key in JAVA_ONLY:
            sides.fault(key, "only Java knows it, and mirrorlake produces with librdkafka", "remove it")
    return sides.findings


def resolve(client: Mapping[str, str], expand: Callable[[str, str], str]) -> dict[str, str]:
    """Return a client section with its references resolved.

    A reference inside a login line is resolved value by value and escaped: what a secret store returns can never become
    part of the line's syntax.

    Args:
        client: names and values as written.
        expand: resolves a text; its first argument is the setting's name, `sasl.jaas.config.<option>` inside a line.

    Raises:
        OptionError: a login line that is wrong, or a value in it that cannot be written.
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


def _sides(client: Mapping[str, str], read: Callable[[str], str] | None, *, shaded: bool) -> Sides:
    sides = Sides()
    _protocol(client, sides)
    sides.add(tls(client, read))
    sides.add(sasl(client, shaded=shaded))
    _tuning(client, sides)
    return sides


def _protocol(client: Mapping[str, str], sides: Sides) -> None:
    protocol = client.get("security.protocol", "PLAINTEXT")
    if secrets.has_reference(protocol):
        return
    protocol = protocol.upper()
    if protocol not in _PROTOCOLS:
        sides.fault("security.protocol", "no such protocol", did_you_mean(protocol, _PROTOCOLS))
        return
    if "security.protocol" in client:
        sides.java["security.protocol"] = sides.librdkafka["security.protocol"] = protocol
    for key in client:
        if key in TLS_NAMES and "SSL" not in protocol:
            sides.fault(
                key,
                f"the connection would stay unencrypted: security.protocol is {protocol}",
                "set it to SSL or SASL_SSL",
            )
            break
    for key in client:
        if key in SASL_NAMES and "SASL" not in protocol:
            sides.fault(
                key, f"it would be ignored: security.protocol is {protocol}", "set it to SASL_SSL or SASL_PLAINTEXT"
            )
            break
    if "SASL" in protocol and not {"sasl.mechanism", "sasl.mechanisms"} & set(client):
        sides.fault(
            "security.protocol",
            "sasl.mechanism is missing beside it",
            "add sasl.mechanism: PLAIN, SCRAM-SHA-512 or OAUTHBEARER",
        )


def _tuning(client: Mapping[str, str], sides: Sides) -> None:
    spelled: dict[str, str] = {}
    for key, value in client.items():
        row = BY_NAME.get(key)
        if row is not None:
            first = spelled.setdefault(row.java, key)
            if first != key:
                sides.fault(key, f"it says the same as {first}", "keep one of them")
            in_java = key == row.java
            sides.java[row.java] = value if in_java else row.to_java(value)
            sides.librdkafka[row.librdkafka] = row.to_librdkafka(value) if in_java else value
        elif key in JAVA_ONLY:
            sides.java[key] = value
        elif key in LIBRDKAFKA_ONLY:
            sides.librdkafka[key] = value
        elif key not in _KNOWN:
            sides.findings.extend(_refusal(key))


def _refusal(key: str) -> Iterator[SettingsFault]:
    if key in REFUSED:
        yield SettingsFault((key,), f"'{key}' is refused: {REFUSED[key][0]}", REFUSED[key][1])
    elif key in NO_COUNTERPART:
        yield SettingsFault(
            (key,), f"'{key}' is refused: {NO_COUNTERPART[key]}", "use PLAIN, SCRAM or OIDC client credentials"
        )
    elif key.startswith("sasl.kerberos."):
        yield SettingsFault(
            (key,),
            "confluent-kafka's wheel is built without Kerberos",
            "use SCRAM, OAUTHBEARER or a client certificate",
        )
    elif key.startswith("sasl.oauthbearer.assertion."):
        yield SettingsFault((key,), "the Java client inside Spark 4.0 knows client credentials only", "remove it")
    elif key.startswith(_ONE_CLIENT):
        yield SettingsFault(
            (key,),
            "one connection serves every client of the cluster, and this name sets it for one of them only",
            "write it without the beginning if it holds for all, else remove it",
        )
    elif key.startswith("kafka."):
        yield SettingsFault((key,), "the prefix kafka. is Spark's", f"write {key.removeprefix('kafka.')}")
    else:
        yield SettingsFault(
            (key,),
            f"neither client knows '{key}'",
            did_you_mean(key, sorted(_KNOWN)) if _near(key) else "see the clients' documentation",
        )


def _near(key: str) -> bool:
    return did_you_mean(key, sorted(_KNOWN)).startswith("did")
