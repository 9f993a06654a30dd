"""Settings of a flow's sync besides records: topic settings, partitions, ACLs, group positions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from mirrorlake.config import values
from mirrorlake.config.base import Exclusion, Flag, Interval, Settings, at_least
from mirrorlake.config.faults import SettingsFault, did_you_mean, raise_any
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.model.patterns import parse_patterns
from mirrorlake.model.topic_configs import DEFAULT_EXCLUDE_CONFIGS, RULES, ConfigSync

_PRINCIPAL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*:.+")


def _overrides(value: Any) -> dict[str, dict[str, str]]:
    """Return `{topic pattern: {setting: value}}` with values as text."""
    found = values.by_pattern(value, '{"orders.*": {retention.ms: 604800000}}')
    raise_any(
        SettingsFault((pattern, *fault.place), fault.problem, fault.remedy)
        for pattern, settings in found.items()
        for fault in unknown_settings(settings)
    )
    return {pattern: values.options(settings) for pattern, settings in found.items()}


def unknown_settings(settings: Any) -> list[SettingsFault]:
    """Return the faults of names that are not topic settings."""
    if not isinstance(settings, dict):
        return [SettingsFault((), "a mapping is expected", "write {retention.ms: 604800000}")]
    return [
        SettingsFault((name,), f"'{name}' is not a topic setting of Kafka", did_you_mean(str(name), RULES))
        for name in settings
        # Settings of a vendor's brokers are not in Kafka's list.
        if name not in RULES and not str(name).startswith("confluent.")
    ]


class SyncConfig(Settings):
    """Settings of a flow's sync on the target besides records."""

    groups: Flag = Field(default=True, description="positions of inactive consumer groups")
    groups_interval: Interval = Field(default=timedelta(seconds=10), description="time between two syncs of groups")
    configs: Flag = Field(default=True, description="topic configurations")
    configs_exclude: Exclusion = Field(default=DEFAULT_EXCLUDE_CONFIGS, description="topic settings to leave alone")
    configs_override: Annotated[dict[str, dict[str, str]], BeforeValidator(_overrides)] = Field(
        default_factory=dict, description="{topic pattern: {setting: value}} for the target"
    )
    acls: Flag = Field(default=False, description="ACLs of topics")
    acls_principals: dict[str, str] = Field(default_factory=dict, description="{source principal: target principal}")
    partitions: Flag = Field(default=True, description="partition counts, upwards")
    continuous: Flag = Field(default=True, description="correct configurations, partitions and ACLs while running")
    interval: Annotated[
        Interval, at_least(timedelta.resolution, "'0s' would read the clusters without a pause", "write 60s")
    ] = Field(default=timedelta(seconds=60), description="time between two corrections")

    @field_validator("acls_principals")
    @classmethod
    def _principals(cls, principals: dict[str, str]) -> dict[str, str]:
        findings = [
            SettingsFault((source,), f"'{name}' is not a principal", "write User:name")
            for source, target in principals.items()
            for name in (source, target)
            if not _PRINCIPAL.fullmatch(name)
        ]
        raise_any(findings)
        return principals

    @cached_property
    def config_sync(self) -> ConfigSync:
        """The rules for syncing topic settings."""
        return ConfigSync(
            enabled=self.configs, excluded=NameMatcher(self.configs_exclude).matches, overrides=self._overrides_of
        )

    @cached_property
    def _override_matchers(self) -> list[tuple[NameMatcher, Mapping[str, str]]]:
        return [(NameMatcher(parse_patterns(text)), settings) for text, settings in self.configs_override.items()]

    def _overrides_of(self, topic: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for matcher, settings in self._override_matchers:
            if matcher.matches(topic):
                found |= settings
        return found
