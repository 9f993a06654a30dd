"""The console: set up, watch and browse a mirror from a notebook, in core ipywidgets and our own table.

    ml.console()          # set a mirror up
    ml.console(mirror)    # watch it, explore its groups, browse its records, add a flow

The views only show: a button makes a public call that works without a browser.
Every control has the class `ml-<name>`, for styles and for tests in a browser; the name is the first argument where it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlake.mirror import Mirror
    from mirrorlake.notebook.console.window import Console

__all__ = ["console"]


def console(
    mirror: Mirror | None = None, *, spark: SparkSession | None = None, now: Callable[[], datetime] | None = None
) -> Console:
    """Open the console of a mirror, which a notebook shows as a widget; without a mirror, set one up.

    Args:
        mirror: from `ml.load` or `ml.from_settings`; None to start without one.
        spark: the session for a mirror set up in the console; None as for `ml.load`.
        now: the clock; None for the machine's.

    Raises:
        UsageError: ipywidgets is not installed.

    Example:
        >>> ml.console(ml.load("conf/demo.yml"))  # doctest: +SKIP
    """
    try:
        import ipywidgets  # first, for a clear error instead of a traceback
    except ImportError:
        raise UsageError(
            "the console needs ipywidgets, which is not installed",
            consequence="everything it does is available as methods and commands, too",
            remedy="pip install 'mirrorlake[notebook]'",
        ) from None
    from mirrorlake.mirror import utc_now
    from mirrorlake.notebook.console.window import Console

    return Console(mirror, spark=spark, now=now or utc_now)
