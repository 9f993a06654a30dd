r"""Topic selections: MirrorMaker's spellings, parsed to one canonical value.

MirrorMaker 1 took one regular expression in which a comma meant `|`; MirrorMaker 2 takes a comma-separated list,
joins it with `|`, and matches the whole name (`DefaultTopicFilter`). Both spellings, and YAML lists, become one
`TopicPattern`:

    "orders, clicks.*"   "orders|clicks.*"   ["orders", "clicks.*"]   ──>   expressions ("orders", "clicks.*")

Differences from MirrorMaker 2, on purpose: a comma or `|` inside braces, brackets or parentheses does not end an item
(MirrorMaker 2 splits `a{1,3}`); an inline flag such as `(?i)` acts on its own item only (in MirrorMaker 2 it leaks
into later ones); `orders*`, which reads as a glob and means "order, then any number of s", is refused with the remedy
`orders.*`.

The accepted language is the one that Java, RE2 and Python read alike. Everything else is refused, so the lander
(Java, inside Spark) and every other part of mirrorlake (RE2) select the same topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mirrorlake.model.regex import PatternError, Token, tokens

__all__ = [
    "DEFAULT_EXCLUDE_GROUPS",
    "DEFAULT_EXCLUDE_TOPICS",
    "INTERNAL_TOPICS",
    "PatternError",
    "Shape",
    "TopicPattern",
    "parse_patterns",
    "shape_of",
    "subscribe_pattern",
]

_SCOPED_FLAG = re.compile(r"\(\?(-?i)\)")


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Java regular expressions; one of them must match the whole name."""

    expressions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(self.expressions)

    def __bool__(self) -> bool:
        return bool(self.expressions)

    @property
    def java_regex(self) -> str:
        """One alternation, to be matched against the whole name.

        Each item is a group of its own, so neither `|` nor a flag reaches beyond it.
        """
        return "|".join(f"(?:{expression})" for expression in self.expressions)


# KIP-1074 (Kafka 4.0): topics that MirrorMaker never mirrors, whatever is selected, and mirrorlake's ledgers. MirrorMaker's
# own topics have the separator of the MirrorMaker that made them, which these settings do not know.
INTERNAL_TOPICS = TopicPattern(
    (
        r"__.*",
        r"\..*",
        r"mm2.*[._-]internal",
        r"mm2-(?:offset-syncs|offsets|configs|status).*internal",
        r".*[._-]checkpoints[._-]+internal",
        r"mirrorlake\..*\.ledger",
    )
)
# `topics.exclude` and `groups.exclude` of MirrorMaker 4.x; a value in the settings replaces the whole list.
DEFAULT_EXCLUDE_TOPICS = TopicPattern((r"mm2.*\.internal", r".*\.replica", r"__.*"))
DEFAULT_EXCLUDE_GROUPS = TopicPattern((r"console-consumer-.*", r"connect-.*", r"__.*"))


def parse_patterns(selection: str | Iterable[str], *, required: bool = True) -> TopicPattern:
    """Parse a selection in any of its spellings; PatternError if nothing is selected although `required`.

    Blanks around items and empty items do not count. A lone `*` means every name, as in MirrorMaker 1's manual.
    """
    texts = [selection] if isinstance(selection, str) else list(selection)
    if [text.strip() for text in texts] == ["*"]:
        return TopicPattern((".*",))
    items = [item for text in texts for item in _items(text)]
    if not items and required:
        raise PatternError("nothing is selected", remedy='name the topics, for example "orders, clicks.*"')
    return TopicPattern(tuple(dict.fromkeys(items)))


def subscribe_pattern(*selections: tuple[TopicPattern, TopicPattern]) -> str:
    r"""Return the pattern for Spark's `subscribePattern`; it has anchors because Spark matches with *find*.

    A topic that any (include, exclude) selects is subscribed. Internal topics (KIP-1074) and ledgers are excluded from all.
    """
    wanted = "|".join(_without(exclude) + f"(?:{include.java_regex})" for include, exclude in selections if include)
    return f"^{_without(INTERNAL_TOPICS)}(?:{wanted})$" if wanted else "^(?!)$"


