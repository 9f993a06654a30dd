"""Log lines with named facts: as text for people and as JSON for programs.

A message begins with its event and goes on in `key=%s` pairs, which are its facts. `log_context` adds the flow, the
source or the batch of the surrounding code, also to lines of libraries.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

_CONVERSION = re.compile(r"(?:\b(\w+)=)?%[-+ #0]*\d*(?:\.\d+)?([srdifgxe%])")
_EVENT = re.compile(r"[a-z_0-9]+(?:\.[a-z_0-9]+)+(?=[\s;:]|$)")
_OWN = ("at", "level", "logger", "event", "text", "process")
_log_facts: ContextVar[Mapping[str, Any]] = ContextVar("what log lines are about", default=MappingProxyType({}))


@contextmanager
def log_context(**facts: Any) -> Iterator[None]:
    """Add facts to every line that this thread logs within the block.

    Example:
        >>> with log_context(flow="east->central", batch=7):
        ...     logging.getLogger("mirrorlake").info("lane.slow lane=%s", 2)
    """
    before = _log_facts.set({**_log_facts.get(), **facts})
    try:
        yield
    finally:
        _log_facts.reset(before)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the facts of a line by name: of its message, of its `extra={"facts": …}`, and of `log_context`."""
    own: dict[str, Any] = {}
    given = record.args if isinstance(record.args, tuple) else ()
    values = iter(given)
    for name, kind in _CONVERSION.findall(str(record.msg)):
        if kind == "%":
            continue
        value = next(values, None)
        if name and name not in _OWN:
            own[name] = value
    return {**_log_facts.get(), **getattr(record, "facts", {}), **own}


class TextLine(logging.Formatter):
    """A line for people: time, level, logger and message, then the facts that the message does not name."""

    def __init__(self, *, named: bool) -> None:
        super().__init__(
            "%(asctime)s %(levelname)s %(name)s: %(message)s" if named else "%(asctime)s %(levelname)s %(message)s"
        )

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        said = super().formatMessage(record)
        more = {name: value for name, value in facts_of(record).items() if f"{name}=" not in record.message}
        return " ".join([said, *(f"{name}={value}" for name, value in more.items())])


class JsonLine(logging.Formatter):
    """A line for programs: one JSON document, with its facts beside `at`, `level`, `logger`, `event`, `text` and `process`."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        event = _EVENT.match(str(record.msg))
        document: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"event": event[0]} if event else {}),
            "text": text,
            "process": record.process,
            **{name: _plain(value) for name, value in facts_of(record).items()},
        }
        if record.exc_info and record.exc_info[0] is not None:
            document = {
                "error": record.exc_info[0].__name__,
                **document,
                "traceback": self.formatException(record.exc_info),
            }
        return json.dumps(document, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def parse_log_setting(asked: str | None) -> tuple[str | None, bool]:
    """Return the level in `MIRRORLAKE_LOG`, or None, and whether lines are JSON: a level, `json`, or both with a comma.

    >>> parse_log_setting("info,json"), parse_log_setting("WARNING"), parse_log_setting("json"), parse_log_setting(None)
    (('INFO', True), ('WARNING', False), (None, True), (None, False))
    """
    words = [word.strip().upper() for word in (asked or "").split(",") if word.strip()]
    return next((word for word in words if word != "JSON"), None), "JSON" in words


def line_format(*, as_json: bool, named: bool = False) -> logging.Formatter:
    """Return the format of a handler's lines; `named` adds the logger's name to text."""
    return JsonLine() if as_json else TextLine(named=named)
