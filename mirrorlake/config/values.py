"""Single values of the settings file, read from what people write: sizes, intervals, addresses, starts, policies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from pydantic_core import PydanticCustomError

from mirrorlake.config.faults import SettingsFault, did_you_mean, fault_error, finding_error
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.config.secrets import has_reference
from mirrorlake.errors import UsageError
from mirrorlake.model.patterns import PatternError, TopicPattern, parse_patterns
from mirrorlake.model.policy import (
    DEFAULT_SEPARATOR,
    DefaultPolicy,
    IdentityPolicy,
    ReplicationPolicy,
    TemplatePolicy,
    TopicNameError,
    is_legal_topic,
)

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_SIZE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_INTERVAL_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_INTERVAL_UNITS |= {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_INTERVAL_UNITS |= {f"{word}s": _INTERVAL_UNITS[word] for word in ("second", "minute", "hour", "day")}
_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})")


def size(value: Any) -> int:
    """Return a number of bytes from text such as `64 MiB`; the unit is mandatory."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = _SIZE_UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None or (number := int(float(match.group(1)) * unit)) <= 0:
        raise fault_error(
            f"{_show(value)} is not a size", 'write a number and a unit, like "64 MiB" (B, KiB, MiB, GiB, kB, MB, GB)'
        )
    return number


def interval(value: Any) -> timedelta:
    """Return a length of time from text such as `500ms`, `10s` or `15m`; the unit is mandatory."""
    match = _INTERVAL.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = _INTERVAL_UNITS.get(match.group(2)) if match else None
    if match is None or unit is None:
        raise fault_error(
            f"{_show(value)} is not an interval",
            'write a number and a unit, like "0s", "500ms", "15m" (ms, s, m, h, d)',
        )
    return timedelta(seconds=float(match.group(1)) * unit)


def length_of(value: str | timedelta) -> timedelta:
    """Return a length of time that a caller gave, as text such as `5 minutes` or as it is.

    Raises:
        UsageError: the text is not a length of time.
    """
    if isinstance(value, timedelta):
        return value
    try:
        return interval(value)
    except PydanticCustomError:
        raise UsageError(
            f"'{value}' is not a length of time", remedy='write a number and a unit, like "5 minutes"'
        ) from None


def moment(text: str) -> datetime:
    """Return a time that a caller wrote, in UTC. Raises UsageError: it is not an ISO 8601 time, or has no zone."""
    remedy = "write 2026-01-01T00:00:00Z"
    try:
        # Python 3.10 does not read the Z.
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise UsageError(f"'{text}' is not an ISO 8601 time", remedy=remedy) from None
    if found.tzinfo is None:
        raise UsageError(f"'{text}' has no time zone", remedy=remedy)
    return found.astimezone(timezone.utc)