def _without(exclude: TopicPattern) -> str:
    return f"(?!(?:{exclude.java_regex})$)" if exclude else ""


class Shape(NamedTuple):
    """The beginning of the names an expression matches (None for any character), and whether more may follow."""

    cells: tuple[str | None, ...]
    open: bool

    def meet(self, other: Shape) -> Shape | None:
        """Return the shape of the names that fit both shapes, or None if no name can."""
        short, long = sorted((self, other), key=lambda shape: len(shape.cells))
        if not short.open and len(long.cells) > len(short.cells):
            return None
        cells = list(long.cells)
        for index, cell in enumerate(short.cells):
            if cell is not None and cells[index] is not None and cell != cells[index]:
                return None
            cells[index] = cells[index] if cell is None else cell
        return Shape(tuple(cells), long.open and short.open)

    @property
    def literal(self) -> str | None:
        """The only name of this shape, or None if there may be several."""
        return None if None in self.cells else self.meant

    @property
    def meant(self) -> str | None:
        """The name that a person means by the expression, or None for a pattern: `orders.v1` has a dot in it."""
        return None if self.open else "".join(cell or "." for cell in self.cells)


def shape_of(expression: str) -> Shape:
    cells: list[str | None] = []
    for token in tokens(expression):
        if token.kind == "repeat":
            return Shape(tuple(cells[:-1]), open=True)
        if token.kind == "literal":
            cells.append(token.text[-1])
        elif token.kind == "dot":
            cells.append(None)
        elif token.kind != "edge":
            return Shape(tuple(cells), open=True)
    return Shape(tuple(cells), open=False)


def _items(text: str) -> Iterator[str]:
    parts: list[Token] = []
    depth = 0
    for token in (*tokens(text), Token("comma", "", len(text))):
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
        if depth < 0:
            raise PatternError(
                f"'{text.strip()}': unopened )", remedy=r"write \) for the character", position=token.start
            )
        if token.kind in ("comma", "pipe") and (depth == 0 or token.start == len(text)):
            if depth:
                raise PatternError(f"'{text.strip()}': unclosed group", position=_unclosed(parts))
            while parts and parts[-1].kind == "blank":
                parts.pop()
            if parts:
                yield _item(parts, text)
            parts = []
        elif parts or token.kind != "blank":
            parts.append(token)


def _unclosed(parts: list[Token]) -> int:
    opened: list[int] = []
    for token in parts:
        if token.kind == "open":
            opened.append(token.start)
        elif token.kind == "close" and opened:
            opened.pop()
    return opened[-1]


def _item(parts: list[Token], text: str) -> str:
    before: Token | None = None
    for token in parts:
        if token.kind == "blank":
            raise PatternError(
                f"'{text.strip()}': blank inside a name", remedy="put a comma between names", position=token.start
            )
        if token.kind == "repeat":
            _check_repeat(before, token, text, parts[0].start)
        before = token
    item = "".join(token.text for token in parts)
    # Python accepts only scoped inline flags; Java and RE2 read both forms alike.
    while (flag := _SCOPED_FLAG.match(item)) is not None:
        item = f"(?{flag.group(1)}:{item[flag.end() :]})"
    return item


def _check_repeat(before: Token | None, token: Token, text: str, start: int) -> None:
    shown = text.strip()
    if before is None or before.kind in ("open", "pipe", "flag", "edge"):
        raise PatternError(
            f"'{shown}': {token.text} repeats nothing",
            remedy="write .* for any characters" if "*" in token.text else "name what is repeated before it",
            position=token.start,
        )
    if before.kind == "repeat":
        raise PatternError(f"'{shown}': {before.text}{token.text} repeats a repeat", position=token.start)
    if before.kind == "literal" and token.text[0] == "*":
        name = text[start : token.start]
        raise PatternError(
            f"'{shown}': dangling star; `{before.text}*` means any number of `{before.text}`, not any ending",
            remedy=f"write {name}.* for every name that begins so, or [{before.text}]* if the repeat is meant",
            position=token.start,
        )
