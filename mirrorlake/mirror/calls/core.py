"""What all calls of a `Mirror` share: its settings, its context, and its services."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.config import mirror_sheet
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.context import Context, utc_now
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import Lake
from mirrorlake.mirror.composition import Services
from mirrorlake.mirror.flow import FlowHandle
from mirrorlake.progress import Display, display_here
from mirrorlake.render import Sheet, Shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CoreCalls(Shown):
    """The settings, context and services of a mirror, and how one is made (see `Mirror`)."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        spark: SparkSession | None = None,
        now: Callable[[], datetime] = utc_now,
        display: Callable[[], Display | None] = display_here,
    ) -> None:
        self._context = Context(config, spark=spark, now=now, display=display)
        self._services = Services(self._context)

    def __repr__(self) -> str:
        return f"Mirror({', '.join(flow.name for flow in self.config.flows)})"

    def sheet(self) -> Sheet:
        """Return the settings; no cluster and no table is asked (see `Mirror.status`)."""
        return mirror_sheet(self.config)

    def __getitem__(self, flow: str) -> FlowHandle:
        return FlowHandle(self._services, self.config.flow(flow).name)

    @property
    def flows(self) -> tuple[FlowHandle, ...]:
        """The flows in the order of the settings."""
        return tuple(FlowHandle(self._services, flow.name) for flow in self.config.flows)

    @property
    def config(self) -> MirrorConfig:
        """The settings; a running mirror adopts newer ones that were applied."""
        return self._context.config

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._context.spark

    def standing_session(self) -> SparkSession | None:
        """Return the Spark session where there is one already; None where `spark` would start it."""
        return self._context.standing_session()

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._context.lake

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster."""
        return self._context.admin(alias)
