"""Show a value in any host: Databricks, a Jupyter kernel, a terminal, a job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import tzinfo
from typing import Any

from mirrorlake.render import MAX_ROWS, Displayable, Sheet, Table


def show(value: Any, *, zone: tzinfo | None = None, rows: int | None = MAX_ROWS) -> None:
    """Show a value: `displayHTML` on Databricks, IPython's display in a kernel, else text.

    Other objects go to the host's own `display` (a DataFrame is a grid on Databricks), or are printed.

    Args:
        value: the value.
        zone: the zone of times; None for the machine's.
        rows: the maximum rows of each table; None shows all.

    Example:
        >>> ml.show(mirror.status(), rows=None)  # doctest: +SKIP
    """
    shell = running_shell()
    on_databricks = _injected(shell, "displayHTML")
    face = value.sheet() if isinstance(value, Displayable) else value
    if not isinstance(face, Sheet | Table):
        grid = _injected(shell, "display") if on_databricks else None
        (grid or _display(shell))(face)
    elif on_databricks:
        on_databricks(face.html(zone=zone, rows=rows))
    elif shell is None:
        sys.stdout.write(f"{face.text(zone=zone, rows=rows)}\n")
    else:
        bundle = {"text/plain": face.text(zone=zone, rows=rows), "text/html": face.html(zone=zone, rows=rows)}
        _display(shell)(bundle, raw=True)


def _display(shell: Any) -> Callable[..., object]:
    if shell is None:
        return lambda value: sys.stdout.write(f"{value}\n")
    from IPython.display import display

    shown: Callable[..., object] = display
    return shown


def running_shell() -> Any:
    """Return the running IPython, or None; IPython is not imported for this."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()


def _injected(shell: Any, name: str) -> Callable[[Any], object] | None:
    found = None if shell is None else shell.user_ns.get(name)
    return found if callable(found) else None
