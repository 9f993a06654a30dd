"""Translate the TLS settings of one connection for both clients.

    setting                  Java                                               librdkafka
    trust, PEM file          ssl.truststore.type=PEM, ssl.truststore.location   ssl.ca.location
    trust, PEM text          …type=PEM, ssl.truststore.certificates             ssl.ca.pem
    trust, PKCS#12           (passed as text)                                   (likewise)
    client, one PEM file     ssl.keystore.type=PEM, ssl.keystore.location       ssl.certificate.location = …key.location
    client, two PEM files    (passed as text)                                   ssl.certificate.location, …key.location
    client, PEM text         ssl.keystore.certificate.chain, ssl.keystore.key   ssl.certificate.pem, ssl.key.pem
    client, PKCS#12          ssl.keystore.type=PKCS12, ssl.keystore.location    ssl.keystore.location
    host name check off      ssl.endpoint.identification.algorithm=(empty)      …=none

Java accepts only PKCS#8 keys, and Java 17 fails on keys encrypted with PBES2, OpenSSL's default. So Java gets every PEM key
decrypted, as text in memory; librdkafka gets the file and its password.
"""

from __future__ import annotations

from mirrorlake.config.client.names import Sides
from mirrorlake.config.secrets import has_reference

_TRUST_FILE, _TRUST_TEXT = "ssl.truststore.location", "ssl.truststore.certificates"
_STORE, _STORE_TYPE, _STORE_PASSWORD = (f"ssl.keystore.{name}" for name in ("location", "type", "password"))
_CHAIN, _KEY, _KEY_PASSWORD = "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"
_FILES = ("ssl.certificate.location", "ssl.key.location")
_HOST_NAME = "ssl.endpoint.identification.algorithm"
_IS_PLAIN = "-----BEGIN PRIVATE KEY-----"
# The three forms of a client certificate.
_WAYS = {"store": (_STORE,), "files": _FILES, "text": (_KEY, _CHAIN, "ssl.key.pem", "ssl.certificate.pem")}

TLS_NAMES = frozenset(
    (
        *("ssl.truststore.type", _TRUST_FILE, "ssl.truststore.password", _TRUST_TEXT, "ssl.ca.location", "ssl.ca.pem"),
        *(_STORE_TYPE, _STORE, _STORE_PASSWORD, _KEY, _CHAIN, *_FILES, "ssl.certificate.pem", "ssl.key.pem"),
        *(_KEY_PASSWORD, _HOST_NAME, "enable.ssl.certificate.verification", "ssl.cipher.suites"),
    )
)
_ENDINGS = {
    **dict.fromkeys(("pem", "crt", "cer", "cert", "key"), "PEM"),
    **dict.fromkeys(("p12", "pfx", "pkcs12"), "PKCS12"),
    "jks": "JKS",
}
_TO_PEM = "convert it: keytool -exportcert -rfc -keystore FILE -alias CA > ca.pem, then write ssl.ca.location: ca.pem"
_TO_PKCS12 = (
    "convert it: keytool -importkeystore -srckeystore FILE -destkeystore client.p12 -deststoretype PKCS12, "
    "then write ssl.keystore.type: PKCS12"
)


def tls(sides: Sides) -> None:
    _trust(sides)
    _identity(sides)
    _host_name(sides)
    if sides.options.get("enable.ssl.certificate.verification", "true") != "true":
        problem = "Java cannot skip the check of certificates, and nobody should"
        sides.fault("enable.ssl.certificate.verification", problem, "name the CA in ssl.ca.location")
    if "ssl.cipher.suites" in sides.options:
        problem = "Java takes IANA names, librdkafka OpenSSL names"
        sides.fault("ssl.cipher.suites", problem, "set the suites on the brokers")


def _trust(sides: Sides) -> None:
    options = sides.options
    kind, location = options.get("ssl.truststore.type"), options.get(_TRUST_FILE)
    if kind is None and location is not None:
        kind = _kind_of(location)
        if kind is None:
            problem = "the type of this trust store is missing (Java assumes JKS)"
            sides.fault(_TRUST_FILE, problem, "write ssl.ca.location for a PEM file")
    if kind is not None and kind.upper() == "PKCS12" and location is not None:
        _trust_store(location, sides)
        return
    if kind is not None and not has_reference(kind) and kind.upper() != "PEM":
        key = "ssl.truststore.type" if "ssl.truststore.type" in options else _TRUST_FILE
        sides.fault(key, f"librdkafka cannot read a {kind.upper()} trust store", _TO_PEM)
    if "ssl.truststore.password" in options:
        sides.fault("ssl.truststore.password", "a PEM trust store has no password")
    given = [key for key in (_TRUST_FILE, "ssl.ca.location", _TRUST_TEXT, "ssl.ca.pem") if key in options]
    for key in given[1:]:
        sides.fault(key, f"trust is configured twice, also by {given[0]}", "keep one of them")
    if options.get("ssl.ca.location") == "probe":
        sides.fault("ssl.ca.location", "Java cannot probe for a CA file", "name the file")
    for key in given:
        java, librdkafka = (_TRUST_FILE, "ssl.ca.location") if key.endswith("location") else (_TRUST_TEXT, "ssl.ca.pem")
        sides.java |= {"ssl.truststore.type": "PEM", java: options[key]}
        sides.librdkafka[librdkafka] = options[key]


