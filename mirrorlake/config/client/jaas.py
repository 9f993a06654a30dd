r"""Parse and build JAAS login lines.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="U" password="P";

Java reads them with `java.io.StreamTokenizer` (`org.apache.kafka.common.security.JaasConfig`): values in double quotes,
in which `\` escapes. An unescaped password can end its value early and append options, so only this module writes such
lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
SHADED = "kafkashaded."
"""Prefix of Kafka's classes inside Databricks' runtime."""

_WORD = r"[\w.$-]+"
_HEAD = re.compile(rf"\s*({_WORD})\s+({_WORD})(?=\s|;)")
_OPTION = re.compile(rf"\s+({_WORD})\s*=\s*(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|({_WORD}))", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# CVE-2023-25194: these modules fetch and run code from an address in the line; Kafka bans the first by default.
_BANNED = ("JndiLoginModule", "LdapLoginModule")


class JaasError(ValueError):
    """A login line is wrong; never contains a value from it."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}; {remedy}")


@dataclass(frozen=True)
class Login:
    """One login line: the class without Databricks' prefix, and the unescaped options; `repr` hides their values."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Login(module={self.module!r}, options={sorted(self.options)})"


def parse(line: str) -> Login:
    """Parse a login line. Raises JaasError: it does not parse, its module is banned, or it has more than one login.

    Example:
        >>> parse('a.PlainLoginModule required username="U" password="P";')
        Login(module='a.PlainLoginModule', options=['password', 'username'])
    """
    head = _HEAD.match(line)
    if head is None:
        raise JaasError("not a login line", 'write: <LoginModule> required name="value" ...;')
    module = head.group(1).removeprefix(SHADED)
    if module.rpartition(".")[2] in _BANNED:
        raise JaasError(
            f"{module} is refused: it runs code from an address in the line", "use PLAIN, SCRAM or OAUTHBEARER"
        )
    options: dict[str, str] = {}
    position = head.end()
    while (match := _OPTION.match(line, position)) is not None:
        name, double, single, bare = match.groups()
        options[name] = bare if bare is not None else _unescape(double if double is not None else single)
        position = match.end()
    rest = line[position:].strip()
    if rest != ";":
        problem = "more than one login" if rest.startswith(";") else "the part after the options does not parse"
        raise JaasError(
            f"{problem} (at character {position + 1})", 'quote every value with "…" and end the line with one ;'
        )
    return Login(module, options)


def build(login: Login, *, shaded: bool = False) -> str:
    r"""Return a login line.

    Example:
        >>> print(build(Login("PlainLoginModule", {"username": "U", "password": 'a"b'})))
        PlainLoginModule required username="U" password="a\"b";
    """
    words = [(SHADED if shaded else "") + login.module, "required"]
    for name, value in login.options.items():
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise JaasError(f"the value of {name} holds a control character", "a line break at its end? remove it")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        words.append(f'{name}="{escaped}"')
    return " ".join(words) + ";"


def _unescape(text: str) -> str:
    def char(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code, 8)) if code[0] in "01234567" else _LETTERS.get(code, code)

    return _ESCAPE.sub(char, text)
