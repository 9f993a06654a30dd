"""Let a bundled Java trust the certificate authorities that Python trusts.

A Java from the operating system shares its trust store; a wheel's Java trusts public authorities only, and cannot download anything
through a company's own. Java reads no PEM file as a trust store, so the same certificates are written in its own format:
`FEEDFEED`, version 2, a count, the certificates, and a salted SHA-1 over all of it.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

from mirrorlake.runtime.cache import write_atomically

_PASSWORD = "changeit"  # noqa: S105 - Java's public default; it guards nothing, all certificates are public
_HEADER = struct.Struct(">III")
_TRUSTED_CERTIFICATE = 2


def trust_store(path: Path) -> list[str]:
    """Write Python's trusted certificates to `path`, and return the Java options that use them, or [] without any."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    write_atomically(path, jks(certificates))
    return [f"-Djavax.net.ssl.trustStore={path}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}"]


def jks(certificates: Sequence[bytes]) -> bytes:
    """Return a Java key store that trusts these DER certificates."""
    body = _HEADER.pack(0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca-{number}") + struct.pack(">q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    salted = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return body + hashlib.sha1(salted).digest()  # noqa: S324 - the format asks for it


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()
