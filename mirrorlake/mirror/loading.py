"""Open a mirror from its settings: a file or a dictionary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake.config import find_settings, loads
from mirrorlake.config import load as load_config
from mirrorlake.mirror.mirror import Mirror
from mirrorlake.progress import Display, choose_display

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load(
    path: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = choose_display,
) -> Mirror:
    """Read a YAML settings file and return its mirror; connects to nothing yet (`spark`, `display`: see `Mirror`).

    Paths in the file are relative to it.

    Args:
        path: the file; a relative path is searched from the working directory upwards. By default the nearest
            `conf/mirror.yml`, or the only file in the nearest `conf/`.
        spark: see `Mirror`.
        display: see `Mirror`.

    Raises:
        ConfigError: there is no such file, or it has faults; the error names all of them.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
    """
    return Mirror(load_config(find_settings(path)), spark=spark, display=display)


def from_settings(
    settings: Mapping[str, Any],
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = choose_display,
) -> Mirror:
    """Return the mirror of settings in a dictionary of the same shape as the file (see `load`).

    Relative paths start at the working directory.

    Raises:
        ConfigError: the settings have faults; the error names all of them.

    Example:
        >>> from_settings({
        ...     "lake": {"root": "./lake"},
        ...     "clusters": {"a": {"bootstrap_servers": "a:9092"}, "b": {"bootstrap_servers": "b:9092"}},
        ...     "flows": [{"source": "a", "target": "b", "topics": "orders"}],
        ... })
        Mirror(a->b)
    """
    return Mirror(loads(json.dumps(settings)), spark=spark, display=display)
