"""Find which layer of a connection fails after a failed call: TCP, TLS, SASL or permissions. Takes a second or two.

librdkafka reports a time-out if a login or a handshake failed; its error callback does not tell a wrong CA from a wrong host
name. So Python's own TLS is tried with the cluster's settings. No secret is in any text.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from mirrorlake.kafka.reach import CONNECT_TIMEOUT_S

# librdkafka's codes that tell more than "no answer", the most specific first.
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)  # noqa: SLF001
_SPECIFIC = (*_LOGIN, KafkaError._SSL, KafkaError._TRANSPORT)  # noqa: SLF001
_DECORATION = re.compile(r"^\w+://\S+?: |\s*\(after \d+ms in state \w+[^)]*\)")
_WRONG_VERSION = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_ASKS_CERTIFICATE = ("alert bad certificate", "certificate required", "alert handshake failure")


_REFUSED = (*_ASKS_CERTIFICATE, "PLAINTEXT broker listener")
_NO_LISTENER = "no address takes connections"


@dataclass(frozen=True, slots=True)
class ConnectionFault:
    layer: str
    problem: str
    remedy: str


@dataclass(slots=True)
class ClientErrorListener:
    """An `error_cb` that stores a client's most specific connection error during a call."""

    code: int | None = None
    text: str = ""

    def __call__(self, problem: KafkaError) -> None:
        code, text = problem.code(), _DECORATION.sub("", problem.str()).strip()
        if code in _SPECIFIC and (self.code is None or _rank(code, text) <= _rank(self.code, self.text)):
            self.code, self.text = code, text

    @property
    def is_final(self) -> bool:
        """Whether the connection was refused, and not only lost."""
        return self.code in (*_LOGIN, KafkaError._SSL) or any(sign in self.text for sign in _REFUSED)  # noqa: SLF001

    def reset(self) -> None:
        self.code, self.text = None, ""


def _rank(code: int, text: str) -> tuple[int, bool]:
    # Among lost connections, those that TLS ended come first.
    return _SPECIFIC.index(code), "SSL" not in text


def diagnose_connection(
    alias: str, options: Mapping[str, Any], client_error: ClientErrorListener, *, has_worked: bool = False
) -> ConnectionFault | None:
    """Return the failing layer of a cluster whose addresses accept connections, or None if no layer fails.

    `has_worked` says that the client was connected before: it has its token then, and an endless call may be a slow broker's.
    """
    where = f"clusters.{alias}.client"
    if client_error.code in _LOGIN:
        return _login_fault(client_error.text, where, str(options.get("sasl.mechanism", "")))
    tls_fault = _diagnose_tls(str(options.get("bootstrap.servers", "")), options)
    if tls_fault == _NO_LISTENER:
        # An outage, whatever the settings say.
        return None
    is_reached = tls_fault == "" or "SSL" not in str(options.get("security.protocol", ""))
    may_lack_token = options.get("sasl.mechanism") == "OAUTHBEARER" and not has_worked
    if may_lack_token and client_error.code is None and is_reached:
        # librdkafka retries an overloaded token server without reporting it.
        return _login_fault("no OAUTHBEARER token came in time", where, "OAUTHBEARER")
    if "SSL" not in str(options.get("security.protocol", "PLAINTEXT")):
        if tls_fault is None:
            return None
        problem = f"the listener speaks TLS, but security.protocol is {options.get('security.protocol', 'PLAINTEXT')}"
        return ConnectionFault(
            "TLS", problem, f"set security.protocol of {where} to SSL or SASL_SSL, or name a plain listener"
        )
    if tls_fault is None or any(sign in tls_fault for sign in _WRONG_VERSION):
        problem = f"the listener does not speak TLS, but security.protocol is {options['security.protocol']}"
        return ConnectionFault("TLS", problem, f"name a TLS listener in clusters.{alias}.bootstrap_servers")
    if any(sign in client_error.text for sign in _ASKS_CERTIFICATE) and not tls_fault:
        remedy = (
            f"add ssl.certificate.location and ssl.key.location to {where}, of a certificate that the broker trusts"
        )
        return ConnectionFault(
            "TLS", f"the broker rejects the client certificate, or got none ({client_error.text})", remedy
        )
    if tls_fault:
        return ConnectionFault(
            "TLS", f"this client rejects the broker's certificate: {tls_fault}", _certificate_remedy(tls_fault, where)
        )
    if client_error.code == KafkaError._SSL:  # noqa: SLF001
        return ConnectionFault("TLS", client_error.text, f"check the ssl.* settings under {where}")
    return None


def _login_fault(text: str, where: str, mechanism: str) -> ConnectionFault:
    if "OAUTHBEARER token" in text:
        remedy = f"check that sasl.oauthbearer.token.endpoint.url of {where} answers, and the client's id and secret"
        return ConnectionFault("SASL (token)", text, remedy)
    if "nsupported SASL mechanism" in text:
        return ConnectionFault("SASL", text, f"write one of the broker's mechanisms as sasl.mechanism of {where}")
    if mechanism == "OAUTHBEARER":
        remedy = "check that the token's issuer, audience and time are what the broker expects"
        return ConnectionFault("SASL", text, f"{remedy}, and compare the clocks of broker and client")
    return ConnectionFault(
        "SASL", text, f"check sasl.username and sasl.password of {where}, and that they are credentials for {mechanism}"
    )


def _certificate_remedy(found: str, where: str) -> str:
    if "expired" in found or "not yet valid" in found:
        return "renew the broker's certificate, or correct the clocks of broker and client"
    if "match" in found:
        return "write a name of the certificate into bootstrap_servers and advertised.listeners, or renew it with this name"
    return f"name the CA that issued it in ssl.ca.location of {where}"


def _diagnose_tls(servers: str, options: Mapping[str, Any]) -> str | None:
    """Return how TLS fails at the first listening address: "" if it works, None without TLS there, `_NO_LISTENER` without any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = str(options.get("ssl.endpoint.identification.algorithm", "https")) != "none"
    try:
        if "ssl.ca.pem" in options:
            context.load_verify_locations(cadata=str(options["ssl.ca.pem"]))
        elif "ssl.ca.location" in options:
            context.load_verify_locations(cafile=str(options["ssl.ca.location"]))
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        return f"the CA cannot be read ({type(error).__name__})"
    for address in servers.split(","):
        host, _, port = address.strip().rpartition(":")
        host = host.strip("[]")
        with suppress(OSError, ValueError):
            sock = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
            try:
                context.wrap_socket(sock, server_hostname=host).close()
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                # The listener closed the connection (Python up to 3.11.3: the second error, without a reason).
                return None
            except ssl.SSLError as error:
                return None if error.reason in _WRONG_VERSION else str(error.reason)
            except OSError:
                # A listener without TLS closes the connection, or does not answer the unknown greeting.
                return None
            finally:
                sock.close()
            return ""
    return _NO_LISTENER
