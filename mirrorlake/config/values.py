"""Parse single values of the settings file: sizes, intervals, addresses, starts, policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from mirrorlake.config.faults import SettingsFault, did_you_mean, fault_error, raise_any, shown
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

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_SECONDS |= {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_SECONDS |= {f"{word}s": _SECONDS[word] for word in ("second", "minute", "hour", "day")}
# A thousand years: Python's `datetime` reaches not much further back.
_LONGEST_S = 1000 * 365 * 86400
_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})")


def _quantity(value: Any, units: Mapping[str, float]) -> float | None:
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match.group(1)) * units[match.group(2)] if match and match.group(2) in units else None


def size(value: Any) -> int:
    """Parse a number of bytes from text such as `64 MiB`; the unit is mandatory."""
    number = _quantity(value.lower() if isinstance(value, str) else value, _BYTES)
    if number is None or int(number) <= 0:
        remedy = 'write a number and a unit, like "64 MiB" (B, KiB, MiB, GiB, kB, MB, GB)'
        raise fault_error(f"{shown(value)} is not a size", remedy)
    return int(number)


def interval(value: Any) -> timedelta:
    """Parse an interval from text such as `500ms`, `10s` or `15m`; the unit is mandatory."""
    seconds = seconds_of(value)
    if seconds is None:
        remedy = 'write a number and a unit, like "0s", "500ms", "15m" (ms, s, m, h, d)'
        raise fault_error(f"{shown(value)} is not an interval", remedy)
    return timedelta(seconds=seconds)


def seconds_of(text: Any) -> float | None:
    """Return the seconds of an interval such as `5 minutes`, or None if it is none or exceeds a thousand years."""
    seconds = _quantity(text, _SECONDS)
    return seconds if seconds is not None and seconds <= _LONGEST_S else None


def length_of(value: str | timedelta) -> timedelta:
    """Return a caller's interval, given as text such as `5 minutes` or as a `timedelta`."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else seconds_of(value)
    if seconds is None:
        remedy = 'write a number and a unit, like "5 minutes"'
        raise UsageError(f"'{value}' is not a length of time", remedy=remedy)
    return value if isinstance(value, timedelta) else timedelta(seconds=seconds)


_EXAMPLE = "2026-01-01T00:00:00Z"


def iso_time(text: Any) -> datetime:
    """Parse a time in ISO 8601, with a zone if the text has one. Raises ValueError: it is none."""
    # Python 3.10 does not read the Z.
    return text if isinstance(text, datetime) else datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", str(text)))


