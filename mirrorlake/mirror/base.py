"""What the parts of the facade have in common: the wiring, the clock and the settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import SparkSession

from mirrorlake.config.schema.mirror import FlowConfig, MirrorConfig
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.lake.lake import Lake
from mirrorlake.mirror.runner import Runner
from mirrorlake.mirror.services import Wiring, utc_now
from mirrorlake.model.verify import VerifyReport
from mirrorlake.progress.bars import display_here
from mirrorlake.progress.board import Display


class Part:
    """The state that the parts of a `Mirror` share."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        spark: SparkSession | None = None,
        now: Callable[[], datetime] = utc_now,
        display: Callable[[], Display | None] = display_here,
    ) -> None:
        self._now = now
        self._wiring = Wiring(config, spark=spark, now=now, display=display)
        self._runner = Runner(self._wiring)
        self._verified: dict[str, tuple[VerifyReport, datetime]] = {}

    @property
    def config(self) -> MirrorConfig:
        """The settings; a running mirror adopts newer ones that were applied."""
        return self._wiring.config

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._wiring.spark

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._wiring.lake

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster."""
        return self._wiring.admin(alias)

    def _chosen(self, flow: str | None) -> tuple[FlowConfig, ...]:
        return self.config.flows if flow is None else (self.config.flow(flow),)
