"""The facade: one `Mirror` a settings file, with a method for each command; services do the work."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake.config import find_settings, loads
from mirrorlake.config import load as load_config
from mirrorlake.mirror.calls.check import CheckCalls
from mirrorlake.mirror.calls.look import LookCalls
from mirrorlake.mirror.calls.recover import RecoverCalls
from mirrorlake.mirror.calls.run import RunCalls
from mirrorlake.mirror.calls.set_up import SetUpCalls
from mirrorlake.progress import Display, display_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Mirror(SetUpCalls, RunCalls, CheckCalls, RecoverCalls, LookCalls):
    """Everything that one settings file describes.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.
        display: makes what shows the progress of long work: by default bars in a notebook and in a terminal, else log lines;
            `lambda: None` shows nothing.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
        >>> mirror.plan()  # doctest: +SKIP
        >>> mirror.run(once=True)  # doctest: +SKIP
        >>> mirror["east->central"].verify().equal  # doctest: +SKIP
        True
    """


def load(
    path: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = display_here,
) -> Mirror:
    """Read a YAML file of settings and return its mirror; connects to nothing yet (`spark`, `display`: see `Mirror`).

    Paths in the file are relative to it.

    Args:
        path: the file; a relative path is looked for from the working directory upwards. Without one it is the nearest
            `conf/mirror.yml`, or the only file in the nearest `conf/`.
        spark: see `Mirror`.
        display: see `Mirror`.

    Raises:
        ConfigError: there is no such file, or it has faults; all of them are named.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
    """
    return Mirror(load_config(find_settings(path)), spark=spark, display=display)


def from_settings(
    settings: Mapping[str, Any],
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = display_here,
) -> Mirror:
    """Return the mirror of settings given as a dictionary of the same shape as the file (see `load`).

    Relative paths start at the working directory.

    Raises:
        ConfigError: the settings have faults; all of them are named.

    Example:
        >>> from_settings({
        ...     "lake": {"root": "./lake"},
        ...     "clusters": {"a": {"bootstrap_servers": "a:9092"}, "b": {"bootstrap_servers": "b:9092"}},
        ...     "flows": [{"source": "a", "target": "b", "topics": "orders"}],
        ... })
        Mirror(a->b)
    """
    return Mirror(loads(json.dumps(settings)), spark=spark, display=display)
