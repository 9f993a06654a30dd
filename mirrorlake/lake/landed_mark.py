"""The time up to which a relay has all records that its source acknowledged: a small file that a live lander replaces.

Samples come only every half a minute: by them alone, a source that dies between two would seem to have lost that much.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.lake.fenced_writer import FencedRelayWriter
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.times import from_micros, micros
from mirrorlake.model.flow import TopicPartition
from mirrorlake.runtime import Folder, open_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedMark:
    """The state of a source and its relay by a live lander, with times of its machine's clock.

    Attributes:
        complete_at: all records acknowledged by then are landed, of each partition that is not in `behind`.
        behind: the same time for partitions that lag behind it, None if unknown.
        silent_at: when the source first failed to answer after `answered_at`.
    """

    landed: tuple[int, int] | None
    complete_at: datetime | None
    behind: Mapping[TopicPartition, datetime | None] = field(default_factory=dict)
    answered_at: datetime | None = None
    silent_at: datetime | None = None

    def complete_for(self, carries: Callable[[str], bool]) -> datetime | None:
        """Return the time up to which all partitions of some topics are landed, or None if one partition's is unknown."""
        late = [at for tp, at in self.behind.items() if carries(tp.topic)]
        known = [at for at in (self.complete_at, *late) if at is not None]
        return min(known) if len(known) == 1 + len(late) else None

    def to_json(self) -> str:
        """Return the mark as JSON, with the partitions of `behind` by time and topic."""
        behind: dict[str, dict[str, list[int]]] = {}
        for tp, at in self.behind.items():
            behind.setdefault(str(_micros(at)), {}).setdefault(tp.topic, []).append(tp.partition)
        document = {
            "landed": self.landed,
            "complete_at": _micros(self.complete_at),
            "behind": behind,
            "answered_at": _micros(self.answered_at),
            "silent_at": _micros(self.silent_at),
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> LandedMark:
        document: dict[str, Any] = json.loads(text)
        landed = document["landed"]
        return cls(
            landed=None if landed is None else (int(landed[0]), int(landed[1])),
            complete_at=_time(document["complete_at"]),
            behind={
                TopicPartition(topic, partition): _time(None if at == "None" else int(at))
                for at, topics in document["behind"].items()
                for topic, partitions in topics.items()
                for partition in partitions
            },
            answered_at=_time(document["answered_at"]),
            silent_at=_time(document["silent_at"]),
        )


class LandedMarks:
    """Write the marks of one lander, or of one of its landing groups; a reader uses the relay's newest number only."""

    def __init__(self, address: str, number: int, group: int | None = None, *, groups: int = 1) -> None:
        self._folder = open_folder(address)
        # The name has the number of groups, so that a reader detects a missing mark.
        self._name = _name(number) if group is None else f"{_name(number)}.{group}.{groups}"
        self._folder.replace_older(self._name, spares_equals=True)

    def write(self, mark: LandedMark) -> None:
        """Replace the last mark; OSError if the folder cannot be written to."""
        self._folder.write(self._name, mark.to_json())


def marks_address(lake: Lake, alias: str) -> str:
    return f"{lake.checkpoint_root()}/marks/{alias}"


def read_mark(lake: Lake, alias: str) -> LandedMark | None:
    """Return the newest mark of a source, or None if no live lander has written one for the present state of the relay.

    A replaced lander may continue to write marks, and an old mark overstates a relay that was restored from a backup.
    """
    if lake.relay_log(alias) is None or not lake.exists(lake.relay_location(alias)):
        # No task lands into a lake that only Spark reaches.
        return None
    folder = open_folder(marks_address(lake, alias))
    if not folder.names():
        return None
    writer = FencedRelayWriter(lake, alias)
    writer.refresh()
    if writer.history.was_restored:
        return None
    marks, newest = _read_groups(folder, _name(writer.number)), writer.history.last_batch
    holds = (0, 0) if newest is None else (newest.checkpoint, newest.batch)
    if not marks or any(mark.landed is not None and mark.landed > holds for mark in marks):
        return None
    return _merge_groups(marks)


def _read_groups(folder: Folder, number: str) -> list[LandedMark]:
    """Return the marks of all landing groups of a number, or [] if one is missing or still empty."""
    names = [name for name in folder.names() if name.partition(".")[0] == number]
    texts = []
    for name in names:
        with suppress(FileNotFoundError):
            texts.append(folder.read(name))
    groups = int(names[0].rpartition(".")[2]) if names and "." in names[0] else 1
    return [LandedMark.from_json(text) for text in texts] if len(texts) == groups and all(texts) else []


def _merge_groups(marks: Sequence[LandedMark]) -> LandedMark:
    complete = [mark.complete_at for mark in marks if mark.complete_at is not None]
    silent = [mark.silent_at for mark in marks if mark.silent_at is not None]
    return LandedMark(
        landed=max((mark.landed for mark in marks if mark.landed is not None), default=None),
        complete_at=min(complete) if len(complete) == len(marks) else None,
        behind={tp: at for mark in marks for tp, at in mark.behind.items()},
        answered_at=max((mark.answered_at for mark in marks if mark.answered_at is not None), default=None),
        # A source is silent when none of its leaders answers.
        silent_at=max(silent) if len(silent) == len(marks) else None,
    )


def _name(number: int) -> str:
    return f"{number:020}"


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_micros(value)
