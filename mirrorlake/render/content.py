"""Make foreign texts and record content safe to show: no control sequence reaches a terminal, no markup a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape as _escape
from unicodedata import category

from mirrorlake.render.numbers import NOTHING, format_count, plural

# Joiners belong to letters (Persian) and to emoji; other format characters can reorder the text around them (U+202E).
_KEPT = {"\u200c", "\u200d"}
# Our own payloads start with no such sign, so a text cannot pass for a null or for bytes.
_OWN = ("‹", "0x", "“")
# Control characters except tab and line ends: binary formats have them even if their bytes happen to be UTF-8.
_BINARY = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# A name goes on in the next line after a dot, a hyphen, an underscore or a slash that letters follow; an arrow and a date are never
# torn. Regular expressions of Python and of JavaScript alike.
BREAK = r"(?<=[A-Za-z0-9][._/-])(?=[A-Za-z][A-Za-z0-9])"
UNBROKEN = r"(->|[0-9]+(?:-[0-9]+)+)"
# So many characters fit into any column: a name of these stays whole.
SHORT_NAME = 24
_MUTED = "font-style:italic;color:var(--jp-ui-font-color2,inherit)"


def clean(text: str) -> str:
    r"""Make characters visible that would move the cursor, change the direction or end the line.

    >>> clean("a\x1b[31m\tb\u202ec")
    'a␛[31m␉b‹U+202E›c'
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char.isprintable() or category(char) == "Zs" or char in _KEPT:
        return char
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"‹U+{code:04X}›"


def escape(text: str) -> str:
    """Escape a text for HTML, between tags or in a quoted attribute; control characters become visible.

    >>> escape("<b> & 'x'")
    '&lt;b&gt; &amp; &#x27;x&#x27;'
    """
    return _escape(clean(text), quote=True)


def breakable(text: str) -> str:
    """Escape a text for HTML between tags, so that long names wrap at their dots, and none at `->`; a short name stays whole.

    >>> breakable("east.orders of <b>, 3.5 s"), breakable("east.a-long-name-of-orders-v2")
    ('east.orders of &lt;b&gt;, 3.5 s', 'east.a-<wbr>long-<wbr>name-<wbr>of-<wbr>orders-<wbr>v2')
    >>> breakable("east->central")
    '<span style="white-space:nowrap">east-&gt;central</span>'
    """
    return "".join(map(_word, re.split(r"(\s+)", clean(text))))


def _word(text: str) -> str:
    if len(text) <= SHORT_NAME:
        return _whole(text) if re.search(UNBROKEN, text) else escape(text)
    return "<wbr>".join(map(_unbroken, re.split(BREAK, text)))


def _unbroken(text: str) -> str:
    return "".join(_whole(part) if at % 2 else escape(part) for at, part in enumerate(re.split(UNBROKEN, text)))


def _whole(text: str) -> str:
    return f'<span style="white-space:nowrap">{escape(text)}</span>'


def brief(text: str, limit: int | None) -> str:
    """Truncate a text after `limit` characters, and append its length.

    >>> brief("abcdef", 3), brief("abc", 3)
    ('abc… (6 characters)', 'abc')
    """
    return text if limit is None or len(text) <= limit else f"{text[:limit]}… ({format_count(len(text))} characters)"


def middle(text: str, limit: int, width: Callable[[str], int] = len) -> str:
    """Shorten a name to `limit` characters in its middle: names differ most at their ends.

    `width` returns the width of a text where characters are of several widths.

    >>> middle("east.a-very-long-topic-name.v2", 16)
    'east.a-v…name.v2'
    """
    if width(text) <= limit:
        return text
    end = (limit - 1) // 2
    start = _beginning(text, max(1, limit - 1 - end), width)
    return f"{start}…{_beginning(text[::-1], end, width)[::-1]}" if limit > 2 else start


def _beginning(text: str, limit: int, width: Callable[[str], int]) -> str:
    total = 0
    for at, char in enumerate(text):
        total += width(char)
        if total > limit:
            return text[:at]
    return text


def payload(data: bytes | None, limit: int | None = 120) -> str:
    r"""Return a key, a value or a header value as text: at most `limit` bytes of it.

    UTF-8 without control characters (except tab and line ends) becomes text, anything else hexadecimal. Null, empty, and a text
    that says so differ.

    Example:
        >>> payload(b'{"id": 7}'), payload(None), payload(b""), payload(b"\x00\x00\x00\x07")
        ('{"id": 7}', '‹null›', '‹empty›', '0x00000007 (4 bytes)')
        >>> payload(b"0123456789", limit=4), payload("‹null›".encode())
        ('0123… (10 bytes)', '“‹null›”')
    """
    text = _text(data)
    if data is None or not data:
        return "‹null›" if data is None else "‹empty›"
    total = f"({plural(len(data), 'byte')})"
    is_cut = limit is not None and len(data) > limit
    if text is None:
        return f"0x{bytes(data[:limit]).hex()}{'…' if is_cut else ''} {total}"
    # The limit may split a character.
    shown = clean(bytes(data[:limit]).decode("utf-8", "ignore") if is_cut else text)
    shown = f"“{shown}”" if text.startswith(_OWN) else shown
    return f"{shown}… {total}" if is_cut else shown


def payload_html(data: bytes | None, limit: int | None = 120) -> str:
    """Return the text of `payload` as HTML: text and bytes as code, null and empty distinct.

    >>> payload_html(b"<script>")
    '<code>&lt;script&gt;</code>'
    """
    shown = _escape(payload(data, limit), quote=True)
    return f"<code>{shown}</code>" if data else f'<span style="{_MUTED}">{shown}</span>'


def headers(pairs: Iterable[tuple[str, bytes | None]] | None, limit: int | None = 120) -> str:
    """Return a record's headers in order, with duplicates and `limit` bytes of each value; "–" if there are none.

    >>> headers([("trace", b"a1"), ("trace", None)]), headers([])
    ('trace=a1, trace=‹null›', '–')
    """
    return ", ".join(f"{clean(name)}={payload(value, limit)}" for name, value in pairs or ()) or NOTHING


def _text(data: bytes | None) -> str | None:
    """Return data as text, or None if it is not UTF-8 or has control characters as in binary formats."""
    try:
        text = bytes(data or b"").decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text
