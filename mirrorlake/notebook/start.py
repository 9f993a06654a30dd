"""Open the console and the set-up form; the widgets are imported only then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlake.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlake.mirror import Mirror
    from mirrorlake.notebook.console import Console
    from mirrorlake.notebook.setup import Setup


def console(mirror: Mirror, *, now: Callable[[], datetime] | None = None) -> Console:
    """Open the console of a mirror, which a notebook shows as a widget; `ml.setup` sets one up.

    Args:
        mirror: from `ml.load` or `ml.from_settings`.
        now: the clock; None for the machine's.

    Raises:
        UsageError: ipywidgets is not installed.

    Example:
        >>> ml.console(ml.load("conf/demo.yml"))  # doctest: +SKIP
    """
    _require_widgets("the console")
    from mirrorlake.mirror import utc_now
    from mirrorlake.notebook.console import Console

    return Console(mirror, now=now or utc_now)


def setup(path: str | Path | None = None, *, spark: SparkSession | None = None) -> Setup:
    """Open the set-up form of a settings file, which a notebook shows as a widget; the file may be new.

    Its `mirror` is the mirror of the settings that were applied.

    Args:
        path: the settings file; None for `conf/mirror.yml` in the nearest folder with a `conf/`.
        spark: the session to plan and apply with; None as for `ml.load`.

    Raises:
        UsageError: ipywidgets is not installed.
        ConfigError: the file has faults.

    Example:
        >>> ml.setup("conf/mirror.yml")  # doctest: +SKIP
    """
    _require_widgets("the set-up form")
    from mirrorlake.config import usual_settings
    from mirrorlake.notebook.setup import Setup

    return Setup(Path(path) if path is not None else usual_settings(), spark=spark)


def _require_widgets(what: str) -> None:
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        raise UsageError(
            f"{what} needs ipywidgets, which is not installed",
            consequence="everything it does is available as methods and commands, too",
            remedy="pip install 'mirrorlake[notebook]'",
        ) from None
