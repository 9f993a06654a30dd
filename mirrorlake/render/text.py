"""Lay out tables and sheets as text: wrap sentences, shorten names in the middle, omit columns with a note.

Rich measures and wraps. Its own tables cut names at their ends, omit no column, and take twenty times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from itertools import zip_longest

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from mirrorlake.render.badge import Badge
from mirrorlake.render.content import clean, middle
from mirrorlake.render.table import REASONS, Sheet, Table, cell

_GAP, _INDENT = 2, "  "
# Narrower names mean nothing, and narrower sentences become towers.
_MIN_NAME, _MIN_SENTENCE = 12, 16
# A reason is easy to read from this width on, for which a table's least important columns go.
_EASY_REASON = 30
# A longer word, such as a path, may be broken.
_WORD = 34
_UNLIMITED = 2**40
# It wraps by words; its own width does not matter.
_WRAPPER = Console(width=80, highlight=False, emoji=False)


def text_of(
    shown: Sheet | Table | str,
    *,
    width: int | None = None,
    zone: tzinfo | None = None,
    rows: int | None = None,
    whole: bool = True,
) -> str:
    """Return the text of a sheet, a table or a line; None for `width` is lines of any width, for `zone` the machine's, for `rows` all.

    Example:
        >>> from mirrorlake.render import table
        >>> print(text_of(table("", ["topic", "lag"], [("orders-of-the-north-west", 7)]), width=20))
        topic            lag
        orders-…th-west    7
    """
    return "\n".join(_lines(shown, width or _UNLIMITED, zone, rows, whole))


def _lines(shown: Sheet | Table | str, width: int, zone: tzinfo | None, rows: int | None, whole: bool) -> Iterator[str]:
    if isinstance(shown, str):
        yield from _wrapped(clean(shown), width, hanging=_INDENT)
    elif isinstance(shown, Table):
        yield from _table_lines(shown, width, zone, rows, whole)
    else:
        said = shown.summary(zone=zone)
        title = clean(shown.title)
        yield from _wrapped(f"{title}: {said}" if said else title, width, hanging=_INDENT)
        for part in shown.parts:
            for line in _lines(part, width - len(_INDENT), zone, rows, whole):
                yield f"{_INDENT}{line}".rstrip()


def _table_lines(table: Table, width: int, zone: tzinfo | None, rows: int | None, whole: bool) -> Iterator[str]:
    shown = table.rows[:rows]
    if table.title:
        yield from _wrapped(clean(table.title), width, hanging=_INDENT)
    if shown:
        at_right = table.at_right(shown)
        columns = [
            _Column(name, [row[at] for row in shown], zone, whole, at_right=at_right[at])
            for at, name in enumerate(table.columns)
        ]
        kept = _kept(columns, table.least, width)
        widths = _widths(kept, width)
        heads = [list(_wrapped(column.name, each)) for column, each in zip(kept, widths, strict=True)]
        rights = [column.at_right for column in kept]
        yield from _aligned(heads, widths, rights)
        for at in range(len(shown)):
            cells = [column.lines(at, each) for column, each in zip(kept, widths, strict=True)]
            yield from _aligned(cells, widths, rights)
        left = [column.name for column in columns if column not in kept]
        if left:
            yield from _wrapped(f"not shown here: {', '.join(left)}; --wide shows all", width, hanging=_INDENT)
    if len(table.rows) > len(shown):
        yield from _wrapped(f"… {table.more(len(shown))}", width, hanging=_INDENT)


class _Column:
    def __init__(
        self, name: str, values: Sequence[object], zone: tzinfo | None, whole: bool, *, at_right: bool
    ) -> None:
        self._cells = cells = [cell(value, zone=zone, whole=whole) for value in values]
        # A heading may contain a name, too.
        self.name = " ".join(middle(word, _MIN_SENTENCE, cell_len) for word in clean(name).split())
        self.at_right = at_right
        is_badge = all(value is None or isinstance(value, Badge) for value in values)
        # The columns that people read first are omitted last.
        is_reason = name in REASONS
        self.rank = 3 if is_reason else 2 if is_badge else 0 if at_right else 1
        is_rigid = at_right or is_badge
        widest = max(map(cell_len, cells))
        head = max(map(cell_len, self.name.split()), default=0)
        is_sentence = is_reason or any(" " in text and cell_len(text) > _MIN_SENTENCE for text in cells)
        self._wraps = is_sentence and not is_rigid
        self.most = max(widest, cell_len(self.name))
        self.least = max(widest if is_rigid else min(widest, _MIN_SENTENCE if is_sentence else _MIN_NAME), head)
        self.easy = max(self.least, min(widest, _EASY_REASON)) if is_reason else self.least
        words = (cell_len(word) for text in cells for word in text.split()) if is_sentence else ()
        self.comfort = max(self.least, *(each for each in (*words, 0) if each <= _WORD))

    def lines(self, at: int, width: int) -> list[str]:
        text = self._cells[at]
        return list(_wrapped(text, width)) if self._wraps else [middle(text, width, cell_len)]


def _kept(columns: list[_Column], least: Sequence[str], width: int) -> list[_Column]:
    """Omit columns until the others fit: first those in `least`, then numbers from the last, texts, verdicts, reasons."""
    kept = list(columns)
    declared = [one for name in least for one in columns if one.name == name]
    others = sorted((one for one in reversed(columns[1:]) if one not in declared), key=lambda one: one.rank)
    for column in (*declared, *others):
        needed = (one.easy if column in declared else one.least for one in kept)
        if sum(needed) + _GAP * (len(kept) - 1) <= width:
            break
        kept.remove(column)
    return kept


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return the widths: whole words come first, then whole cells; the widest columns are served last."""
    room = width - _GAP * (len(columns) - 1)
    widths = [min(column.least, room) for column in columns]
    for wanted in ([column.comfort for column in columns], [column.most for column in columns]):
        while (left := room - sum(widths)) > 0:
            hungry = [at for at in range(len(columns)) if widths[at] < wanted[at]]
            if not hungry:
                break
            share = max(1, left // len(hungry))
            for at in sorted(hungry, key=lambda at: columns[at].most)[:left]:
                widths[at] += min(share, wanted[at] - widths[at], room - sum(widths))
    return widths


def _aligned(cells: Sequence[Sequence[str]], widths: Sequence[int], rights: Sequence[bool]) -> Iterator[str]:
    for line in zip_longest(*cells, fillvalue=""):
        padded = []
        for text, width, at_right in zip(line, widths, rights, strict=True):
            space = " " * (width - cell_len(text))
            padded.append(space + text if at_right else text + space)
        yield (" " * _GAP).join(padded).rstrip()


def _wrapped(text: str, width: int, *, hanging: str = "") -> Iterator[str]:
    """Yield a text in lines, broken between words, and within a word that is too long."""
    if cell_len(text) <= width:
        yield text
        return
    room = width - len(hanging)
    words = " ".join(part for word in text.split(" ") for part in _broken(word, room))
    for at, line in enumerate(Text(words).wrap(_WRAPPER, room, overflow="fold")):
        yield (hanging if at else "") + line.plain.rstrip()


def _broken(word: str, width: int) -> Iterator[str]:
    """Break a word that is too long for a line: after its last dot or slash that fits, but never within `->`.

    >>> list(_broken("east->central.orders.of-the-north", 16)), list(_broken("orders->central", 7))
    (['east->central.', 'orders.', 'of-the-north'], ['orders', '->centr', 'al'])
    """
    while cell_len(word) > width:
        part = chop_cells(word, width)[0]
        at = max(part.rfind("."), part.rfind("/")) + 1 or len(part)
        if at > 1 and word[at - 1 : at + 1] == "->":
            at -= 1
        yield word[:at]
        word = word[at:]
    yield word
