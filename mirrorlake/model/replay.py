"""A replay: which records of a relay are sent once more, to which topic, and under which name.

A replay is a flow of its own, with a ledger and rows in the offset map under its name. Its definition fixes the
offsets before it starts, so a replay that was killed sends exactly the rest (law F).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

from mirrorlake.model.flow import RecordRange

REPLAY = "replay."
Stamps = Literal["original", "shifted", "now"]
STAMPS: tuple[Stamps, ...] = ("original", "shifted", "now")

# A ledger topic is `mirrorlake.<name>.ledger`, and Kafka takes 249 characters.
MAX_CHARACTERS = 200


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class TimedRange(RecordRange):
    """A range of relay records; `oldest_ms` and `newest_ms` bound their timestamps, None without a record."""

    oldest_ms: int | None = None
    newest_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicThen:
    """A source topic as its copy is created: partitions, and the settings of the topic itself."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything that decides which records a replay sends; stored before it starts.

    `since_ms` is inclusive, `until_ms` exclusive. Only records for which all `predicates` (name, text) are true are sent.
    `through` is the flow whose rules apply, "" for none. `fixed_ms` is the timestamp of every record, None for their own.
    `overrides` are settings of the created topics, instead of the source's.
    """

    name: str
    asked: Mapping[str, Any]
    source: str
    target: str
    into: str
    topic: TopicThen
    spans: tuple[TimedRange, ...]
    planned_at_ms: int
    since_ms: int | None = None
    until_ms: int | None = None
    predicates: tuple[tuple[str, str], ...] = ()
    through: str = ""
    rules: str = ""
    shift_ms: int = 0
    fixed_ms: int | None = None
    hops: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of relay records when it was planned, before predicates and rules."""
        return sum(span.records for span in self.spans)

    @property
    def oldest(self) -> datetime | None:
        return self._sent_at(min((s.oldest_ms for s in self.spans if s.oldest_ms is not None), default=None))

    @property
    def newest(self) -> datetime | None:
        """The newest timestamp that is sent, ignoring predicates."""
        return self._sent_at(max((s.newest_ms for s in self.spans if s.newest_ms is not None), default=None))

    @property
    def fingerprint(self) -> str:
        """16 hex digits that identify this definition."""
        return _digest(self.as_dict(), 16)

    def sent_ms(self, stamp_ms: int) -> int:
        """Return the timestamp of a sent record, in milliseconds since 1970."""
        return stamp_ms + self.shift_ms if self.fixed_ms is None else self.fixed_ms

    def _sent_at(self, stamp_ms: int | None) -> datetime | None:
        return None if stamp_ms is None else datetime.fromtimestamp(self.sent_ms(stamp_ms) / 1000, tz=timezone.utc)

    def as_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Definition:
        return cls(
            **{
                **document,
                "topic": TopicThen(**document["topic"]),
                "spans": tuple(TimedRange(**span) for span in document["spans"]),
                "predicates": tuple((name, text) for name, text in document["predicates"]),
            }
        )


def replay_name(topic: str, asked: Mapping[str, Any]) -> str:
    """Build a name from the request: the same request gives the same name, so the same command resumes."""
    return f"{REPLAY}{topic[: MAX_CHARACTERS - 30]}.{_digest(asked, 8)}"


def chain(cuts: Iterable[tuple[int, int]], generation: int) -> dict[int, tuple[int, int | None]]:
    """Return the offsets of the source partition's present history, by generation: first and end (None: open).

    After a truncation a log continues in a generation of its own. Later offsets of earlier generations are no longer
    the source's.
    """
    starts = [(generation, 0), *sorted(cuts)]
    return {
        life: (first, min((at for _, at in starts[place + 1 :]), default=None))
        for place, (life, first) in enumerate(starts)
    }


def _digest(document: Mapping[str, Any], digits: int) -> str:
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
