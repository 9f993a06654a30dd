"""How often positions are looked at, of which groups, and how long they are kept."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property

from pydantic import Field, field_validator

from mirrorlake.config.base import Exclusion, Interval, Settings
from mirrorlake.config.faults import fault_error
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.model.patterns import PatternError, TopicPattern


class SamplingConfig(Settings):
    """What a mirror records of its positions over time (table `positions`)."""

    every: Interval = Field(
        default=timedelta(seconds=30), description="time between two looks; 0s for none while running"
    )
    groups: Exclusion = Field(default=TopicPattern((".*",)), description="consumer groups whose positions are recorded")
    keep: Interval = Field(default=timedelta(days=90), description="how long they are kept")

    @field_validator("groups")
    @classmethod
    def _patterns_compile(cls, groups: TopicPattern) -> TopicPattern:
        try:
            NameMatcher(groups)
        except PatternError as error:
            raise fault_error(error.problem, error.remedy) from None
        return groups

    @field_validator("keep")
    @classmethod
    def _keeps_a_day(cls, keep: timedelta) -> timedelta:
        if keep < timedelta(days=1):
            raise fault_error("less than a day is kept", 'write "1d" or more')
        return keep

    @cached_property
    def group_selection(self) -> NameMatcher:
        """Return the matcher for consumer groups."""
        return NameMatcher(self.groups)
