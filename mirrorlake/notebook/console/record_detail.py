"""Show one record in full.

Anyone with write access to a topic controls its records: everything goes through `mirrorlake.render`, which escapes it.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape as escape_html

from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.records import BrowsedRecord
from mirrorlake.render import (
    breakable,
    clean,
    escape,
    format_size,
    format_time,
    hex_text,
    json_text,
    payload,
    payload_html,
    whole_text,
)

FORMATS = ("JSON", "Text", "Hex")
# The bytes shown of a value until the whole is requested.
_SHOWN = 4096
# Hexadecimal makes a page four times as large.
_MAX_HEX = 2**18
_PRE = (
    "max-height:28em;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere;margin:.3em 0;padding:.5em;"
    "border:1px solid var(--jp-border-color2,#999)"
)
_CELL = "text-align:left;vertical-align:top;padding:.1em .8em .1em 0;overflow-wrap:anywhere"


def value_html(data: bytes | None, form: str, *, whole: bool = False) -> str:
    """Return a value as JSON, text or hexadecimal, truncated without `whole`; a note gives the shown size."""
    if not data:
        return payload_html(data)
    shown = data if whole else data[:_SHOWN]
    if form == "Hex":
        shown = shown[:_MAX_HEX]
        text = hex_text(shown)
    else:
        # The limit may split a character.
        decoded = whole_text(shown if len(shown) == len(data) else shown.decode("utf-8", "ignore").encode())
        pretty = json_text(data) if form == "JSON" and len(shown) == len(data) else None
        text = decoded if pretty is None else "\n".join(map(clean, pretty.split("\n")))
    cut = (
        ""
        if len(shown) == len(data)
        else f"<div>… the first {format_size(len(shown))} of {format_size(len(data))}</div>"
    )
    # Non-printable characters are visible by now; line breaks remain.
    return f'<pre class="ml-record-value" tabindex="0" style="{_PRE}">{escape_html(text)}</pre>{cut}'


def head_html(record: BrowsedRecord, where: str) -> str:
    """Headers are in order, with duplicates."""
    time = "no timestamp" if record.time is None else format_time(record.time, precision="ms")
    rows = [
        ("where", f"{breakable(where)}: {breakable(record.topic)}-{record.partition}@{record.offset}"),
        ("timestamp", escape(time)),
        ("key", payload_html(record.key, 1000)),
    ]
    rows += [(f"header {breakable(name)}", payload_html(value, 1000)) for name, value in record.headers]
    rows += [] if record.headers else [("headers", "none")]
    size_of = "null" if record.value is None else "empty" if not record.value else format_size(len(record.value))
    rows.append(("value", escape(size_of)))
    lines = "".join(f'<tr><th style="{_CELL}">{name}</th><td style="{_CELL}">{value}</td></tr>' for name, value in rows)
    return f"<table>{lines}</table>"


def link_html(record: BrowsedRecord) -> str:
    """Return a link with which the browser saves the value's bytes."""
    name = escape(f"{record.topic}-{record.partition}@{record.offset}.bin")
    data = b64encode(record.value or b"").decode()
    return f'<a download="{name}" href="data:application/octet-stream;base64,{data}">Save the bytes</a>'


class RecordDetail(Panel):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._record: BrowsedRecord | None = None
        self._whole = False
        self.head = controls.html("record-head")
        self.form = controls.toggles("record-format", "Value as", FORMATS)
        self.value = controls.html("record-content")
        tip = "Show the whole value, with a link to save it"
        self.all = self.button("record-whole", "Show all", self.on_all, tip=tip)
        self.link = controls.html("record-link")
        self.widget = controls.column(self.head, self.form, self.value, controls.row(self.all, self.link))
        self.widget.add_class("ml-record")
        self.on_change(self._render, self.form)
        self.widget.layout.display = "none"

    def show(self, record: BrowsedRecord, where: str) -> None:
        self._record, self._whole = record, False
        self.head.value = head_html(record, where)
        is_json = record.value is not None and json_text(record.value) is not None
        is_text = payload(record.value, None)[:2] != "0x"
        self.form.value = "JSON" if is_json else "Text" if is_text else "Hex"
        self._render()
        self.widget.layout.display = None

    def clear(self) -> None:
        self._record = None
        self.widget.layout.display = "none"

    async def on_all(self) -> None:
        self._whole = True
        self._render()

    def _render(self) -> None:
        if self._record is None:
            return
        value = self._record.value
        self.value.value = value_html(value, self.form.value, whole=self._whole)
        self.all.layout.display = None if value and not self._whole else "none"
        self.link.value = link_html(self._record) if value and self._whole else ""
