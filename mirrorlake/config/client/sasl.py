"""Translate the SASL settings of one connection for both clients.

    mechanism        Java                                                     librdkafka
    PLAIN, SCRAM     sasl.jaas.config with username, password                 sasl.username, sasl.password
    OAUTHBEARER      sasl.jaas.config with clientId, clientSecret, scope,     sasl.oauthbearer.method=oidc, .client.id,
                     extension_*; sasl.login.callback.handler.class           .client.secret, .scope, .extensions
    OAUTHBEARER,     sasl.jaas.config with unsecuredLoginStringClaim_sub      enable.sasl.oauthbearer.unsecure.jwt,
      for tests                                                               sasl.oauthbearer.config=principal=…
    AWS_MSK_IAM      `msk.py`

Both spellings are read. Clients from Kafka 4.0 refuse every token URL that the JVM property
`org.apache.kafka.sasl.oauthbearer.allowed.urls` does not list; Spark 4.0 contains 3.9, which allows all.
"""

from __future__ import annotations

from mirrorlake.config.client.jaas import MODULES, SHADED, JaasError, Login, build, parse
from mirrorlake.config.client.msk import CLIENT_HANDLER, LOGIN_HANDLER, MECHANISM, is_msk, msk, unshaded
from mirrorlake.config.client.names import Sides
from mirrorlake.config.secrets import has_reference

_LINE, _OIDC = "sasl.jaas.config", "sasl.oauthbearer."
_MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
_CLIENT_ID = (f"{_OIDC}client.credentials.client.id", f"{_OIDC}client.id")
_CLIENT_SECRET = (f"{_OIDC}client.credentials.client.secret", f"{_OIDC}client.secret")
_METHOD, _SCOPE, _EXTENSIONS, _URL, _CLAIM = (
    f"{_OIDC}{name}" for name in ("method", "scope", "extensions", "token.endpoint.url", "sub.claim.name")
)
_UNSECURE = ("enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config")
_SUBJECT = "unsecuredLoginStringClaim_sub"
_ADD_MECHANISM = "add sasl.mechanism: PLAIN, SCRAM-SHA-512 or OAUTHBEARER"

SASL_NAMES = frozenset(
    (
        *(_LINE, "sasl.username", "sasl.password", *_MECHANISM, LOGIN_HANDLER, CLIENT_HANDLER),
        *(_METHOD, _SCOPE, _EXTENSIONS, _URL, _CLAIM, *_CLIENT_ID, *_CLIENT_SECRET, *_UNSECURE),
    )
)
_OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_OIDC_HANDLERS = (_OIDC_HANDLER, "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler")

NO_COUNTERPART: dict[str, str] = {
    f"{_OIDC}grant.type": "the Java client inside Spark 4.0 knows client credentials only",
    f"{_OIDC}metadata.authentication.type": "the Java client has no counterpart",
    **dict.fromkeys(
        ("sasl.login.class", f"{_OIDC}jwt.retriever.class", f"{_OIDC}jwt.validator.class"),
        "a Java class cannot serve librdkafka",
    ),
}


def no_mechanism(sides: Sides, key: str) -> None:
    sides.fault(key, "sasl.mechanism is missing beside it", _ADD_MECHANISM)


def sasl(sides: Sides) -> None:
    options = sides.options
    given = next((key for key in _MECHANISM if key in options), None)
    if given is None:
        for key in [key for key in options if key in SASL_NAMES][:1]:
            no_mechanism(sides, key)
        return
    mechanism = options[given] if has_reference(options[given]) else options[given].upper()
    if is_msk(options, mechanism):
        login = _login(sides)
        if login is not _UNREADABLE:
            msk(login, sides)
        return
    if CLIENT_HANDLER in options:
        sides.fault(CLIENT_HANDLER, "a Java class cannot serve librdkafka")
    if mechanism == "GSSAPI":
        problem = "confluent-kafka's wheel is built without Kerberos"
        sides.fault(given, problem, "use SCRAM, OAUTHBEARER or a client certificate")
    elif mechanism not in MODULES:
        if not has_reference(mechanism):
            known = f"known are {', '.join((*MODULES, MECHANISM))}"
            sides.fault(given, "this mechanism is not known to both clients", known)
    else:
        sides.both("sasl.mechanism", mechanism)
        login = _login(sides)
        if login is None or login is _UNREADABLE or login.module == MODULES[mechanism]:
            said = {} if login is None else dict(login.options)
            if login is not _UNREADABLE:
                _oauth(said, sides) if mechanism == "OAUTHBEARER" else _password(said, sides, mechanism)
        else:
            problem = f"{login.module} is not the module of {mechanism}"
            sides.fault(_LINE, problem, f"use {MODULES[mechanism]}")


_UNREADABLE = Login("", {})


def _login(sides: Sides) -> Login | None:
    """Return the login line, None without one, or `_UNREADABLE` if it cannot be used."""
    line = sides.options.get(_LINE)
    if line is None:
        return None
    try:
        return parse(line)
    except JaasError as error:
        # A line that is a reference is parsed after it is resolved.
        if not has_reference(line):
            sides.fault(_LINE, error.problem, error.remedy)
        return _UNREADABLE


