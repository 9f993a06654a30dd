r"""The regular expressions that Java, RE2 and Python read alike.

A selection is evaluated twice: by Java inside Spark (`subscribePattern`) and by RE2 in mirrorlake. Expressions that
the three engines read differently would select different topics silently, so they are refused: `[a-z&&[^b]]` (an
intersection in Java, literal characters in the others), `{` as a character, `\Z`, `\p{…}`, back references (their
numbers shift when items are joined), named groups, and flags other than `i`. `\Q…\E`, which Python lacks, is
rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_REPEAT = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")
_GROUP = re.compile(r"\((?:\?(?::|=|!|<=|<!|>|-?i:))?(?!\?)")
_FLAG = re.compile(r"\(\?-?i\)")
_CLASS = re.compile(r"\[\^?(?:\\.|[^\\\]])+\]")
_CLASS_ESCAPES = "dDwWsS"
_SIMPLE = {"|": "pipe", ",": "comma", ")": "close", ".": "dot", "^": "edge", "$": "edge"}


class PatternError(ValueError):
    """A selection is wrong: `position` is the index into the text, or None if the engine does not report it; `remedy` may be ""."""

    def __init__(self, problem: str, *, remedy: str = "", position: int | None = None) -> None:
        self.problem = problem if position is None else f"{problem} (at character {position + 1})"
        self.remedy = remedy
        self.position = position
        super().__init__(f"{self.problem}; {remedy}" if remedy else self.problem)


class Token(NamedTuple):
    """One token, its text as all three engines read it: literal, class, dot, edge, open, close, flag, repeat, pipe, comma or blank."""

    kind: str
    text: str
    start: int


def tokens(text: str) -> Iterator[Token]:
    r"""Split an expression into tokens; PatternError for one that the engines read differently or not at all."""
    start = 0
    while start < len(text):
        if text.startswith(r"\Q", start):
            end = text.find(r"\E", start + 2)
            quoted = text[start + 2 : end if end >= 0 else len(text)]
            yield from (Token("literal", re.escape(char), start + 2 + index) for index, char in enumerate(quoted))
            start += len(quoted) + (4 if end >= 0 else 2)
        else:
            token = _token(text, start)
            yield token
            start += len(token.text)


def _token(text: str, start: int) -> Token:
    char = text[start]
    if char in _SIMPLE:
        return Token(_SIMPLE[char], char, start)
    if char.isspace():
        return Token("blank", char, start)
    if char in "*+?{":
        return _found(
            "repeat", _REPEAT, text, start, "{ that is not a repeat", r"write {2} or {1,3} (at most {…,1000})"
        )
    if char == "(":
        if _FLAG.match(text, start):
            return _found("flag", _FLAG, text, start, "", "")
        return _found(
            "open",
            _GROUP,
            text,
            start,
            "a group that some engines cannot read",
            "use (…), (?:…), (?i:…) or a look-around",
        )
    if char == "[":
        return _class(text, start)
    if char == "\\":
        return _escape(text, start)
    if not char.isprintable():
        raise PatternError(f"{text.strip()!r}: control character", remedy="remove it", position=start)
    return Token("literal", char, start)


def _found(kind: str, wanted: re.Pattern[str], text: str, start: int, problem: str, remedy: str) -> Token:
    match = wanted.match(text, start)
    if match is None:
        raise PatternError(f"'{text.strip()}': {problem}", remedy=remedy, position=start)
    return Token(kind, match.group(), start)


def _escape(text: str, start: int) -> Token:
    char = text[start + 1 : start + 2]
    if char and char in _CLASS_ESCAPES:
        return Token("class", "\\" + char, start)
    if char and char in "bB":
        return Token("edge", "\\" + char, start)
    if not char or char.isalnum() or not char.isprintable():
        raise PatternError(
            f"'{text.strip()}': \\{char} is read differently by Java and RE2",
            remedy=r"write the characters themselves, or \d \w \s \b or an escaped sign such as \.",
            position=start,
        )
    return Token("literal", "\\" + char, start)


def _class(text: str, start: int) -> Token:
    token = _found(
        "class", _CLASS, text, start, "unclosed or empty [", r"close it with ], or write \[ for the character"
    )
    inner = token.text[1:-1]
    for match in re.finditer(r"\\(.)|\[|&&|[\x00-\x1f]", inner):
        escaped = match.group(1)
        if escaped is None or (escaped.isalnum() and escaped not in _CLASS_ESCAPES):
            raise PatternError(
                f"'{text.strip()}': {match.group()!r} inside [ ] is read differently by Java and RE2",
                remedy=r"escape the character, or name the members one by one",
                position=start + 1 + match.start(),
            )
    return token
