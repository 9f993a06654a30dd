"""The base of all methods of a `Mirror`: the context, and the flows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from mirrorlake import verify
from mirrorlake.config import mirror_sheet
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.context import Context, utc_now
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import Lake
from mirrorlake.mirror.flow import FlowHandle, runner_of
from mirrorlake.progress import Display, choose_display
from mirrorlake.render import Displayable, Sheet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlake.mirror.runner import Runner
    from mirrorlake.verify import Verifications

P = ParamSpec("P")
R = TypeVar("R")


class MirrorBase(Displayable):
    """The context of a mirror, and its construction (see `Mirror`)."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        spark: SparkSession | None = None,
        now: Callable[[], datetime] = utc_now,
        display: Callable[[], Display | None] = choose_display,
    ) -> None:
        self._context = Context(config, spark=spark, now=now, display=display)

    def __repr__(self) -> str:
        return f"Mirror({', '.join(flow.name for flow in self.config.flows)})"

    def sheet(self) -> Sheet:
        """Return the settings; reads no cluster and no table (see `Mirror.status`)."""
        return mirror_sheet(self.config)

    def __getitem__(self, flow: str) -> FlowHandle:
        return FlowHandle(self._context, self.config.flow(flow).name)

    @property
    def flows(self) -> tuple[FlowHandle, ...]:
        """The flows in the order of the settings."""
        return tuple(FlowHandle(self._context, flow.name) for flow in self.config.flows)

    @property
    def config(self) -> MirrorConfig:
        """The settings; a running mirror adopts newer ones that were applied."""
        return self._context.config

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._context.spark

    def standing_session(self) -> SparkSession | None:
        """Return the Spark session if one exists, or None if `spark` would start it."""
        return self._context.standing_session()

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._context.lake

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster."""
        return self._context.admin(alias)

    @property
    def _runner(self) -> Runner:
        return runner_of(self._context)

    @property
    def _verifications(self) -> Verifications:
        return self._context.shared(verify.Verifications)


def of_flow(method: Callable[Concatenate[FlowHandle, P], R]) -> Callable[Concatenate[MirrorBase, str, P], R]:
    """Turn a method of a flow into one of the mirror, with the flow's name before its arguments."""

    def call(mirror: MirrorBase, flow: str, *arguments: P.args, **options: P.kwargs) -> R:
        return method(mirror[flow], *arguments, **options)

    update_wrapper(call, method)
    signature = inspect.signature(method)
    itself, *others = signature.parameters.values()
    name = inspect.Parameter("flow", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
    # The signature that `help` shows.
    call.__signature__ = signature.replace(parameters=[itself, name, *others])  # type: ignore[attr-defined]
    # The type of a callable cannot name its first two arguments.
    return cast("Callable[Concatenate[MirrorBase, str, P], R]", call)
