"""How often a running mirror keeps its lake small, and how long readers may still need what was rewritten."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from mirrorlake.config.base import Interval, Settings, Superseded, at_least


class MaintenanceConfig(Settings):
    """Upkeep of a lake in a folder (docs/maintenance.md)."""

    superseded: ClassVar = {"patience": Superseded("max_wait_for_flows")}

    every: Interval = Field(
        default=timedelta(minutes=5), description="time between two passes; 0s for none while running"
    )
    max_wait_for_flows: Interval = Field(
        default=timedelta(days=1),
        description="how long files wait for a flow that stands still before they are rewritten",
    )
    keep_removed: Annotated[
        Interval, at_least(timedelta(hours=1), "a reader may need a file for an hour", 'write "1h" or more')
    ] = Field(default=timedelta(hours=6), description="how long rewritten files stay on disk for who reads them")
    keep_log: Annotated[
        Interval, at_least(timedelta(minutes=5), "a reader may need the log for minutes", 'write "5m" or more')
    ] = Field(default=timedelta(minutes=10), description="how long commits stay in the tables' logs")
    replay_window: Interval = Field(
        default=timedelta(0), description="records younger than this never leave a relay, whatever `retention` says"
    )
