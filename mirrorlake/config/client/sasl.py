"""SASL settings of one connection, spelled for both clients.

    mechanism        Java                                                     librdkafka
    PLAIN, SCRAM     sasl.jaas.config with username, password                 sasl.username, sasl.password
    OAUTHBEARER      sasl.jaas.config with clientId, clientSecret, scope,     sasl.oauthbearer.method=oidc, .client.id,
                     extension_*; sasl.login.callback.handler.class           .client.secret, .scope, .extensions
    OAUTHBEARER,     sasl.jaas.config with unsecuredLoginStringClaim_sub      enable.sasl.oauthbearer.unsecure.jwt,
      for tests                                                               sasl.oauthbearer.config=principal=…
    AWS_MSK_IAM      `client_msk`

Either spelling is read. Clients from Kafka 4.0 refuse every token URL that the JVM property
`org.apache.kafka.sasl.oauthbearer.allowed.urls` does not list; Spark 4.0 carries 3.9, which allows all.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirrorlake.config.client.jaas import MODULES, SHADED, JaasError, Login, build, parse
from mirrorlake.config.client.msk import CLIENT_HANDLER, MECHANISM, is_msk, msk, unshaded
from mirrorlake.config.client.names import Sides
from mirrorlake.config.secrets import has_reference

_MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
_CLIENT_ID = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_CLIENT_SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
_SCOPE, _EXTENSIONS, _URL = (f"sasl.oauthbearer.{name}" for name in ("scope", "extensions", "token.endpoint.url"))
_CLAIM = "sasl.oauthbearer.sub.claim.name"
_HANDLER = "sasl.login.callback.handler.class"
_UNSECURE = ("enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config")
_SUBJECT = "unsecuredLoginStringClaim_sub"

SASL_NAMES = frozenset(
    {
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.method",
        _SCOPE,
        _EXTENSIONS,
        _URL,
        _CLAIM,
        _HANDLER,
        CLIENT_HANDLER,
    }
    | {*_MECHANISM, *_CLIENT_ID, *_CLIENT_SECRET, *_UNSECURE}
)
_OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_OIDC_HANDLERS = (_OIDC_HANDLER, "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler")

NO_COUNTERPART: dict[str, str] = {
    "sasl.oauthbearer.grant.type": "the Java client inside Spark 4.0 knows client credentials only",
    "sasl.oauthbearer.metadata.authentication.type": "the Java client has no counterpart",
    "sasl.login.class": "a Java class cannot serve librdkafka",
    "sasl.oauthbearer.jwt.retriever.class": "a Java class cannot serve librdkafka",
    "sasl.oauthbearer.jwt.validator.class": "a Java class cannot serve librdkafka",
}


def sasl(options: Mapping[str, str], *, shaded: bool) -> Sides:
    """Translate the SASL settings among the options.

    Args:
        options: the whole client section.
        shaded: whether Kafka's Java classes carry Databricks' prefix.
    """
    sides = Sides()
    given = [key for key in _MECHANISM if key in options]
    if not given:
        for key in options:
            if key in SASL_NAMES:
                sides.fault(
                    key,
                    "sasl.mechanism is missing beside it",
                    "add sasl.mechanism: PLAIN, SCRAM-SHA-512 or OAUTHBEARER",
                )
                break
        return sides
    mechanism = options[given[0]] if has_reference(options[given[0]]) else options[given[0]].upper()
    if is_msk(options, mechanism):
        line = _line(options, sides)
        if line is not _UNREADABLE:
            msk(options, line, sides, shaded=shaded)
        return sides
    if CLIENT_HANDLER in options:
        sides.fault(CLIENT_HANDLER, "a Java class cannot serve librdkafka", "remove it")
    if mechanism not in MODULES:
        if not has_reference(mechanism):
            sides.fault(given[0], *_unsupported(mechanism))
        return sides
    sides.java["sasl.mechanism"] = sides.librdkafka["sasl.mechanism"] = mechanism
    login = _login(options, mechanism, sides)
    if login is None:
        return sides
    if mechanism == "OAUTHBEARER":
        _oauth(options, login, sides, shaded=shaded)
    else:
        _password(options, login, sides, mechanism, shaded=shaded)
    return sides


def _unsupported(mechanism: str) -> tuple[str, str]:
    if mechanism == "GSSAPI":
        return "confluent-kafka's wheel is built without Kerberos", "use SCRAM, OAUTHBEARER or a client certificate"
    known = f"known are {', '.join((*MODULES, MECHANISM))}"
    return "this mechanism is not known to both clients", known


_UNREADABLE = Login("", {})


def _line(options: Mapping[str, str], sides: Sides) -> Login | None:
    """Return the login line, None without one, `_UNREADABLE` where it cannot be used."""
    line = options.get("sasl.jaas.config")
    if line is None:
        return None
    try:
        return parse(line)
    except JaasError as error:
        # A line that is itself a reference is read when it is resolved.
        if not has_reference(line):
            sides.fault("sasl.jaas.config", error.problem, error.remedy)
        return _UNREADABLE


def _login(options: Mapping[str, str], mechanism: str, sides: Sides) -> dict[str, str] | None:
    """Return the login line's options; empty without a line, None if it cannot be used."""
    login = _line(options, sides)
    if login is None or login is _UNREADABLE:
        return {} if login is None else None
    if login.module != MODULES[mechanism]:
        sides.fault("sasl.jaas.config", f"{login.module} is not the module of {mechanism}", f"use {MODULES[mechanism]}")
        return None
    return dict(login.options)


