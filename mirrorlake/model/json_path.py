"""Paths to members of JSON values: the subset of JSONPath (RFC 9535) that names members without conditions.

`$.a.b`, `a.b`, `$['a b']`, `items[0]`, `items[*]` and `..name` (a member of this name at any depth).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """The item of an array at this position, from 0."""

    index: int


@dataclass(frozen=True, slots=True)
class Every:
    """Every member of an object and every item of an array."""


@dataclass(frozen=True, slots=True)
class Anywhere:
    """The members of this name at this level and at any depth below."""

    name: str


Step = Member | Index | Every | Anywhere
Path = tuple[Step, ...]

# A bare name contains no character with a meaning; other names are quoted: ['a.b'].
_BARE = r"[^\s.\[\]'\"*$]+"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_STEP = re.compile(
    rf"""
    \.\. (?: (?P<any>{_BARE}) | \[ \s* (?P<any_quoted>{_QUOTED}) \s* \] )
    | \. (?P<name>{_BARE})
    | \[ \s* (?: (?P<quoted>{_QUOTED}) | (?P<index>\d{{1,9}}) | (?P<all>\*) ) \s* \]
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(_BARE)


class PathError(ValueError):
    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}; {remedy}")


def parse_path(text: str) -> Path:
    """Return the steps of a path; PathError if it does not parse or names the whole value. A leading `$` may be left out."""
    rest = text.strip()
    if rest.startswith("$"):
        rest = rest[1:]
    elif rest[:1] not in (".", "["):
        rest = f".{rest}"
    steps: list[Step] = []
    place = 0
    while place < len(rest):
        match = _STEP.match(rest, place)
        if match is None:
            raise PathError(
                f"'{text}' is not a path (at '{rest[place : place + 20]}')",
                "write $.a.b, a.b, $['a b'], items[0], items[*] or ..name",
            )
        steps.append(_step(match))
        place = match.end()
    if not steps:
        raise PathError(f"'{text}' names the whole value", "name a member, like $.email; drop withholds whole records")
    return tuple(steps)


def path_text(path: Path) -> str:
    return "$" + "".join(_written(step) for step in path)


def _written(step: Step) -> str:
    if isinstance(step, Index):
        return f"[{step.index}]"
    if isinstance(step, Every):
        return "[*]"
    lead = ".." if isinstance(step, Anywhere) else "."
    if _PLAIN.fullmatch(step.name):
        return lead + step.name
    quoted = step.name.replace("\\", "\\\\").replace("'", "\\'")
    return f"{lead.rstrip('.') if lead == '.' else lead}['{quoted}']"


def _step(match: re.Match[str]) -> Step:
    kind, found = match.lastgroup, match.group(match.lastgroup or 0)
    if kind == "any":
        return Anywhere(found)
    if kind == "any_quoted":
        return Anywhere(_unquoted(found))
    if kind == "name":
        return Member(found)
    if kind == "quoted":
        return Member(_unquoted(found))
    if kind == "index":
        return Index(int(found))
    return Every()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])
