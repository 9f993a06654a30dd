"""Settings of a running mirror's other tasks: maintenance of the lake, metrics, samples of positions, verification."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, field_validator

from mirrorlake.config.base import Count, Exclusion, Flag, Interval, Settings, at_least
from mirrorlake.config.faults import fault_error
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.model.patterns import TopicPattern


class MaintenanceConfig(Settings):
    """Maintenance of a lake in a folder (docs/maintenance.md)."""

    every: Interval = Field(
        default=timedelta(minutes=5), description="time between two passes; 0s for none while running"
    )
    max_wait_for_flows: Interval = Field(
        default=timedelta(days=1),
        description="how long files wait for a flow that sends nothing before they are rewritten",
    )
    keep_removed: Annotated[
        Interval,
        at_least(timedelta(hours=1), "a reader may need it for an hour", 'write "1h" or more'),
    ] = Field(default=timedelta(hours=6), description="how long rewritten files stay on disk for their readers")
    keep_log: Annotated[
        Interval,
        at_least(timedelta(minutes=5), "a reader may need it for minutes", 'write "5m" or more'),
    ] = Field(default=timedelta(minutes=10), description="how long commits stay in the tables' logs")
    replay_window: Interval = Field(
        default=timedelta(0), description="records younger than this never leave a relay, whatever `retention` says"
    )


class MetricsConfig(Settings):
    """Metrics of a running mirror for Prometheus (docs/metrics.md)."""

    port: Annotated[Count, Field(le=65_535)] | None = Field(
        default=None, description="the port of /metrics; none is served without it"
    )
    address: str = Field(default="127.0.0.1", description="the address to listen at")
    per_partition: Flag = Field(default=True, description="a series for each partition, or only for each topic")
    every: Annotated[
        Interval, at_least(timedelta(seconds=5), "less than 5 s between two reads of the tables", 'write "30s" or more')
    ] = Field(default=timedelta(seconds=60), description="time between two reads of the tables")

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


class SamplingConfig(Settings):
    """Samples of a mirror's positions over time (table `positions`)."""

    every: Interval = Field(
        default=timedelta(seconds=30), description="time between two samples; 0s for none while running"
    )
    groups: Exclusion = Field(default=TopicPattern((".*",)), description="consumer groups whose positions are recorded")
    keep: Annotated[
        Interval, at_least(timedelta(days=1), "less than a day of samples is stored", 'write "1d" or more')
    ] = Field(default=timedelta(days=90), description="how long samples are stored")

    @cached_property
    def group_selection(self) -> NameMatcher:
        """Return the matcher for consumer groups."""
        return NameMatcher(self.groups)


class VerifyConfig(Settings):
    """Verification by a running mirror (table `proofs`)."""

    every: Interval = Field(
        default=timedelta(0),
        description="time between two verifications of new records; 0s for none while running",
    )
