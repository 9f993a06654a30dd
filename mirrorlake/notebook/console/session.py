"""The state that the views of one console share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console.error_panel import ErrorPanel
from mirrorlake.notebook.console.pulse import Pulse
from mirrorlake.notebook.console.task_runner import TaskRunner
from mirrorlake.progress import Display
from mirrorlake.runtime import load_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Session:
    """What the views share. `mirror` is None until one is set up; `read_only` is why the console changes nothing, or "" if it may."""

    def __init__(
        self, mirror: Mirror | None, *, spark: SparkSession | None, now: Callable[[], datetime], read_only: str = ""
    ) -> None:
        load_pyspark()
        from pyspark.sql import SparkSession

        self.mirror = mirror
        # Spark's active session is visible on this thread only; worker threads would start another.
        self._spark = spark or SparkSession.getActiveSession()
        if mirror is not None and self._spark is not None:
            _ = mirror.spark
        self.now = now
        self.read_only = read_only
        self.errors = ErrorPanel(now)
        self.pulse = Pulse("kernel", now=now, beats=True)
        self.runner = TaskRunner(self.errors, arrived=self.pulse.arrived)
        self.opened: Callable[[str], None] = lambda _: None
        """Shows what a link names."""

    def open(self, config: MirrorConfig, *, display: Display | None = None) -> Mirror:
        """Return a mirror of these settings on the console's Spark session; `display` draws its progress."""
        spark = self._spark
        if spark is None and self.mirror is not None:
            # Starting a session on this thread would block the kernel for ten seconds.
            spark = self.mirror.standing_session()
        return Mirror(config, spark=spark) if display is None else Mirror(config, spark=spark, display=lambda: display)

    @property
    def flow_names(self) -> list[str]:
        return [flow.name for flow in self.mirror.flows] if self.mirror else []

    def follow(self, path: str) -> None:
        self.opened(path)

    def refuse(self) -> None:
        self.errors.show(SafetyError(self.read_only, consequence="nothing was changed"))

    def mirror_of(self, flow: str | None) -> Mirror:
        if self.mirror is None or not flow:
            raise UsageError("no flow is set up yet", remedy="set one up first")
        return self.mirror