def _trust_store(location: str, sides: Sides) -> None:
    for key in ("ssl.ca.location", _TRUST_TEXT, "ssl.ca.pem"):
        if key in sides.options:
            sides.fault(key, f"trust is configured twice, also by {_TRUST_FILE}", "keep one of them")
    if sides.files is not None:
        trusted = sides.files.trusted(location, sides.options.get("ssl.truststore.password"))
        sides.java |= {"ssl.truststore.type": "PEM", _TRUST_TEXT: trusted}
        sides.librdkafka["ssl.ca.pem"] = trusted


def _identity(sides: Sides) -> None:
    options = sides.options
    used = [way for way, keys in _WAYS.items() if any(key in options for key in keys)]
    if len(used) > 1:
        key = next(key for key in options if key.startswith(("ssl.key", "ssl.cert")))
        problem = "the client certificate is given in two ways"
        sides.fault(key, problem, "keep a key store, or two files, or PEM text")
        return
    if not used:
        for key in (_STORE_TYPE, _STORE_PASSWORD, _KEY_PASSWORD):
            if key in options:
                sides.fault(key, "there is no key or key store it belongs to", "name the files, or remove it")
        return
    {"store": _store, "files": _files, "text": _text}[used[0]](sides)
    if _KEY_PASSWORD in options and _STORE_PASSWORD not in options:
        # Java gets the key decrypted.
        sides.librdkafka[_KEY_PASSWORD] = options[_KEY_PASSWORD]


def _store(sides: Sides) -> None:
    options = sides.options
    location = options[_STORE]
    kind = (options.get(_STORE_TYPE) or _kind_of(location) or "").upper()
    if not kind:
        sides.fault(_STORE, "the type of this key store is missing", "write ssl.keystore.type: PEM or PKCS12")
        return
    if kind == "PEM":
        if _STORE_PASSWORD in options:
            sides.fault(_STORE_PASSWORD, "a PEM key store has no password", "write ssl.key.password for the key's own")
        sides.librdkafka |= dict.fromkeys(_FILES, location)
        _pem_files(location, location, sides)
    elif kind == "PKCS12":
        sides.java |= {_STORE_TYPE: kind, _STORE: location}
        if _STORE_PASSWORD not in options:
            sides.fault(_STORE, "a PKCS#12 key store needs its password", "add ssl.keystore.password")
            return
        password = options[_STORE_PASSWORD]
        if options.get(_KEY_PASSWORD, password) != password:
            problem = "librdkafka knows one password per PKCS#12 key store"
            sides.fault(_KEY_PASSWORD, problem, "use the store's for the key too")
        sides.both(_STORE_PASSWORD, password)
        sides.librdkafka[_STORE] = location
    elif not has_reference(kind):
        key = _STORE_TYPE if _STORE_TYPE in options else _STORE
        sides.fault(key, f"librdkafka cannot read a {kind} key store", _TO_PKCS12)


def _files(sides: Sides) -> None:
    missing = [key for key in _FILES if key not in sides.options]
    if missing:
        given = next(key for key in _FILES if key in sides.options)
        sides.fault(given, f"{missing[0]} is missing beside it", f"add {missing[0]}; it may be the same file")
        return
    certificate, key = (sides.options[name] for name in _FILES)
    sides.librdkafka |= {_FILES[0]: certificate, _FILES[1]: key}
    _pem_files(certificate, key, sides)


def _pem_files(certificate: str, key: str, sides: Sides) -> None:
    sides.java[_STORE_TYPE] = "PEM"
    if sides.files is None:
        return
    text = sides.files.read(key)
    if certificate == key and _IS_PLAIN in text and _KEY_PASSWORD not in sides.options:
        sides.java[_STORE] = certificate
    else:
        sides.java |= {_CHAIN: sides.files.read(certificate), _KEY: _plain(text, sides)}


def _plain(key: str, sides: Sides) -> str:
    if _IS_PLAIN in key or sides.files is None:
        return key
    return sides.files.plain_key(key, sides.options.get(_KEY_PASSWORD))


def _text(sides: Sides) -> None:
    options = sides.options
    chain, key = options.get(_CHAIN, options.get("ssl.certificate.pem")), options.get(_KEY, options.get("ssl.key.pem"))
    if chain is None or key is None:
        given = next(name for name in options if name in TLS_NAMES and name.endswith((".key", ".chain", ".pem")))
        sides.fault(given, "key and certificate belong together", "add ssl.key.pem and ssl.certificate.pem")
        return
    sides.java |= {_STORE_TYPE: "PEM", _CHAIN: chain, _KEY: _plain(key, sides)}
    sides.librdkafka |= {"ssl.certificate.pem": chain, "ssl.key.pem": key}


def _host_name(sides: Sides) -> None:
    value = sides.options.get(_HOST_NAME)
    if value is None:
        return
    if value.lower() in ("", "none"):
        sides.java[_HOST_NAME], sides.librdkafka[_HOST_NAME] = "", "none"
    elif value.lower() == "https" or has_reference(value):
        sides.both(_HOST_NAME, value if has_reference(value) else "https")
    else:
        remedy = "write https to check host names, none to leave them unchecked"
        sides.fault(_HOST_NAME, "neither https nor none", remedy)


def _kind_of(location: str) -> str | None:
    return _ENDINGS.get(location.lower().rpartition(".")[2])