def _password(login: dict[str, str], sides: Sides, mechanism: str) -> None:
    for name in sorted(set(login) - {"username", "password"}):
        remedy = "librdkafka knows no delegation tokens; use a password" if name == "tokenauth" else "remove it"
        sides.fault(_LINE, f"the option {name} has no counterpart in librdkafka", remedy)
    found: dict[str, str] = {}
    for name in ("username", "password"):
        key = f"sasl.{name}"
        if key in sides.options and name in login:
            sides.fault(key, "given twice, also in sasl.jaas.config", "keep one of them")
        elif key not in sides.options and name not in login:
            given = next(key for key in _MECHANISM if key in sides.options)
            sides.fault(given, f"{key} is missing beside {mechanism}", f"add {key}, or {name} in sasl.jaas.config")
        else:
            found[name] = sides.options.get(key, login.get(name, ""))
    if len(found) == 2:
        sides.librdkafka |= {f"sasl.{name}": value for name, value in found.items()}
        _write(Login(MODULES[mechanism], found), sides, "sasl.password")


def _oauth(login: dict[str, str], sides: Sides) -> None:
    options = sides.options
    if _SUBJECT in login or options.get(_UNSECURE[0]) == "true":
        _unsecured(login, sides)
        return
    handler = unshaded(options.get(LOGIN_HANDLER, _OIDC_HANDLER))
    if handler not in _OIDC_HANDLERS and not has_reference(handler):
        remedy = "remove it: OIDC client credentials serve both"
        sides.fault(LOGIN_HANDLER, "a Java class of your own cannot serve librdkafka", remedy)
    if options.get(_METHOD, "oidc") != "oidc":
        sides.fault(_METHOD, "only oidc works from a settings file", "write oidc, or remove it")
    if _URL not in options:
        sides.fault("sasl.mechanism", f"{_URL} is missing beside OAUTHBEARER", f"add {_URL}")
    extensions = {name: value for name, value in login.items() if name.startswith("extension_")}
    for name in sorted(set(login) - {"clientId", "clientSecret", "scope", *extensions}):
        sides.fault(_LINE, f"the option {name} has no counterpart in librdkafka")
    for part in filter(str.strip, options.get(_EXTENSIONS, "").split(",")):
        name, _, value = part.strip().partition("=")
        extensions[f"extension_{name}"] = value
    client_id = _one_of(login, _CLIENT_ID, "clientId", sides)
    secret = _one_of(login, _CLIENT_SECRET, "clientSecret", sides)
    scope = options.get(_SCOPE, login.get("scope"))
    sides.java[LOGIN_HANDLER] = (SHADED if sides.shaded else "") + _OIDC_HANDLER
    sides.librdkafka[_METHOD] = "oidc"
    for key in (_URL, _CLAIM):
        if key in options:
            sides.both(key, options[key])
    if client_id is None or secret is None:
        return
    sides.librdkafka |= {_CLIENT_ID[1]: client_id, _CLIENT_SECRET[1]: secret}
    values = {"clientId": client_id, "clientSecret": secret}
    if scope is not None:
        values["scope"] = sides.librdkafka[_SCOPE] = scope
    if extensions:
        pairs = (f"{name.removeprefix('extension_')}={value}" for name, value in extensions.items())
        sides.librdkafka[_EXTENSIONS] = ",".join(pairs)
    _write(Login(MODULES["OAUTHBEARER"], values | extensions), sides, _CLIENT_SECRET[1])


def _unsecured(login: dict[str, str], sides: Sides) -> None:
    config = dict(part.partition("=")[::2] for part in sides.options.get(_UNSECURE[1], "").split())
    principal = login.get(_SUBJECT, config.get("principal"))
    if principal is None or set(config) - {"principal"} or set(login) - {_SUBJECT}:
        key, problem = (
            _UNSECURE[1] if config else "sasl.mechanism",
            "an unsecured token takes only a principal",
        )
        sides.fault(key, problem, "write sasl.oauthbearer.config: principal=NAME")
        return
    sides.librdkafka |= {_UNSECURE[0]: "true", _UNSECURE[1]: f"principal={principal}"}
    _write(Login(MODULES["OAUTHBEARER"], {_SUBJECT: principal}), sides, _UNSECURE[1])


def _one_of(login: dict[str, str], keys: tuple[str, str], name: str, sides: Sides) -> str | None:
    given = [key for key in keys if key in sides.options]
    found = [sides.options[key] for key in given] + ([login[name]] if name in login else [])
    if len(found) > 1:
        sides.fault((*given, _LINE)[0], f"{name} is given twice", "keep one of them")
    if found:
        return found[0]
    remedy = f"add {keys[-1]}, or {name} in sasl.jaas.config"
    sides.fault("sasl.mechanism", f"{keys[-1]} is missing beside OAUTHBEARER", remedy)
    return None


def _write(login: Login, sides: Sides, key: str) -> None:
    try:
        sides.java[_LINE] = build(login, shaded=sides.shaded)
    except JaasError as error:
        sides.fault(key, error.problem, error.remedy)
