"""Floor 6: how results look in a notebook; IPython lives here and nowhere else.

    %load_ext mirrorlake.notebook

makes plans, verifications, translations and status rows print as tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlake.notebook.display import show
from mirrorlake.notebook.render import FORMATTERS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "show"]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register the HTML faces of mirrorlake's values; called by `%load_ext mirrorlake.notebook`."""
    if ipython.display_formatter is None:
        return
    html = ipython.display_formatter.formatters["text/html"]
    for kind, face in FORMATTERS.items():
        html.for_type(kind, face)
