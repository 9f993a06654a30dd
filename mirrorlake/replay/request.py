"""The request for a replay, as a person writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.config import when
from mirrorlake.errors import UsageError
from mirrorlake.model.policy import is_legal_topic
from mirrorlake.model.replay import MAX_CHARACTERS, REPLAY, STAMPS, replay_name

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-])*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A requested replay, in the words of `Mirror.replay`; requests with equal words are the same replay."""

    source: str
    topic: str
    into: str = ""
    start: str = ""
    end: str = ""
    partitions: tuple[int, ...] = ()
    from_offset: int | None = None
    to_offset: int | None = None
    keys: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    where: str = ""
    generation: int | None = None
    timestamps: str = "original"
    through: str = ""

    def __post_init__(self) -> None:
        if self.timestamps not in STAMPS:
            raise UsageError(
                f"'{self.timestamps}' is not a choice of timestamps", remedy=f"write one of: {', '.join(STAMPS)}"
            )
        for offset in (self.from_offset, self.to_offset):
            if offset is not None and offset < 0:
                raise UsageError(f"{offset} is not an offset", remedy="offsets begin at 0")
        if self.from_offset is not None and self.to_offset is not None and self.from_offset >= self.to_offset:
            raise UsageError(
                f"there is nothing from offset {self.from_offset} up to {self.to_offset}",
                remedy="--to-offset is the first offset that is not sent: write one past the last",
            )

    def words(self) -> dict[str, Any]:
        """Return the request without defaults, for the register and for comparison."""
        given = {name: getattr(self, name) for name in self.__slots__}
        words = {name: value for name, value in given.items() if value not in ("", (), None)}
        if "headers" in words:
            words["headers"] = [f"{name}={value}" for name, value in self.headers]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in words.items()}

    def place(self) -> tuple[str, str]:
        """Split `into` into alias and topic; a UsageError unless it is `alias:topic` with a legal name."""
        alias, colon, topic = self.into.partition(":")
        if not colon or not alias or not topic:
            raise UsageError(
                f"'{self.into}' is not a target of a replay",
                consequence="nothing was sent",
                remedy=f"write --into central:{self.topic}.replayed (alias:topic)",
            )
        if not is_legal_topic(topic):
            raise UsageError(f"'{topic}' is not a legal topic name", remedy="use letters, digits, . _ and -")
        return alias, topic

    def times(self, *, now: datetime) -> tuple[datetime | None, datetime | None]:
        """Parse `start` and `end`; None if empty. A UsageError if one cannot be read, or `end` is not after `start`."""
        start, end = (when(text, now=now) if text else None for text in (self.start, self.end))
        if start is not None and end is not None and start >= end:
            raise UsageError(
                f"there is nothing from {start.isoformat(timespec='seconds')} up to {end.isoformat(timespec='seconds')}",
                remedy="give the earlier time first",
            )
        return start, end

    def predicates(self) -> tuple[tuple[str, str], ...]:
        found = []
        if self.keys:
            found.append(("replay-key", f"key IN ({', '.join(map(_quoted, self.keys))})"))
        for place, (name, value) in enumerate(self.headers, start=1):
            found.append((f"replay-header-{place}", f"headers[{_quoted(name)}] = {_quoted(value)}"))
        if self.where:
            found.append(("replay-where", self.where))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayConsent:
    """The risks that a person accepts beforehand, flag by flag.

    `append`: the topic may hold other records already. `accept_expiry`: records past the topic's retention are sent anyway.
    `hold_retention`: a created topic never deletes its records.
    """

    append: bool = False
    accept_expiry: bool = False
    hold_retention: bool = False


NO_CONSENT = ReplayConsent()


def plain_word(value: Any) -> Any:
    """Return an option in its recorded form: a time (which must have a zone) as text, several values as a tuple."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(f"{value.isoformat()} has no time zone", remedy=f"write {value.isoformat()}Z for UTC")
        return value.isoformat()
    if value is None or isinstance(value, str | int):
        return value
    return (
        tuple(value.items()) if isinstance(value, Mapping) else tuple(value) if isinstance(value, Iterable) else value
    )


def parse_header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"'{text}' is not a header", remedy="write --header NAME=VALUE")
    return name, value


def flow_name(name: str | None, topic: str, words: Mapping[str, Any]) -> str:
    """Return the name of a replay's flow: as given, or derived from the request."""
    if name is None:
        return replay_name(topic, words)
    bare = name.removeprefix(REPLAY)
    if not _NAME.fullmatch(bare) or len(bare) + len(REPLAY) > MAX_CHARACTERS or bare.endswith(".redrive"):
        raise UsageError(
            f"'{name}' is not a name for a replay",
            remedy=f"use letters, digits, . _ and -, a letter, digit or _ in front, at most {MAX_CHARACTERS - len(REPLAY)}",
        )
    return REPLAY + bare


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
