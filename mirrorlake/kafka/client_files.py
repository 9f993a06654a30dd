"""Read certificates and keys of a cluster's `client` section, in forms that both clients take.

What is decrypted stays in memory: it goes to the client as an option that no log shows (`spark.redaction.regex`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mirrorlake.errors import ConfigError

_INSTALL = "pip install cryptography"


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """Read the files; `wrong` builds the error from a problem and its remedy."""

    wrong: Callable[[str, str], ConfigError]

    def read(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = f"the PEM file {path} cannot be read ({type(error).__name__})"
            raise self.wrong(problem, "check the path and its permissions") from None

    def trusted(self, path: str, password: str | None) -> str:
        convert = f"or convert it: openssl pkcs12 -in {path} -nokeys -out ca.pem, and write ssl.ca.location: ca.pem"
        try:
            from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
        except ImportError:
            raise self.wrong(f"a package to read {path} is missing", f"{_INSTALL}, {convert}") from None
        try:
            store = pkcs12.load_pkcs12(Path(path).read_bytes(), None if password is None else password.encode())
        except OSError as error:
            problem = f"the trust store {path} cannot be read ({type(error).__name__})"
            raise self.wrong(problem, "check the path and its permissions") from None
        except ValueError:
            problem = f"{path} is not a PKCS#12 store, or ssl.truststore.password does not open it"
            raise self.wrong(problem, f"mend the password, {convert}") from None
        own = [store.cert] if store.cert is not None else []
        found = [one.certificate.public_bytes(Encoding.PEM).decode() for one in (*own, *store.additional_certs)]
        if not found:
            raise self.wrong(f"{path} holds no certificate", "name the store that holds the CA")
        return "".join(found)

    def plain_key(self, pem: str, password: str | None) -> str:
        """Return a private key as PKCS#8 without encryption, the only form that every Java reads."""
        convert = "or convert it: openssl pkcs8 -topk8 -nocrypt -in KEY -out client.key"
        try:
            from cryptography.hazmat.primitives import serialization
        except ImportError:
            problem = "Java cannot read the private key: it is encrypted, or not in PKCS#8"
            raise self.wrong(problem, f"{_INSTALL}, {convert}") from None
        is_encrypted = "ENCRYPTED" in pem
        if is_encrypted and password is None:
            raise self.wrong("the private key is encrypted", "add ssl.key.password: ${env:KEY_PASSWORD}")
        try:
            key = serialization.load_pem_private_key(
                pem.encode(), password.encode() if is_encrypted and password is not None else None
            )
        except (ValueError, TypeError):
            problem = "the private key cannot be read: it is not a PEM key, or ssl.key.password does not open it"
            raise self.wrong(problem, "mend the file or the password") from None
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
