"""Names in tables that the page of `mirrorlake console` opens: a link there, and plain text anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


def link(*parts: Any) -> str:
    """Return the path by which the page shows something (docs/console.md#the-page).

    >>> link("topic", "east", "orders/eu")
    'topic/east/orders%2Feu'
    """
    return "/".join(quote(str(part), safe="") for part in parts)


@dataclass(frozen=True, slots=True)
class LinkedText:
    text: str
    path: str

    def __str__(self) -> str:
        return self.text
