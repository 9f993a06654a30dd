"""Translate Amazon MSK's IAM login for both clients.

    Java        its own mechanism, AWS_MSK_IAM, with Amazon's call-back handler (Maven software.amazon.msk:aws-msk-iam-auth)
    librdkafka  OAUTHBEARER; a call-back signs the token (PyPI aws-msk-iam-sasl-signer-python, `kafka/msk.py`)

One listener of the broker (port 9098, 9198 from outside) accepts both. Both of Amazon's Java spellings are read: the mechanism
AWS_MSK_IAM, or OAUTHBEARER with `IAMOAuthBearerLoginCallbackHandler`. On Databricks the classes have the prefix
`shadedmskiam.`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirrorlake.config.client.jaas import MODULES, SHADED, JaasError, Login, build
from mirrorlake.config.client.names import Sides

MECHANISM = "AWS_MSK_IAM"
SHADED_MSK = "shadedmskiam."
"""Prefix of Amazon's classes inside Databricks' runtime."""
TOKEN = "mirrorlake.msk.iam"  # noqa: S105 - a name
"""The option for librdkafka with the identity to sign for; `kafka/options.py` turns it into the call-back."""

CLIENT_HANDLER = "sasl.client.callback.handler.class"
LOGIN_HANDLER = "sasl.login.callback.handler.class"
_PACKAGE = "software.amazon.msk.auth.iam."
MODULE = f"{_PACKAGE}IAMLoginModule"
_HANDLER = f"{_PACKAGE}IAMClientCallbackHandler"
_HANDLERS = (_HANDLER, f"{_PACKAGE}IAMOAuthBearerLoginCallbackHandler")

_BOTH = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
# They pace or log the Java handler, and do not change the identity.
_JAVA = ("awsDebugCreds", "awsMaxBackOffTimeMs", "awsMaxRetries")
_NAMES = ("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", CLIENT_HANDLER, LOGIN_HANDLER)


def is_msk(options: Mapping[str, str], mechanism: str) -> bool:
    named = {unshaded(options[key]) for key in (CLIENT_HANDLER, LOGIN_HANDLER) if key in options}
    return mechanism == MECHANISM or (mechanism == "OAUTHBEARER" and bool(named & set(_HANDLERS)))


def unshaded(name: str) -> str:
    return name.removeprefix(SHADED).removeprefix(SHADED_MSK)


def msk(login: Login | None, sides: Sides) -> None:
    options, line = sides.options, "sasl.jaas.config"
    found = {} if login is None else dict(login.options)
    if login is not None and unshaded(login.module) not in (MODULE, MODULES["OAUTHBEARER"]):
        sides.fault(line, f"{login.module} is not the module of {MECHANISM}", f"use {MODULE}")
    for key in (CLIENT_HANDLER, LOGIN_HANDLER):
        if key in options and unshaded(options[key]) not in _HANDLERS:
            sides.fault(key, f"{options[key]} is not Amazon's handler", "remove it: mirrorlake names the handler")
    for name in sorted(set(found) - {*_BOTH, *_JAVA}):
        remedy = f"use {', '.join(_BOTH)}, which both clients know, or give the credentials in the environment"
        sides.fault(line, f"the signer for librdkafka has no option {name}", remedy)
    if "awsRoleSessionName" in found and "awsRoleArn" not in found:
        sides.fault(line, "a session name has no effect without a role", "add awsRoleArn, or remove it")
    if "awsProfileName" in found and "awsRoleArn" in found:
        sides.fault(line, "the signer takes a profile or a role, not both", "keep one of them")
    for key in options:
        if key.startswith("sasl.") and key not in _NAMES and key not in _TIMING:
            sides.fault(key, f"it has no effect with {MECHANISM}")
    if options.get("security.protocol", "").upper() == "SASL_PLAINTEXT":
        sides.fault("security.protocol", "MSK takes IAM logins over TLS only", "write SASL_SSL")
    prefix = SHADED_MSK if sides.shaded else ""
    sides.java |= {"sasl.mechanism": MECHANISM, CLIENT_HANDLER: prefix + _HANDLER}
    try:
        sides.java[line] = build(Login(prefix + MODULE, found))
    except JaasError as error:
        sides.fault(line, error.problem, error.remedy)
    said = {name: value for name, value in found.items() if name in _BOTH}
    sides.librdkafka |= {"sasl.mechanism": "OAUTHBEARER", TOKEN: token_spec(said)}


# Settings of a Java login that every mechanism takes, and that change no identity.
_TIMING = frozenset(
    f"sasl.login.{name}"
    for name in (
        *("connect.timeout.ms", "read.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
        *(f"refresh.{part}" for part in ("buffer.seconds", "min.period.seconds", "window.factor", "window.jitter")),
    )
)


def token_spec(login: Mapping[str, str]) -> str:
    """Return the identity of a login as one text; "" is the default chain of credentials."""
    return "\n".join(f"{name}={value}" for name, value in sorted(login.items()))


def read_token_spec(text: str) -> dict[str, str]:
    """Return the identity from `token_spec`.

    >>> read_token_spec(token_spec({"awsProfileName": "mirror"}))
    {'awsProfileName': 'mirror'}
    """
    return dict(line.partition("=")[::2] for line in text.splitlines())
