"""References in settings: `${env:NAME}`, `${env:NAME:-default}`, `${secret:scope/key}`; `$${` is a literal `${`.

Settings contain references as written, so `repr`, errors and logs show the reference. Only the function that passes a value
to a client resolves them.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mirrorlake.errors import ConfigError, Fault

SECRETS_DIR = "MIRRORLAKE_SECRETS_DIR"
MASK = "********"

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_ENV = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_SECRET = re.compile(r"secret:([A-Za-z0-9_@.-]+)/([A-Za-z0-9_@.-]+)")
_SECRET_NAME = re.compile(
    r"(?i)secret|password|passphrase|token(?!\.endpoint)|credential|jaas|pem|private|\.key$|\.keys$|_key$|^key$"
)


class BadReferenceError(ValueError):
    """A reference is malformed or cannot be resolved; never contains a resolved value."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}; {remedy}")


def has_reference(text: str) -> bool:
    """Return whether the text contains a reference (a literal `$${` is not one)."""
    return any(match.group(1) is not None for match in _REFERENCE.finditer(text))


def is_reference(text: str) -> bool:
    match = _REFERENCE.fullmatch(text)
    return match is not None and match.group(1) is not None


def is_bare_reference(text: str) -> bool:
    """Return whether the text is one reference without a default; a default would be the literal secret."""
    return is_reference(text) and ":-" not in text


def has_secret(text: str) -> bool:
    return any(_SECRET.fullmatch(match.group(1) or "") for match in _REFERENCE.finditer(text))


def looks_secret(name: str) -> bool:
    """Return whether a setting of this name has a secret value.

    >>> looks_secret("sasl.password"), looks_secret("ssl.key.location")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def variable(*parts: str) -> str:
    """Return the name of the environment variable for a secret.

    >>> variable("east", "sasl.password")
    'EAST_SASL_PASSWORD'
    """
    return re.sub(r"\W+", "_", "_".join(parts)).upper()


def check(text: str) -> None:
    """Refuse text with a malformed reference (unknown kind, no `}`, or one inside another); resolves none."""
    for match in _REFERENCE.finditer(text):
        inner = match.group(1)
        if match.group() != "$${" and (inner is None or not (_ENV.fullmatch(inner) or _SECRET.fullmatch(inner))):
            raise BadReferenceError(
                f"{match.group()} is not a reference",
                "write ${env:NAME}, ${env:NAME:-default} or ${secret:scope/key}, not nested; $${ for a literal ${",
            )


def expand(text: str) -> str:
    """Return the text with every reference resolved."""
    check(text)
    return _REFERENCE.sub(lambda match: "${" if match.group() == "$${" else _value(match.group(1)), text)


def resolve(value: str, *, file: str = "settings", path: str = "") -> str:
    """Return the value with every reference resolved.

    Environment references read `os.environ`. Secret references ask Databricks (`dbutils.secrets`) if available, then read the
    file `$MIRRORLAKE_SECRETS_DIR/<scope>/<key>` (a mounted Kubernetes or Docker secret; one trailing newline is dropped).

    Raises:
        ConfigError: a reference cannot be resolved; names file, path, reference and the sources tried.

    Example:
        >>> resolve("${env:MIRRORLAKE_NO_SUCH:-9092}")
        '9092'
    """
    try:
        return expand(value)
    except BadReferenceError as fault:
        raise ConfigError([Fault(file, path, fault.problem, fault.remedy)]) from None


# Values typed in this session, by the inner text of their references: in memory only, and gone with the process.
_TYPED: dict[str, str] = {}


def keep_for_session(reference: str, value: str) -> None:
    """Resolve a reference to a value until the process ends, before environment and secret stores.

    The value is written nowhere, and child processes do not get it.
    """
    check(reference)
    if not is_bare_reference(reference):
        raise BadReferenceError(f"'{reference}' is not a reference", "write ${env:NAME} or ${secret:scope/key}")
    _TYPED[reference[2:-1]] = value


def typed_values() -> tuple[str, ...]:
    """Return the secrets typed in this session, for `redact`."""
    return tuple(_TYPED.values())


def redact(text: str, values: Iterable[str]) -> str:
    """Return the text with every value masked, also escaped ones.

    >>> redact('login failed: password="hunter2"', ["hunter2"])
    'login failed: password="********"'
    """
    forms = {form for value in values if value for form in _forms(value)}
    if not forms:
        return text
    # Longest first: a secret may contain another one.
    return re.sub("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)), MASK, text)


def _forms(value: str) -> set[str]:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return {value, escaped, repr(value)[1:-1], value.encode("unicode_escape").decode("ascii")}


def _value(inner: str) -> str:
    if (typed := _TYPED.get(inner.split(":-")[0])) is not None:
        return typed
    if (env := _ENV.fullmatch(inner)) is not None:
        name, default = env.groups()
        found = os.environ.get(name, default)
        if found is None:
            raise BadReferenceError(
                f"${{{inner}}} cannot be resolved; tried: the environment variable {name} (not set)",
                f"set {name}, or write ${{env:{name}:-default}}",
            )
        return found
    scope, key = inner.removeprefix("secret:").split("/")
    tried: list[str] = []
    for look in (_from_databricks, _from_file):
        secret = look(scope, key, tried)
        if secret is not None:
            return secret
    raise BadReferenceError(
        f"${{{inner}}} cannot be resolved; tried in order: {'; '.join(tried)}",
        f"create the secret, or set {SECRETS_DIR} to a folder that holds the file {scope}/{key}",
    )


def _from_databricks(scope: str, key: str, tried: list[str]) -> str | None:
    # Outside Databricks the SDK would try to log in with the credentials of this machine.
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        tried.append("Databricks secrets (not running on Databricks)")
        return None
    try:
        runtime: Any = importlib.import_module("databricks.sdk.runtime")
        return str(runtime.dbutils.secrets.get(scope=scope, key=key))
    except Exception as error:
        tried.append(f"Databricks secrets, scope {scope}, key {key} ({type(error).__name__})")
        return None


def _from_file(scope: str, key: str, tried: list[str]) -> str | None:
    folder = os.environ.get(SECRETS_DIR)
    if not folder:
        tried.append(f"a file under {SECRETS_DIR} (not set)")
        return None
    if {scope, key} & {".", ".."}:
        tried.append(f"a file under {SECRETS_DIR} (. and .. are not names)")
        return None
    path = Path(folder) / scope / key
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        tried.append(f"the file {path} ({type(error).__name__})")
        return None
    return text.removesuffix("\n").removesuffix("\r")
