"""The messages of a run: each stage of its start with its seconds, then its state now and then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol, runtime_checkable

from mirrorlake.progress.board import Display
from mirrorlake.render import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMessage:
    """One line of a run; `seconds` is the duration of the stage, `facts` are for programs.

    Example:
        >>> print(RunMessage(at=None, stage="spark", text="ready", seconds=6.3))
        spark: ready (6.3 s)
    """

    at: datetime | None
    stage: str
    text: str
    seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        took = "" if self.seconds is None else f" ({format_duration(self.seconds * 1000)})"
        return f"{self.stage}: {self.text}{took}"

    def as_dict(self) -> dict[str, Any]:
        """Return the line for a program; a time is in UTC."""
        at = None if self.at is None else self.at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        took = {} if self.seconds is None else {"seconds": round(self.seconds, 3)}
        return {"at": at, "stage": self.stage, "text": self.text, **took, **self.facts}


@runtime_checkable
class MessageDisplay(Display, Protocol):
    def say(self, said: RunMessage, /) -> None: ...