def _password(options: Mapping[str, str], login: dict[str, str], sides: Sides, mechanism: str, *, shaded: bool) -> None:
    for name in sorted(set(login) - {"username", "password"}):
        remedy = "librdkafka knows no delegation tokens; use a password" if name == "tokenauth" else "remove it"
        sides.fault("sasl.jaas.config", f"the option {name} has no counterpart in librdkafka", remedy)
    found: dict[str, str] = {}
    for name in ("username", "password"):
        key = f"sasl.{name}"
        if key in options and name in login:
            sides.fault(key, "given twice, also in sasl.jaas.config", "keep one of them")
        elif key not in options and name not in login:
            sides.fault(
                "sasl.mechanism" if "sasl.mechanism" in options else "sasl.mechanisms",
                f"{key} is missing beside {mechanism}",
                f"add {key}, or {name} in sasl.jaas.config",
            )
        else:
            found[name] = options.get(key, login.get(name, ""))
    if len(found) == 2:
        sides.librdkafka |= {"sasl.username": found["username"], "sasl.password": found["password"]}
        _write(Login(MODULES[mechanism], found), sides, "sasl.password", shaded=shaded)


def _oauth(options: Mapping[str, str], login: dict[str, str], sides: Sides, *, shaded: bool) -> None:
    if _SUBJECT in login or options.get(_UNSECURE[0]) == "true":
        _unsecured(options, login, sides, shaded=shaded)
        return
    handler = unshaded(options.get(_HANDLER, _OIDC_HANDLER))
    if handler not in _OIDC_HANDLERS and not has_reference(handler):
        sides.fault(
            _HANDLER,
            "a Java class of your own cannot serve librdkafka",
            "remove it: OIDC client credentials serve both",
        )
    if options.get("sasl.oauthbearer.method", "oidc") != "oidc":
        sides.fault("sasl.oauthbearer.method", "only oidc works from a settings file", "write oidc, or remove it")
    if _URL not in options:
        sides.fault("sasl.mechanism", f"{_URL} is missing beside OAUTHBEARER", f"add {_URL}")
    extensions = {
        name.removeprefix("extension_"): value for name, value in login.items() if name.startswith("extension_")
    }
    if _EXTENSIONS in options:
        extensions |= dict(part.strip().partition("=")[::2] for part in options[_EXTENSIONS].split(",") if part.strip())
    client_id = _one_of(options, login, _CLIENT_ID, "clientId", sides)
    secret = _one_of(options, login, _CLIENT_SECRET, "clientSecret", sides)
    scope = options.get(_SCOPE, login.get("scope"))
    known = {"clientId", "clientSecret", "scope"} | {name for name in login if name.startswith("extension_")}
    for name in sorted(set(login) - known):
        sides.fault("sasl.jaas.config", f"the option {name} has no counterpart in librdkafka", "remove it")
    sides.java[_HANDLER] = (SHADED if shaded else "") + _OIDC_HANDLER
    sides.librdkafka["sasl.oauthbearer.method"] = "oidc"
    for key in (_URL, _CLAIM):
        if key in options:
            sides.java[key] = sides.librdkafka[key] = options[key]
    if client_id is None or secret is None:
        return
    sides.librdkafka |= {_CLIENT_ID[1]: client_id, _CLIENT_SECRET[1]: secret}
    values = {"clientId": client_id, "clientSecret": secret}
    if scope is not None:
        values["scope"] = sides.librdkafka[_SCOPE] = scope
    if extensions:
        sides.librdkafka[_EXTENSIONS] = ",".join(f"{name}={value}" for name, value in extensions.items())
        values |= {f"extension_{name}": value for name, value in extensions.items()}
    _write(Login(MODULES["OAUTHBEARER"], values), sides, _CLIENT_SECRET[1], shaded=shaded)


def _unsecured(options: Mapping[str, str], login: dict[str, str], sides: Sides, *, shaded: bool) -> None:
    config = dict(part.partition("=")[::2] for part in options.get(_UNSECURE[1], "").split())
    principal = login.get(_SUBJECT, config.get("principal"))
    if principal is None or set(config) - {"principal"} or set(login) - {_SUBJECT}:
        key = _UNSECURE[1] if config else "sasl.mechanism"
        sides.fault(
            key, "an unsecured token has a principal and nothing else", "write sasl.oauthbearer.config: principal=NAME"
        )
        return
    sides.librdkafka |= {_UNSECURE[0]: "true", _UNSECURE[1]: f"principal={principal}"}
    _write(Login(MODULES["OAUTHBEARER"], {_SUBJECT: principal}), sides, _UNSECURE[1], shaded=shaded)


def _one_of(
    options: Mapping[str, str], login: dict[str, str], keys: tuple[str, ...], name: str, sides: Sides
) -> str | None:
    found = [options[key] for key in keys if key in options] + ([login[name]] if name in login else [])
    if len(found) > 1:
        sides.fault(
            next((key for key in keys if key in options), "sasl.jaas.config"),
            f"{name} is given twice",
            "keep one of them",
        )
    if not found:
        sides.fault(
            "sasl.mechanism",
            f"{keys[-1]} is missing beside OAUTHBEARER",
            f"add {keys[-1]}, or {name} in sasl.jaas.config",
        )
        return None
    return found[0]


def _write(login: Login, sides: Sides, key: str, *, shaded: bool) -> None:
    try:
        sides.java["sasl.jaas.config"] = build(login, shaded=shaded)
    except JaasError as error:
        sides.fault(key, error.problem, error.remedy)
