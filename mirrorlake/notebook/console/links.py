"""Links into the console (`mirrorlake.render.link`): a path names what is shown, and opens it again.

status, topics, groups, …                     a tab
flow/<flow>                                   its status
topic/<cluster>/<topic>                       its page
table/<table>                                 its page
group/<flow>/<group>                          chosen among the flow's groups
passport/<cluster>/<topic>/<partition>/<offset>   a record, and what happened to it
"""

from __future__ import annotations


def slug(tab: str) -> str:
    """Return the path of a tab.

    >>> slug("Set up")
    'set-up'
    """
    return tab.lower().replace(" ", "-")
