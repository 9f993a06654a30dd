"""Links into the console: a path names what is shown, and opens it again.

status, topics, groups, …                     a tab
flow/<flow>                                   its status
topic/<cluster>/<topic>                       its page
table/<table>                                 its page
group/<flow>/<group>                          chosen among the flow's groups
passport/<cluster>/<topic>/<partition>/<offset>   a record, and what happened to it
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote


def link(*parts: Any) -> str:
    """Return the path that names what is shown.

    >>> link("topic", "east", "orders/eu")
    'topic/east/orders%2Feu'
    """
    return "/".join(quote(str(part), safe="") for part in parts)


def slug(tab: str) -> str:
    """Return the path of a tab.

    >>> slug("Set up")
    'set-up'
    """
    return tab.lower().replace(" ", "-")
