"""The facade: one `Mirror` a settings file, with a verb for each command; its parts are one file each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.config.display import mirror_sheet
from mirrorlake.config.load import load as load_config
from mirrorlake.config.load import loads
from mirrorlake.mirror.checking import Checking
from mirrorlake.mirror.flow import FlowHandle
from mirrorlake.mirror.questions import Asking
from mirrorlake.mirror.running import Moving
from mirrorlake.mirror.setting_up import SettingUp
from mirrorlake.progress.bars import display_here
from mirrorlake.progress.board import Display
from mirrorlake.render import Sheet, Shown

__all__ = ["Mirror", "from_settings", "load"]


class Mirror(SettingUp, Moving, Checking, Asking, Shown):
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

    def __repr__(self) -> str:
        return f"Mirror({', '.join(flow.name for flow in self.config.flows)})"

    def sheet(self) -> Sheet:
        """Return the settings; no cluster and no table is asked (see `Mirror.status`)."""
        return mirror_sheet(self.config)

    def __getitem__(self, flow: str) -> FlowHandle:
        return FlowHandle(self, self.config.flow(flow))

    @property
    def flows(self) -> tuple[FlowHandle, ...]:
        """The flows in the order of the settings."""
        return tuple(FlowHandle(self, flow) for flow in self.config.flows)


def load(
    path: str | Path, *, spark: SparkSession | None = None, display: Callable[[], Display | None] = display_here
) -> Mirror:
    """Read a settings file and return its mirror; connects to nothing yet.

    Args:
        path: the YAML file.
        spark: see `Mirror`.
        display: see `Mirror`.

    Raises:
        ConfigError: the file has faults; all of them are named.
    """
    return Mirror(load_config(path), spark=spark, display=display)


def from_settings(
    settings: Mapping[str, Any],
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = display_here,
) -> Mirror:
    """Return the mirror of settings given as a dictionary of the same shape as the file.

    Args:
        settings: the settings.
        spark: see `Mirror`.
        display: see `Mirror`.

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
