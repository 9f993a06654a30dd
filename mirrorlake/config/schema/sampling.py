"""How often positions are looked at, of which groups, and how long they are kept."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import Annotated

from pydantic import Field

from mirrorlake.config.base import Exclusion, Interval, Settings, at_least
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.model.patterns import TopicPattern


class SamplingConfig(Settings):
    """What a mirror records of its positions over time (table `positions`)."""

    every: Interval = Field(
        default=timedelta(seconds=30), description="time between two looks; 0s for none while running"
    )
    groups: Exclusion = Field(default=TopicPattern((".*",)), description="consumer groups whose positions are recorded")
    keep: Annotated[Interval, at_least(timedelta(days=1), "less than a day is kept", 'write "1d" or more')] = Field(
        default=timedelta(days=90), description="how long they are kept"
    )

    @cached_property
    def group_selection(self) -> NameMatcher:
        """Return the matcher for consumer groups."""
        return NameMatcher(self.groups)
