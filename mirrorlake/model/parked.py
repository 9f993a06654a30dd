"""A parked stream: one that failed in a running mirror while the others went on, and what brings it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.render import Sheet, Shown, badge, clean


def landing(source: str) -> str:
    """Return the name of the stream that lands a source; a flow's stream has the flow's name.

    >>> landing("east")
    'land east'
    """
    return f"land {source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked(Shown):
    """A stream that failed, since when, and why.

    Attributes:
        stream: `land east`, or a flow's name.
        since: time of the failure.
        error: class of the error, as `--json` names it.
        cause: what was found.
        remedy: the next step.
        exit_code: that of the error.
        is_retried: the mirror starts it again by itself, with growing pauses; otherwise it waits for a person.
    """

    stream: str
    since: datetime
    error: str
    cause: str
    remedy: str = ""
    exit_code: int = 4
    is_retried: bool = False

    @property
    def next_step(self) -> str:
        """What to do, and what brings the stream back after that."""
        if self.is_retried:
            return f"{self.remedy} (it is tried again by itself)"
        return f"{self.remedy}; then {self.resume_command}, or apply edited settings"

    @property
    def resume_command(self) -> str:
        """The command that starts it again."""
        kind, _, source = self.stream.partition(" ")
        is_landing = kind == "land" and bool(source)
        return "mirrorlake resume " + (f"--cluster {source}" if is_landing else f"--flow '{self.stream}'")

    def is_same(self, other: Parked | None) -> bool:
        """Tell whether both say the same of the same stream, at whatever time; the words of what is retried may differ."""
        if other is None or self.stream != other.stream:
            return False
        return self.said() == other.said() or (self.is_retried and other.is_retried and self.error == other.error)

    def said(self) -> dict[str, Any]:
        """Write it as the table `control` holds it."""
        return {
            "error": self.error,
            "cause": self.cause,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
            "is_retried": self.is_retried,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {"stream": self.stream, "since": self.since.isoformat(), **self.said(), "next": self.next_step}

    def sheet(self) -> Sheet:
        """Say what failed, since when and why, and what brings it back."""
        return Sheet(
            title=self.stream,
            badge=badge("parked"),
            facts=(self.error, "since", self.since),
            parts=(self.cause, f"next: {self.next_step}"),
        )

    def __str__(self) -> str:
        since = self.since.isoformat(timespec="seconds")
        return clean(f"{self.stream} is parked since {since}: {self.cause}. Next: {self.next_step}")


def parked_of(stream: str, since: datetime, said: Mapping[str, Any]) -> Parked:
    """Return a parked stream as the table `control` tells it; columns of later releases are left out."""
    known = {key: said[key] for key in ("error", "cause", "remedy", "exit_code", "is_retried") if key in said}
    return Parked(stream=stream, since=since, **known)


def worst(parked: Iterable[Parked]) -> Parked | None:
    """Return the one whose exit code the command takes: refused for safety before a failure, that before bad settings."""
    order = (3, 4, 2, 1)
    return min(parked, key=lambda one: order.index(one.exit_code) if one.exit_code in order else -1, default=None)
