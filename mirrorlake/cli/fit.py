"""Fit a rendered value into a terminal's width: wrap sentences, shorten names in the middle, omit columns with a note."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from mirrorlake.render import Badge, Sheet, Table, cell, clean

_GAP, _INDENT = 2, "  "
# Narrower names mean nothing, and narrower sentences become towers.
_MIN_NAME, _MIN_SENTENCE = 12, 16
# A longer word, such as a path, may be broken.
_WORD = 34
# It wraps by words; its own width does not matter.
_WRAPPER = Console(width=80, highlight=False, emoji=False)


def fitted(shown: Sheet | Table, width: int, *, whole: bool = True) -> str:
    """Return the text of a sheet or a table, with every row, and no line wider than `width`.

    Args:
        shown: the sheet or table.
        width: columns of the terminal.
        whole: no cell is truncated; otherwise long content is, as in a notebook.

    Example:
        >>> from mirrorlake.render import table
        >>> print(fitted(table("", ["topic", "lag"], [("orders-of-the-north-west", 7)]), 20))
        topic            lag
        orders-…th-west    7
    """
    lines = _of_sheet(shown, width, whole) if isinstance(shown, Sheet) else _of_table(shown, width, whole)
    return "\n".join(lines)


def _of_sheet(sheet: Sheet, width: int, whole: bool) -> Iterator[str]:
    said = sheet.summary()
    yield from _wrapped(f"{clean(sheet.title)}: {said}" if said else clean(sheet.title), width, hanging=_INDENT)
    inner = width - len(_INDENT)
    for part in sheet.parts:
        if isinstance(part, str):
            lines: Iterator[str] = _wrapped(clean(part), inner, hanging=_INDENT)
        else:
            lines = _of_sheet(part, inner, whole) if isinstance(part, Sheet) else _of_table(part, inner, whole)
        yield from (f"{_INDENT}{line}".rstrip() for line in lines)


def _of_table(table: Table, width: int, whole: bool) -> Iterator[str]:
    if table.title:
        yield from _wrapped(clean(table.title), width, hanging=_INDENT)
    if not table.rows:
        return
    cells = [[cell(value, whole=whole) for value in row] for row in table.rows]
    right = table.at_right(table.rows)
    columns = [
        _Column(
            at,
            clean(name),
            [row[at] for row in cells],
            is_number=right[at],
            is_badge=all(row[at] is None or isinstance(row[at], Badge) for row in table.rows),
        )
        for at, name in enumerate(table.columns)
    ]
    kept = _kept(columns, table.least, width)
    widths = _widths(kept, width)
    heads = [_header(column.name, each) for column, each in zip(kept, widths, strict=True)]
    yield from _lines(heads, widths, [right[column.at] for column in kept])
    for row in cells:
        found = [column.lines(row[column.at], each) for column, each in zip(kept, widths, strict=True)]
        yield from _lines(found, widths, [right[column.at] for column in kept])
    left = [column.name for column in columns if column not in kept]
    if left:
        yield from _wrapped(f"not shown here: {', '.join(left)}; --wide shows all", width, hanging=_INDENT)


class _Column:
    """One column with its widest and narrowest width."""

    def __init__(self, at: int, name: str, cells: Sequence[str], *, is_number: bool, is_badge: bool) -> None:
        # A heading may contain a name, too.
        self.at, self.name = at, " ".join(_middle(word, _MIN_SENTENCE) for word in name.split())
        # The columns that people read first are omitted last.
        self.rank = 2 if is_badge else 0 if is_number else 1
        self.is_rigid = is_number or is_badge
        widest = max(map(cell_len, cells))
        head = max(map(cell_len, self.name.split()), default=0)
        self.is_sentence = any(" " in text and cell_len(text) > _MIN_SENTENCE for text in cells)
        self.most = max(widest, cell_len(self.name))
        least = widest if self.is_rigid else min(widest, _MIN_SENTENCE if self.is_sentence else _MIN_NAME)
        self.least = max(least, head)
        words = (cell_len(word) for text in cells for word in text.split()) if self.is_sentence else ()
        self.comfort = max(self.least, *(each for each in (*words, 0) if each <= _WORD))

    def lines(self, text: str, width: int) -> list[str]:
        """Return a cell in lines of at most this width."""
        if cell_len(text) <= width:
            return [text]
        if self.is_sentence and not self.is_rigid:
            return list(_wrapped(text, width))
        return [_middle(text, width)]


def _kept(columns: list[_Column], least: Sequence[str], width: int) -> list[_Column]:
    """Omit columns until the others fit: first those in `least`, then numbers from the last, texts, verdicts."""
    kept = list(columns)
    declared = [one for name in least for one in columns if one.name == name]
    others = sorted((one for one in reversed(columns[1:]) if one not in declared), key=lambda one: one.rank)
    for column in (*declared, *others):
        if sum(one.least for one in kept) + _GAP * (len(kept) - 1) <= width:
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


def _header(name: str, width: int) -> list[str]:
    return list(_wrapped(name, width)) or [""]


def _lines(cells: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    for line in zip_longest(*cells, fillvalue=""):
        yield (" " * _GAP).join(map(_padded, line, widths, right)).rstrip()


def _padded(text: str, width: int, at_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if at_right else text + space


def _wrapped(text: str, width: int, *, hanging: str = "") -> Iterator[str]:
    """Yield a text in lines, broken between words, and within a word that is too long."""
    if cell_len(text) <= width:
        yield text
        return
    lines = Text(text).wrap(_WRAPPER, width - len(hanging), overflow="fold")
    for at, line in enumerate(lines):
        yield (hanging if at else "") + line.plain.rstrip()


def _middle(text: str, width: int) -> str:
    """Shorten a name in its middle: names differ most often at their ends.

    >>> _middle("orders-of-the-north-west", 15)
    'orders-…th-west'
    """
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2
    start = width - 1 - end
    return f"{chop_cells(text, start)[0]}…{_last(text, end)}" if width > 2 else chop_cells(text, max(1, width))[0]


def _last(text: str, width: int) -> str:
    return chop_cells(text[::-1], width)[0][::-1] if width else ""
