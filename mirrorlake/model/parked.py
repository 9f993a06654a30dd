"""A parked stream, which failed in a running mirror while the others went on, and the step that starts it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.render import Displayable, Sheet, badge, clean

_SAID = ("error", "cause", "remedy", "exit_code", "is_retried")


def landing(source: str) -> str:
    """Return the name of the stream that lands a source; a flow's stream has the flow's name."""
    return f"land {source}"


def table_stream(name: str) -> str:
    return f"table {name}"


_OF_TOPIC = ": topic "


def topic_stream(flow: str, topic: str) -> str:
    """Return the stream name of a flow's topic that waits while the flow's other topics go on.

    >>> of_topics("east->central", ["east->central", topic_stream("east->central", "orders")])
    ['east->central: topic orders']
    """
    return f"{flow}{_OF_TOPIC}{topic}"


def of_topics(flow: str, streams: Iterable[str]) -> list[str]:
    return [name for name in streams if name.startswith(f"{flow}{_OF_TOPIC}")]


def whole_stream(stream: str) -> str:
    """Return the flow of a topic's stream; any other stream is returned as it is.

    >>> whole_stream(topic_stream("east->central", "orders")), whole_stream("land east")
    ('east->central', 'land east')
    """
    return stream.partition(_OF_TOPIC)[0]


def stream_facts(stream: str) -> dict[str, str]:
    """Return the source, the typed table or the flow of a stream, as log lines name it.

    >>> stream_facts("land east"), stream_facts("table sales"), stream_facts("east->central")
    ({'source': 'east'}, {'table': 'sales'}, {'flow': 'east->central'})
    """
    kind, _, name = stream.partition(" ")
    fact = {"land": "source", "table": "table"}.get(kind) if name else None
    return {"flow": stream} if fact is None else {fact: name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked(Displayable):
    """A stream that failed: `land east`, or a flow's name; `error` is the class of the error, as `--json` names it.

    If `is_retried`, the mirror starts the stream again by itself, with growing pauses; otherwise it waits for a
    person.
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
        """The action to take, and the command that starts the stream after it."""
        if self.is_retried:
            return f"{self.remedy} (mirrorlake retries it)"
        return f"{self.remedy}; then {self.resume_command}, or apply edited settings"

    @property
    def resume_command(self) -> str:
        """The command that starts the stream again."""
        facts = stream_facts(whole_stream(self.stream))
        if "flow" in facts:
            return f"mirrorlake resume --flow '{facts['flow']}'"
        option = f"--cluster {facts['source']}" if "source" in facts else f"--table '{facts['table']}'"
        return f"mirrorlake resume {option}"

    def is_same(self, other: Parked | None) -> bool:
        """Return whether both report the same failure of a stream, at whatever time; causes of retried failures may differ."""
        if other is None or self.stream != other.stream:
            return False
        both = self.is_retried and other.is_retried
        return self.said() == other.said() or (both and (self.error, self.remedy) == (other.error, other.remedy))

    def said(self) -> dict[str, Any]:
        """Return the stream's row of the table `control`."""
        return {name: getattr(self, name) for name in _SAID}

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {"stream": self.stream, "since": self.since.isoformat(), **self.said(), "next": self.next_step}

    def sheet(self) -> Sheet:
        """Show the failure, its time and cause, and the next step."""
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
    """Read a parked stream from the table `control`; columns of later releases are ignored."""
    return Parked(stream=stream, since=since, **{name: said[name] for name in _SAID if name in said})


def worst(parked: Iterable[Parked]) -> Parked | None:
    """Return the stream whose exit code the command takes: safety, then failure, then bad settings; None without a stream."""
    order = (3, 4, 2, 1)
    return min(parked, key=lambda one: order.index(one.exit_code) if one.exit_code in order else -1, default=None)
