"""TLS settings of one connection, spelled for both clients.

    what                     Java                                               librdkafka
    trust, PEM file          ssl.truststore.type=PEM, ssl.truststore.location   ssl.ca.location
    trust, PEM text          …type=PEM, ssl.truststore.certificates             ssl.ca.pem
    client, one PEM file     ssl.keystore.type=PEM, ssl.keystore.location       ssl.certificate.location = …key.location
    client, two PEM files    (read here, handed over as text)                   ssl.certificate.location, …key.location
    client, PEM text         ssl.keystore.certificate.chain, ssl.keystore.key   ssl.certificate.pem, ssl.key.pem
    client, PKCS#12          ssl.keystore.type=PKCS12, ssl.keystore.location    ssl.keystore.location
    host name check off      ssl.endpoint.identification.algorithm=(empty)      …=none

Java takes PKCS#8 keys only, and on Java 17 it fails on keys encrypted with PBES2, OpenSSL's default: keep the key
unencrypted, or encrypt it with PBE-SHA1-3DES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mirrorlake.config.client.names import Sides, words
from mirrorlake.config.secrets import has_reference

TLS_NAMES = frozenset(
    words(
        """
        ssl.truststore.type ssl.truststore.location ssl.truststore.password ssl.truststore.certificates
        ssl.ca.location ssl.ca.pem ssl.keystore.type ssl.keystore.location ssl.keystore.password ssl.keystore.key
        ssl.keystore.certificate.chain ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.key.pem
        ssl.key.password ssl.endpoint.identification.algorithm enable.ssl.certificate.verification ssl.cipher.suites
        """
    )
)

_PEM_ENDINGS = (".pem", ".crt", ".cer", ".cert", ".key")
_TO_PEM = "convert it: keytool -exportcert -rfc -keystore FILE -alias CA > ca.pem, then write ssl.ca.location: ca.pem"
_TO_PKCS12 = (
    "convert it: keytool -importkeystore -srckeystore FILE -destkeystore client.p12 -deststoretype PKCS12, "
    "then write ssl.keystore.type: PKCS12"
)


def tls(options: Mapping[str, str], read: Callable[[str], str] | None) -> Sides:
    """Translate the TLS settings among the options.

    Args:
        options: the whole client section.
        read: reads a PEM file, or None to leave files alone (when settings are checked only).
    """
    sides = Sides()
    _trust(options, sides)
    _identity(options, sides, read)
    if "ssl.endpoint.identification.algorithm" in options:
        _hostname(options["ssl.endpoint.identification.algorithm"], sides)
    if options.get("enable.ssl.certificate.verification", "true") != "true":
        sides.fault(
            "enable.ssl.certificate.verification",
            "Java cannot skip the check of certificates, and nobody should",
            "name the CA in ssl.ca.location",
        )
    if "ssl.cipher.suites" in options:
        sides.fault(
            "ssl.cipher.suites", "Java takes IANA names, librdkafka OpenSSL names", "set the suites on the brokers"
        )
    return sides


def _trust(options: Mapping[str, str], sides: Sides) -> None:
    kind, location = options.get("ssl.truststore.type"), options.get("ssl.truststore.location")
    if kind is None and location is not None:
        kind = _kind_of(location)
        if kind is None:
            sides.fault(
                "ssl.truststore.location",
                "the type of this trust store is missing (Java assumes JKS)",
                "write ssl.ca.location for a PEM file",
            )
    if kind is not None and not has_reference(kind) and kind.upper() != "PEM":
        sides.fault(
            "ssl.truststore.type" if "ssl.truststore.type" in options else "ssl.truststore.location",
            f"librdkafka cannot read a {kind.upper()} trust store",
            _TO_PEM,
        )
    if "ssl.truststore.password" in options:
        sides.fault("ssl.truststore.password", "a PEM trust store has no password", "remove it")
    given = {
        key: options[key]
        for key in ("ssl.truststore.location", "ssl.ca.location", "ssl.truststore.certificates", "ssl.ca.pem")
        if key in options
    }
    if len(given) > 1:
        for key in list(given)[1:]:
            sides.fault(key, f"trust is configured twice, also by {next(iter(given))}", "keep one of them")
    if options.get("ssl.ca.location") == "probe":
        sides.fault("ssl.ca.location", "Java cannot probe for a CA file", "name the file")
    for key, value in given.items():
        as_text = key in ("ssl.truststore.certificates", "ssl.ca.pem")
        sides.java["ssl.truststore.type"] = "PEM"
        sides.java["ssl.truststore.certificates" if as_text else "ssl.truststore.location"] = value
        sides.librdkafka["ssl.ca.pem" if as_text else "ssl.ca.location"] = value


def _identity(options: Mapping[str, str], sides: Sides, read: Callable[[str], str] | None) -> None:
    ways = {
        "store": "ssl.keystore.location" in options,
        "files": bool({"ssl.certificate.location", "ssl.key.location"} & set(options)),
        "text": bool(
            {"ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.pem", "ssl.certificate.pem"} & set(options)
        ),
    }
    used = [way for way, given in ways.items() if given]
    if len(used) > 1:
        key = next(key for key in options if key.startswith(("ssl.key", "ssl.cert")))
        sides.fault(key, "the client certificate is given in two ways", "keep a key store, or two files, or PEM text")
        return
    if not used:
        for key in ("ssl.keystore.type", "ssl.keystore.password", "ssl.key.password"):
            if key in options:
                sides.fault(key, "there is no key or key store it belongs to", "name the files, or remove it")
        return
    if used == ["files"]:
        _files(options, sides, read)
    else:
        {"store": _store, "text": _text}[used[0]](options, sides)
    if "ssl.key.password" in options and "ssl.keystore.password" not in options:
        sides.java["ssl.key.password"] = sides.librdkafka["ssl.key.password"] = options["ssl.key.password"]


def _store(options: Mapping[str, str], sides: Sides) -> None:
    location = options["ssl.keystore.location"]
    kind = options.get("ssl.keystore.type") or _kind_of(location)
    if kind is None:
        sides.fault(
            "ssl.keystore.location", "the type of this key store is missing", "write ssl.keystore.type: PEM or PKCS12"
        )
        return
    sides.java |= {"ssl.keystore.type": kind.upper(), "ssl.keystore.location": location}
    if kind.upper() == "PEM":
        if "ssl.keystore.password" in options:
            sides.fault(
                "ssl.keystore.password", "a PEM key store has no password", "write ssl.key.password for the key's own"
            )
        sides.librdkafka |= {"ssl.certificate.location": location, "ssl.key.location": location}
    elif kind.upper() == "PKCS12":
        if "ssl.keystore.password" not in options:
            sides.fault("ssl.keystore.location", "a PKCS#12 key store needs its password", "add ssl.keystore.password")
            return
        password = options["ssl.keystore.password"]
        if options.get("ssl.key.password", password) != password:
            sides.fault(
                "ssl.key.password",
                "librdkafka knows one password per PKCS#12 key store",
                "use the store's for the key too",
            )
        sides.java["ssl.keystore.password"] = password
        sides.librdkafka |= {"ssl.keystore.location": location, "ssl.keystore.password": password}
    elif not has_reference(kind):
        key = "ssl.keystore.type" if "ssl.keystore.type" in options else "ssl.keystore.location"
        sides.fault(key, f"librdkafka cannot read a {kind.upper()} key store", _TO_PKCS12)


def _files(options: Mapping[str, str], sides: Sides, read: Callable[[str], str] | None) -> None:
    certificate, key = options.get("ssl.certificate.location"), options.get("ssl.key.location")
    if certificate is None or key is None:
        missing = "ssl.key.location" if key is None else "ssl.certificate.location"
        given = "ssl.certificate.location" if key is None else "ssl.key.location"
        sides.fault(given, f"{missing} is missing beside it", f"add {missing}; it may be the same file")
        return
    sides.librdkafka |= {"ssl.certificate.location": certificate, "ssl.key.location": key}
    sides.java["ssl.keystore.type"] = "PEM"
    if certificate == key:
        sides.java["ssl.keystore.location"] = certificate
    elif read is not None:
        sides.java |= {"ssl.keystore.certificate.chain": read(certificate), "ssl.keystore.key": read(key)}


def _text(options: Mapping[str, str], sides: Sides) -> None:
    chain = options.get("ssl.keystore.certificate.chain", options.get("ssl.certificate.pem"))
    key = options.get("ssl.keystore.key", options.get("ssl.key.pem"))
    if chain is None or key is None:
        given = next(name for name in options if name in TLS_NAMES and name.endswith((".key", ".chain", ".pem")))
        sides.fault(given, "key and certificate belong together", "add ssl.key.pem and ssl.certificate.pem")
        return
    sides.java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    sides.librdkafka |= {"ssl.certificate.pem": chain, "ssl.key.pem": key}


def _hostname(value: str, sides: Sides) -> None:
    key = "ssl.endpoint.identification.algorithm"
    if value.lower() in ("", "none"):
        sides.java[key], sides.librdkafka[key] = "", "none"
    elif value.lower() == "https" or has_reference(value):
        sides.java[key] = sides.librdkafka[key] = value.lower() if value.lower() == "https" else value
    else:
        sides.fault(key, "neither https nor none", "write https to check host names, none to leave them unchecked")


def _kind_of(location: str) -> str | None:
    ending = location.lower()
    if ending.endswith(_PEM_ENDINGS):
        return "PEM"
    if ending.endswith((".p12", ".pfx", ".pkcs12")):
        return "PKCS12"
    return "JKS" if ending.endswith(".jks") else None
