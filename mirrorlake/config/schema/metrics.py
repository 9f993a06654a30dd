"""Where a running mirror serves its metrics, and how many."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, field_validator

from mirrorlake.config.base import Count, Flag, Interval, Settings, at_least
from mirrorlake.config.faults import fault_error


class MetricsConfig(Settings):
    """What a running mirror exports to Prometheus (docs/metrics.md)."""

    port: Annotated[Count, Field(le=65_535)] | None = Field(
        default=None, description="the port of /metrics; none is served without it"
    )
    address: str = Field(default="127.0.0.1", description="the address to listen at")
    per_partition: Flag = Field(default=True, description="a series for each partition, or only for each topic")
    every: Annotated[
        Interval, at_least(timedelta(seconds=5), "less than 5 s between two looks at the tables", 'write "30s" or more')
    ] = Field(default=timedelta(seconds=60), description="time between two looks at the tables")

    @field_validator("address", mode="before")
    @classmethod
    def _is_address(cls, address: Any) -> str:
        text = str(address)
        if not text or any(sign in text for sign in "/ ") or text.count(":") == 1:
            raise fault_error(
                f"'{text}' is not an address to listen at",
                "write 127.0.0.1, or 0.0.0.0 for every network; the port is `port`",
            )
        return text