def addresses(value: Any) -> tuple[str, ...]:
    """Return `host:port` addresses from one string or a list; references are checked when they are resolved."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise fault_error(f"{_show(value)} is not an address", 'write "host:9092" or a list of such')
    found = [part.strip() for text in texts for part in _commas(text) if part.strip()]
    if not found:
        raise fault_error("no address", 'write "host:9092" or a list of such')
    for address in found:
        match = _ADDRESS.fullmatch(address)
        if not has_reference(address) and not (match and 0 < int(match.group(2)) < 65536):
            hint = (
                "leave out the protocol; set security.protocol under client instead"
                if "://" in address
                else 'write "host:9092"'
            )
            raise fault_error(f"'{address}' is not a host:port", hint)
    return tuple(found)


def _commas(text: str) -> Iterable[str]:
    return [text] if has_reference(text) else text.split(",")


def patterns(value: Any, *, required: bool) -> TopicPattern:
    """Return a selection from one string or a list; each expression is known to compile."""
    if isinstance(value, TopicPattern):
        return value
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise fault_error(
            f"{_show(value)} is not a selection", 'write "orders, clicks.*" or a list; quote words such as "no" and "1"'
        )
    try:
        found = parse_patterns(texts, required=required)
        NameMatcher(found)
    except PatternError as error:
        raise fault_error(error.problem, error.remedy) from None
    return found


def auto_or_flag(value: Any) -> Literal["auto", True, False]:
    """Return a choice that may be left to mirrorlake, from `auto`, `true` or `false`."""
    if value == "auto" and isinstance(value, str):
        return "auto"
    if isinstance(value, bool):
        return value
    raise fault_error(f"{_show(value)} is none of auto, true and false", "write auto, true or false")


@dataclass(frozen=True, slots=True)
class Start:
    """Where landing a topic begins when nothing of it has been landed.

    Attributes:
        kind: earliest, latest or timestamp.
        timestamp: the first record's time or later, with its zone; None unless kind is timestamp.
    """

    kind: Literal["earliest", "latest", "timestamp"] = "earliest"
    timestamp: datetime | None = None

    @property
    def timestamp_ms(self) -> int | None:
        """Return the time in milliseconds since 1970 UTC, as Kafka counts."""
        return None if self.timestamp is None else round(self.timestamp.timestamp() * 1000)

    def plain(self) -> str | dict[str, str]:
        """Return the start as it is written in a settings file."""
        return self.kind if self.timestamp is None else {"timestamp": self.timestamp.isoformat()}


def start(value: Any) -> Start:
    """Return where landing begins from `earliest`, `latest` or `{timestamp: 2026-01-01T00:00:00Z}`."""
    if isinstance(value, Start):
        return value
    if value == "earliest":
        return Start("earliest")
    if value == "latest":
        return Start("latest")
    remedy = "write earliest, latest or {timestamp: 2026-01-01T00:00:00Z}"
    if not isinstance(value, dict) or set(value) != {"timestamp"}:
        if isinstance(value, str):
            remedy = did_you_mean(value, ["earliest", "latest"]) if value[:1] in "el" else remedy
        raise fault_error(f"{_show(value)} is not a start", remedy)
    text = value["timestamp"]
    try:
        # Python 3.10 does not read the Z.
        moment = text if isinstance(text, datetime) else datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", str(text)))
    except ValueError:
        raise fault_error(f"{_show(text)} is not an ISO 8601 time", remedy) from None
    if moment.tzinfo is None:
        raise fault_error(
            f"{_show(text)} has no time zone", f"write {moment.isoformat()}Z for UTC, or an offset such as +01:00"
        )
    return Start("timestamp", moment.astimezone(timezone.utc))


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """How remote topics are named, as written; `build` makes the policy.

    Attributes:
        kind: default, identity or template.
        template: the template's text; None unless kind is template.
        separator: what stands between the parts of a remote topic's name.
    """

    kind: Literal["default", "identity", "template"] = "default"
    template: str | None = None
    separator: str = DEFAULT_SEPARATOR

    def plain(self) -> str | dict[str, str]:
        """Return the policy as it is written in a settings file."""
        if self.template is not None:
            return {"template": self.template}
        return self.kind if self.separator == DEFAULT_SEPARATOR else {"name": self.kind, "separator": self.separator}

    def build(self, source: str) -> ReplicationPolicy:
        """Return the replication policy for a flow from `source`."""
        if self.template is not None:
            return TemplatePolicy(self.template)
        if self.kind == "identity":
            return IdentityPolicy(source, self.separator)
        return DefaultPolicy(self.separator)


def policy(value: Any) -> PolicyChoice:
    """Return the policy from `default`, `identity`, `{name: default, separator: _}` or `{template: "all.{topic}"}`."""
    if isinstance(value, PolicyChoice):
        return value
    if isinstance(value, dict) and value.keys() == {"name", "separator"}:
        return _with_separator(policy(value["name"]), value["separator"])
    if value == "default":
        return PolicyChoice("default")
    if value == "identity":
        return PolicyChoice("identity")
    remedy = 'write default, identity or {template: "all.{topic}"}'
    if isinstance(value, str):
        hint = did_you_mean(value, ["default", "identity"])
        raise fault_error(f"{_show(value)} is not a replication policy", hint if hint.startswith("did") else remedy)
    if not isinstance(value, dict) or set(value) != {"template"} or not isinstance(value["template"], str):
        raise fault_error(f"{_show(value)} is not a replication policy", remedy)
    try:
        TemplatePolicy(value["template"])
    except TopicNameError as error:
        raise fault_error(error.problem, error.remedy) from None
    return PolicyChoice("template", value["template"])


def _with_separator(choice: PolicyChoice, separator: Any) -> PolicyChoice:
    if choice.template is not None or not isinstance(separator, str) or not is_legal_topic(f"a{separator}b"):
        raise fault_error(
            f"{_show(separator)} is not a separator", "write one or a few of . _ - beside name: default or identity"
        )
    if not separator:
        raise fault_error("the separator is empty", "write one or a few of . _ -")
    return PolicyChoice(choice.kind, separator=separator)


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return f"a mapping with {', '.join(map(str, value)) or 'nothing in it'}"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"


def filled(value: Any) -> Any:
    """Return a mapping or list that has something in it."""
    if value in ([], {}):
        raise fault_error("there is nothing in it", "see conf/example.yml")
    return value


def whole(value: Any) -> Any:
    """Return digits as the number they are, so that `${env:LANES}` may stand for one."""
    return int(value) if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() else value


def flag(value: Any) -> bool:
    """Return a truth value; YAML 1.1 also reads `on`, `off`, `yes` and `no` as one."""
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise fault_error(f"{_show(value)} is neither true nor false", "write true or false")


def options(value: Any) -> dict[str, str]:
    """Return client options as text, which is how both clients take them."""
    if not isinstance(value, dict):
        raise fault_error("the value (hidden) stands where a mapping is expected", "write `name: value` lines below it")
    findings = [
        SettingsFault((key,), "the value (hidden) is neither text, number nor truth value", "write one value")
        for key, item in value.items()
        if not isinstance(item, str | int | float | bool)
    ]
    if findings:
        raise finding_error(*findings)
    return {str(key): str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}


def are_addresses(text: str) -> bool:
    """Return whether the text is one `host:port` or several with commas between."""
    matches = [_ADDRESS.fullmatch(part.strip()) for part in text.split(",")]
    return all(match is not None and 0 < int(match.group(2)) < 65536 for match in matches)
