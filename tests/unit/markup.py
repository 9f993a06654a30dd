"""Reads HTML as a browser would and says what is in it that does not belong there."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_ELEMENTS = {"a", "div", "span", "b", "code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}
_ATTRIBUTES = {"style", "title", "data-opens"}
_PATH = re.compile(r"[A-Za-z0-9._~%/-]+")


def unwrapped(html: str) -> str:
    """Return HTML without what lets names wrap."""
    return re.sub('<span style="white-space:nowrap">(.*?)</span>', r"\1", html.replace("<wbr>", ""))


class Markup(HTMLParser):
    """The elements, attributes and text of a piece of HTML; `foreign` is what our faces never write."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.foreign: list[str] = []
        self.elements: list[str] = []
        self._open: list[str] = []
        self._text: list[str] = []
        self.feed(unwrapped(html))
        self.close()
        self.foreign += [f"left open: {name}" for name in self._open]

    @property
    def text(self) -> str:
        return "\n".join(self._text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self._open.append(tag)
        if tag not in _ELEMENTS:
            self.foreign.append(f"<{tag}>")
        for name, value in attrs:
            text = value or ""
            is_foreign = name not in _ATTRIBUTES or (name == "data-opens" and not _PATH.fullmatch(text))
            if is_foreign or (name == "style" and ("url" in text or "@import" in text)):
                self.foreign.append(f"<{tag} {name}={value}>")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.foreign.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def handle_comment(self, data: str) -> None:
        self.foreign.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.foreign.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self.foreign.append(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self.foreign.append(f"<![{data}]>")


# What people have stored in message bodies, names and commit metadata to have it run in somebody else's browser.
ATTACKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' style='background:url(//x.example)' x='",
    "</td></tr></table><iframe src=//x.example>",
    "</code></div><style>*{display:none}</style>",
    "<!-- ",
    "<![CDATA[",
    "<?php",
    "&lt;script&gt;",
    "<a href='javascript:alert(1)'>",
    "\x1b]0;owned\x07\x1b[2J",
    "\u202egnp.exe",
)
