"""Which layer of a connection fails: TCP, TLS, SASL, or what is allowed; asked after a call has failed, in a second or two.

librdkafka tells a time-out where a login or a handshake failed, and says why beside it, in words that do not tell a wrong CA
from a wrong host name. So TLS is tried once more here, by Python's own, with the cluster's settings. No secret is in any text.
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

# librdkafka's codes that tell more than that nobody answers, the most telling first.
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)  # noqa: SLF001
_SPECIFIC = (*_LOGIN, KafkaError._SSL, KafkaError._TRANSPORT)  # noqa: SLF001
_DECORATION = re.compile(r"^\w+://\S+?: |\s*\(after \d+ms in state \w+[^)]*\)")
_WRONG_VERSION = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_ASKS_CERTIFICATE = ("alert bad certificate", "certificate required", "alert handshake failure")


_REFUSED = (*_ASKS_CERTIFICATE, "PLAINTEXT broker listener")
_NO_LISTENER = "no address takes connections"


@dataclass(frozen=True, slots=True)
class ConnectionFault:
    """The layer that fails, what is wrong with it, and what to do."""

    layer: str
    problem: str
    remedy: str


@dataclass(slots=True)
class ClientErrorListener:
    """What a client said of its connections while a call waited: an `error_cb`, which keeps the most telling words."""

    code: int | None = None
    text: str = ""

    def __call__(self, problem: KafkaError) -> None:
        """Keep what the client says, where it tells more than what is kept."""
        code, text = problem.code(), _DECORATION.sub("", problem.str()).strip()
        if code in _SPECIFIC and (self.code is None or _rank(code, text) <= _rank(self.code, self.text)):
            self.code, self.text = code, text

    @property
    def is_final(self) -> bool:
        """Whether it says that the connection is refused, and not only lost."""
        return self.code in (*_LOGIN, KafkaError._SSL) or any(sign in self.text for sign in _REFUSED)  # noqa: SLF001

    def reset(self) -> None:
        """Begin again, after a call that succeeded."""
        self.code, self.text = None, ""


def _rank(code: int, text: str) -> tuple[int, bool]:
    # Of lost connections those that TLS ended.
    return _SPECIFIC.index(code), "SSL" not in text


def diagnose_connection(
    alias: str, options: Mapping[str, Any], client_error: ClientErrorListener, *, has_worked: bool = False
) -> ConnectionFault | None:
    """Find out which layer fails of a cluster whose addresses accept connections; None where none does, or no layer fails.

    Args:
        alias: the cluster's, for the remedy.
        options: the client's, as librdkafka spells them.
        client_error: what the client has said.
        has_worked: whether it was connected before, and had its token: a call that comes to no end may be of a slow broker then.
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
        # librdkafka asks a server that is overloaded again and again, and says nothing.
        return _login_fault("no OAUTHBEARER token came in time", where, "OAUTHBEARER")
    if "SSL" not in str(options.get("security.protocol", "PLAINTEXT")):
        if tls_fault is None:
            return None
        problem = f"the listener speaks TLS, and security.protocol is {options.get('security.protocol', 'PLAINTEXT')}"
        return ConnectionFault(
            "TLS", problem, f"set security.protocol of {where} to SSL or SASL_SSL, or name a plain listener"
        )
    if tls_fault is None or any(sign in tls_fault for sign in _WRONG_VERSION):
        problem = f"the listener does not speak TLS, and security.protocol is {options['security.protocol']}"
        return ConnectionFault("TLS", problem, f"name a TLS listener in clusters.{alias}.bootstrap_servers")
    if any(sign in client_error.text for sign in _ASKS_CERTIFICATE) and not tls_fault:
        remedy = (
            f"add ssl.certificate.location and ssl.key.location to {where}, of a certificate that the broker trusts"
        )
        return ConnectionFault(
            "TLS", f"the broker takes no client certificate, or none that it was given ({client_error.text})", remedy
        )
    if tls_fault:
        return ConnectionFault(
            "TLS", f"the broker's certificate is refused: {tls_fault}", _certificate_remedy(tls_fault, where)
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
        return ConnectionFault("SASL", text, f"{remedy}, and the clocks of both")
    return ConnectionFault(
        "SASL", text, f"check sasl.username and sasl.password of {where}, and that they are of {mechanism}"
    )


def _certificate_remedy(found: str, where: str) -> str:
    if "expired" in found or "not yet valid" in found:
        return "renew the broker's certificate, and check the clocks of both"
    if "match" in found:
        return "use a name that the certificate holds in bootstrap_servers and advertised.listeners, or renew it with this one"
    return f"name the CA that issued it in ssl.ca.location of {where}"


def _diagnose_tls(servers: str, options: Mapping[str, Any]) -> str | None:
    """Say in which way TLS fails at the first address that takes connections.

    "" where nothing is, None where it does not speak TLS, `_NO_LISTENER` where no address takes any.
    """
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
                # Closed; the second up to Python 3.11.3, without a reason.
                return None
            except ssl.SSLError as error:
                return None if error.reason in _WRONG_VERSION else str(error.reason)
            except OSError:
                # Closed or silent: what a listener without TLS does with a greeting that it does not know.
                return None
            finally:
                sock.close()
            return ""
    return _NO_LISTENER
