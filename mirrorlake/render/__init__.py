"""How values show themselves: tables, badges, numbers with units, record content; the standard library only.

    from mirrorlake.render import badge, payload, table

    table("lag", ["partition", "verdict"], [("0", badge("behind"))]).html()

Everything that others wrote is escaped here, once: what `html()` returns is put on a page as it is.
"""

from __future__ import annotations

from mirrorlake.render.badge import Badge, Mood, badge
from mirrorlake.render.content import brief, clean, escape, headers, middle, payload, payload_html
from mirrorlake.render.encoder import by_fields, document
from mirrorlake.render.numbers import count, duration, moment, plural, size
from mirrorlake.render.svg_chart import COLOURS, MOST_POINTS, Line, chart
from mirrorlake.render.table import MOST_ROWS, JsonShown, Sheet, Shown, Table, cell, cell_html, condensed, table
from mirrorlake.render.whole import hex_text, json_text, whole_text

__all__ = [
    "COLOURS",
    "MOST_POINTS",
    "MOST_ROWS",
    "Badge",
    "JsonShown",
    "Line",
    "Mood",
    "Sheet",
    "Shown",
    "Table",
    "badge",
    "brief",
    "by_fields",
    "cell",
    "cell_html",
    "chart",
    "clean",
    "condensed",
    "count",
    "document",
    "duration",
    "escape",
    "headers",
    "hex_text",
    "json_text",
    "middle",
    "moment",
    "payload",
    "payload_html",
    "plural",
    "size",
    "table",
    "whole_text",
]
