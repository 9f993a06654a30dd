"""Settings of notifications: who gets which changes (docs/notifications.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from mirrorlake.config import secrets
from mirrorlake.config.base import Interval, Settings, at_least
from mirrorlake.config.faults import SettingsFault, fault_error, raise_any
from mirrorlake.errors import ConfigError, Fault

NoticeKind = Literal["verdict", "objective", "parked", "lost", "quarantined"]
_KINDS: tuple[NoticeKind, ...] = ("verdict", "objective", "parked", "lost", "quarantined")
_PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"


class ReceiverConfig(Settings):
    """One receiver of notifications. Its address is a secret: who knows it may write there.

    Example:
        >>> ReceiverConfig(template="slack", url="${env:SLACK_URL}").title
        'slack'
    """

    template: Literal["json", "slack", "pagerduty"] = Field(default="json", description="the shape of a message")
    name: str | None = Field(default=None, description="the receiver's name in log and doctor; the template without it")
    url: str | None = Field(default=None, description="the webhook's address, a reference; PagerDuty's own without it")
    routing_key: str | None = Field(default=None, description="PagerDuty's integration key, a reference")
    on: tuple[NoticeKind, ...] = Field(default=_KINDS, min_length=1, description="the kinds of changes it gets")
    flows: tuple[str, ...] = Field(default=(), description="the flows whose changes it gets; all without it")
    min_interval: Annotated[
        Interval, at_least(timedelta(seconds=1), "a flow that flaps would send without end", 'write "1s" or more')
    ] = Field(default=timedelta(minutes=2), description="the shortest time between two messages of one kind and flow")

    @field_validator("url", "routing_key")
    @classmethod
    def _by_reference(cls, value: str | None) -> str | None:
        if value is not None and not secrets.is_bare_reference(value):
            raise fault_error("the value (hidden) stands in the file", "write ${env:NAME} or ${secret:scope/key}")
        return value

    @model_validator(mode="after")
    def _has_address(self) -> ReceiverConfig:
        findings = []
        if self.template == "pagerduty":
            if self.routing_key is None:
                findings.append(SettingsFault(("routing_key",), "PagerDuty needs it", "write ${env:NAME} there"))
        elif self.url is None:
            findings.append(SettingsFault(("url",), "there is no address", "write ${env:NAME} there"))
        raise_any(findings)
        return self

    @property
    def title(self) -> str:
        """The receiver's name."""
        return self.name or self.template

    def address(self) -> str:
        """Return the address with references resolved.

        Raises:
            ConfigError: a reference cannot be resolved, or the address is none of HTTP.
        """
        address = _PAGERDUTY if self.url is None else self.resolved(self.url, "url")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            problem = "the value (hidden) is not an address"
            raise ConfigError([Fault(self.file, f"{self.place}.url", problem, "put https://host/path there")])
        return address

    def key(self) -> str:
        """Return PagerDuty's integration key, "" for other templates.

        Raises:
            ConfigError: the reference cannot be resolved.
        """
        return "" if self.routing_key is None else self.resolved(self.routing_key, "routing_key")