def _texts(value: Any, what: str, remedy: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise fault_error(f"{shown(value)} is not {what}", remedy)
    return list(texts)


def addresses(value: Any) -> tuple[str, ...]:
    """Parse `host:port` addresses from one string or a list; references are checked after they are resolved."""
    texts = _texts(value, "an address", _HOST_AND_PORT)
    parts = [part for text in texts for part in ([text] if has_reference(text) else text.split(","))]
    found = [part.strip() for part in parts if part.strip()]
    if not found:
        raise fault_error("no address", _HOST_AND_PORT)
    for address in found:
        if not has_reference(address) and not are_addresses(address):
            hint = "leave out the protocol; set security.protocol under client instead"
            raise fault_error(f"'{address}' is not a host:port", hint if "://" in address else 'write "host:9092"')
    return tuple(found)


_HOST_AND_PORT = 'write "host:9092" or a list of such'


def are_addresses(text: str) -> bool:
    matches = [_ADDRESS.fullmatch(part.strip()) for part in text.split(",")]
    return all(match is not None and 0 < int(match.group(2)) < 65536 for match in matches)


def patterns(value: Any, *, required: bool) -> TopicPattern:
    """Parse a selection from one string or a list; each expression compiles."""
    if isinstance(value, TopicPattern):
        return value
    texts = _texts(value, "a selection", 'write "orders, clicks.*" or a list; quote words such as "no" and "1"')
    try:
        found = parse_patterns(texts, required=required)
        NameMatcher(found)
    except PatternError as error:
        raise fault_error(error.problem, error.remedy) from None
    return found


def by_pattern(value: Any, example: str) -> dict[str, Any]:
    """Return `{topic pattern: value}`; each pattern compiles."""
    if not isinstance(value, dict):
        raise fault_error("a mapping is expected", f"write {example}")
    findings = []
    for pattern in value:
        try:
            NameMatcher(parse_patterns(str(pattern)))
        except PatternError as error:
            remedy = error.remedy or "write them like `topics` of a flow"
            findings.append(SettingsFault((pattern,), error.problem, remedy))
    raise_any(findings)
    return {str(pattern): item for pattern, item in value.items()}


def auto_or_flag(value: Any) -> Literal["auto", True, False]:
    if isinstance(value, bool):
        return value
    if value == "auto":
        return "auto"
    raise fault_error(f"{shown(value)} is none of auto, true and false", "write auto, true or false")


@dataclass(frozen=True, slots=True)
class Start:
    """The start of landing a topic without landed records; `timestamp`: at the first record of this time or later."""

    kind: Literal["earliest", "latest", "timestamp"] = "earliest"
    timestamp: datetime | None = None

    @property
    def timestamp_ms(self) -> int | None:
        """The time in milliseconds since 1970 UTC, as in Kafka."""
        return None if self.timestamp is None else round(self.timestamp.timestamp() * 1000)

    def plain(self) -> str | dict[str, str]:
        return self.kind if self.timestamp is None else {"timestamp": self.timestamp.isoformat()}


def start(value: Any) -> Start:
    """Parse a start: `earliest`, `latest` or `{timestamp: 2026-01-01T00:00:00Z}`."""
    if isinstance(value, Start):
        return value
    if value in ("earliest", "latest"):
        return Start(value)
    remedy = f"write earliest, latest or {{timestamp: {_EXAMPLE}}}"
    if not isinstance(value, dict) or set(value) != {"timestamp"}:
        if isinstance(value, str) and value[:1] in "el":
            remedy = did_you_mean(value, ["earliest", "latest"])
        raise fault_error(f"{shown(value)} is not a start", remedy)
    text = value["timestamp"]
    try:
        found = iso_time(text)
    except ValueError:
        raise fault_error(f"{shown(text)} is not an ISO 8601 time", remedy) from None
    if found.tzinfo is None:
        remedy = f"write {found.isoformat()}Z for UTC, or an offset such as +01:00"
        raise fault_error(f"{shown(text)} has no time zone", remedy)
    return Start("timestamp", found.astimezone(timezone.utc))


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The naming of remote topics, as written; `separator` is between the parts of a name."""

    kind: Literal["default", "identity", "template"] = "default"
    template: str | None = None
    separator: str = DEFAULT_SEPARATOR

    def plain(self) -> str | dict[str, str]:
        if self.template is not None:
            return {"template": self.template}
        return self.kind if self.separator == DEFAULT_SEPARATOR else {"name": self.kind, "separator": self.separator}

    def build(self, source: str) -> ReplicationPolicy:
        if self.template is not None:
            return TemplatePolicy(self.template)
        if self.kind == "identity":
            return IdentityPolicy(source, self.separator)
        return DefaultPolicy(self.separator)


def policy(value: Any) -> PolicyChoice:
    """Parse a policy: `default`, `identity`, `{name: default, separator: _}` or `{template: "all.{topic}"}`."""
    if isinstance(value, PolicyChoice):
        return value
    if value in ("default", "identity"):
        return PolicyChoice(value)
    if isinstance(value, dict) and value.keys() == {"name", "separator"}:
        return _with_separator(policy(value["name"]), value["separator"])
    if not isinstance(value, dict) or set(value) != {"template"} or not isinstance(value["template"], str):
        hint = did_you_mean(value, ["default", "identity"]) if isinstance(value, str) else ""
        remedy = hint if hint.startswith("did") else 'write default, identity or {template: "all.{topic}"}'
        raise fault_error(f"{shown(value)} is not a replication policy", remedy)
    try:
        TemplatePolicy(value["template"])
    except TopicNameError as error:
        raise fault_error(error.cause, error.remedy) from None
    return PolicyChoice("template", value["template"])


def _with_separator(choice: PolicyChoice, separator: Any) -> PolicyChoice:
    remedy = "write one or a few of . _ -"
    if choice.template is not None or not isinstance(separator, str) or not is_legal_topic(f"a{separator}b"):
        raise fault_error(f"{shown(separator)} is not a separator", f"{remedy} beside name: default or identity")
    if not separator:
        raise fault_error("the separator is empty", remedy)
    return PolicyChoice(choice.kind, separator=separator)


def filled(value: Any) -> Any:
    if value in ([], {}):
        raise fault_error("it is empty", "see conf/example.yml")
    return value


def whole(value: Any) -> Any:
    """Return digits as a number, so that `${env:LANES}` may be one."""
    return int(value) if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() else value


def flag(value: Any) -> bool:
    """Parse a truth value; YAML 1.1 also reads `on`, `off`, `yes` and `no` as one."""
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise fault_error(f"{shown(value)} is neither true nor false", "write true or false")


def options(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise fault_error("the value (hidden) is not a mapping", "write `name: value` lines below it")
    findings = [
        SettingsFault((key,), "the value (hidden) is neither text, number nor truth value", "write one value")
        for key, item in value.items()
        if not isinstance(item, str | int | float | bool)
    ]
    raise_any(findings)
    return {str(key): str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}
