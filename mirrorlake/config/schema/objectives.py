"""What a flow must keep: how much may be lost with its source, and how soon its target serves instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from mirrorlake.config.base import Interval, Settings, at_least

_Objective = Annotated[Interval, at_least(timedelta(seconds=1), "no mirror keeps less than a second", 'write "30s"')]


class ObjectivesConfig(Settings):
    """Objectives of a flow (docs/objectives.md); without them nothing is judged."""

    rpo: _Objective | None = Field(
        default=None, description="the most that may be lost with the source, as the age of its oldest record"
    )
    rto: _Objective | None = Field(default=None, description="the longest time that a failover may take")
