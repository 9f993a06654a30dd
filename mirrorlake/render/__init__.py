"""How values show themselves: tables, badges, numbers with units, record content; the standard library only.

    from mirrorlake.render import badge, payload, table

    table("lag", ["partition", "verdict"], [("0", badge("behind"))]).html()

Everything that others wrote is escaped here, once: what `html()` returns is put on a page as it is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from mirrorlake.render.badge import Badge, Mood, badge
from mirrorlake.render.content import brief, clean, escape, headers, payload, payload_html
from mirrorlake.render.numbers import count, duration, moment, plural, rate, size
from mirrorlake.render.table import MOST_ROWS, Sheet, Shown, Table, cell, cell_html, table

__all__ = [
    "MOST_ROWS",
    "Badge",
    "Mood",
    "Sheet",
    "Shown",
    "Table",
    "badge",
    "brief",
    "cell",
    "cell_html",
    "clean",
    "count",
    "duration",
    "escape",
    "headers",
    "moment",
    "payload",
    "payload_html",
    "plural",
    "rate",
    "size",
    "table",
]


class _Callable(ModuleType):
    """`ml.show(value)` and the package `mirrorlake.render` have one name, and importing the package claims it: so it is called.

    The call goes to `mirrorlake.notebook`, which knows the surroundings and which nothing down here imports.
    """

    def __call__(self, value: Any, **options: Any) -> None:
        import_module("mirrorlake.notebook").show(value, **options)


sys.modules[__name__].__class__ = _Callable
