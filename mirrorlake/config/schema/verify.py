"""Whether a mirror that runs proves what it mirrors."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from mirrorlake.config.base import Interval, Settings


class VerifyConfig(Settings):
    """What a running mirror proves by itself (table `proofs`)."""

    every: Interval = Field(
        default=timedelta(0),
        description="time between two verifications of what came meanwhile; 0s for none while running",
    )
