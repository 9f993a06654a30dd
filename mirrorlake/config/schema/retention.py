"""How long the relay of a source keeps the records of a topic; without it for ever."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, model_validator

from mirrorlake.config.base import Flag, Interval, Settings, Size, at_least
from mirrorlake.config.faults import SettingsFault, fault_error, finding_error, raise_any
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.model.patterns import PatternError, parse_patterns


class RetentionConfig(Settings):
    """What may leave the relay of some topics: records past either bound, once every flow has sent them."""

    age: Annotated[Interval, at_least(timedelta(hours=1), "less than an hour is kept", 'write "1h" or more')] | None = (
        Field(default=None, description="how old a record may become, by its timestamp")
    )
    bytes: Size | None = Field(default=None, description="how large the files of one partition may become")
    proven: Flag = Field(default=False, description="only what verify has proven on every target may leave")

    @model_validator(mode="after")
    def _says_when(self) -> RetentionConfig:
        if self.age is None and self.bytes is None:
            raise finding_error(SettingsFault((), "no bound", "write {age: 90d}, {bytes: 500 GB} or both"))
        return self


def by_pattern(value: Any) -> Any:
    """Check the topic patterns of `{pattern: {age: 90d}}`."""
    if not isinstance(value, dict):
        raise fault_error("a mapping is expected", 'write {"clicks.*": {age: 90d}}')
    findings = []
    for pattern in value:
        try:
            NameMatcher(parse_patterns(str(pattern)))
        except PatternError as error:
            findings.append(SettingsFault((pattern,), error.problem, error.remedy))
    raise_any(findings)
    return {str(pattern): settings for pattern, settings in value.items()}


def retention_of(retention: Mapping[str, RetentionConfig], topic: str) -> RetentionConfig | None:
    """Find the retention by the first pattern that matches a topic; None keeps it for ever."""
    for pattern, settings in retention.items():
        if NameMatcher(parse_patterns(pattern)).matches(topic):
            return settings
    return None
