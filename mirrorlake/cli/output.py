"""How a command speaks: one JSON document on standard output, or tables for people; logs and errors go to standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from rich.console import Console

from mirrorlake.cli.fit import fitted
from mirrorlake.errors import MirrorlakeError
from mirrorlake.progress import LOGGER, Display, LogLines, RunMessage, choose_display, line_format, parse_log_setting
from mirrorlake.render import Displayable, Sheet, Table, document, table


class Output:
    """The two output forms of a command.

    Args:
        as_json: print one JSON document and nothing else on standard output.
        wide: tables with all columns and whole names, however wide they are.
    """

    def __init__(self, *, as_json: bool, wide: bool = False) -> None:
        self.as_json = as_json
        self._wide = wide
        # A topic may be called a:b:c, which is not an emoji.
        self._people = Console(highlight=False, soft_wrap=True, emoji=False)
        self._errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

    def display(self) -> Display:
        """Pick the progress display: log lines only beside a JSON document, bars at a terminal."""
        if _is_quiet():
            return LogLines()
        if self.as_json or _is_json():
            return _JsonLines()
        here = choose_display()
        return _PlainLines(self.note) if isinstance(here, LogLines) else here

    def document(self, content: Any) -> None:
        """Print the one document under `--json`."""
        if self.as_json:
            sys.stdout.write(json.dumps(document(content), default=str) + "\n")

    def say(self, text: str = "") -> None:
        """Print a line for people."""
        if not self.as_json:
            self._people.print(text, markup=False)

    def answer(self, value: Displayable, **more: Any) -> None:
        """Print a value: its document with `more` under `--json`, its tables for people."""
        self.document({**document(value), **more})
        self.show(value)

    def show(self, value: Displayable, *, whole: bool = True) -> None:
        """Print a value for people, every row of it, as wide as the terminal: 80 columns where there is none.

        Without `whole`, long content is cut.
        """
        self._fitted(value.sheet(), whole=whole)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Any], *, least: Sequence[str] = ()) -> None:
        """Print a table for people, for rows that are not a value of their own (see `show`, `render.Table`)."""
        self._fitted(table(title, columns, rows, least=least))

    def _fitted(self, shown: Sheet | Table, *, whole: bool = True) -> None:
        if not self.as_json:
            self.say(shown.text(rows=None) if self._wide else fitted(shown, self._people.width, whole=whole))

    def note(self, text: str) -> None:
        """Print a line about progress on standard error, where it disturbs no document."""
        if _is_json():
            _JsonLines().say(RunMessage(at=datetime.now(timezone.utc), stage="note", text=text))
            return
        self._errors.print(text, markup=False, style="dim")

    def line(self, stage: str, text: str) -> None:
        """Print a line of a run on standard error: for people, or as JSON."""
        if _is_quiet():
            return
        said = RunMessage(at=datetime.now(timezone.utc), stage=stage, text=text)
        if self.as_json or _is_json():
            _JsonLines().say(said)
        else:
            _PlainLines(self.note).say(said)

    def error(self, error: MirrorlakeError) -> None:
        """Print an error: for people on standard error, or as a line of the log there; as a document under `--json`."""
        if _is_json():
            said = {"at": _at(datetime.now(timezone.utc)), "level": "error", "event": "cli.error", "text": str(error)}
            _write({**said, **error.as_dict()})
        else:
            self._errors.print(f"error: {error}", markup=False, style="red")
        self.document(error.as_dict())


def _is_quiet() -> bool:
    """Tell whether the log was asked for without lines of progress."""
    return parse_log_setting(os.environ.get("MIRRORLAKE_LOG"))[0] in ("WARNING", "ERROR", "CRITICAL")


def _is_json() -> bool:
    """Tell whether every line on standard error is to be JSON, whatever the command prints on standard output."""
    return parse_log_setting(os.environ.get("MIRRORLAKE_LOG"))[1]


def _at(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds")[:-6] + "Z"


def _write(document: dict[str, Any]) -> None:
    sys.stderr.write(json.dumps(document, default=str) + "\n")
    sys.stderr.flush()


class _PlainLines(LogLines):
    """Lines of a run for people who read a file or a pipe."""

    any_thread = True

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def say(self, said: RunMessage, /) -> None:
        """Print a line of a run."""
        self._note(f"{(said.at or datetime.now(timezone.utc)).astimezone():%H:%M:%S}  {said}")


class _JsonLines(LogLines):
    """Beside the one document on standard output, lines of a run go to standard error, each as JSON."""

    any_thread = True

    def say(self, said: RunMessage, /) -> None:
        """Print a line of a run."""
        _write({**said.as_dict(), "level": "info", "event": f"run.{said.stage}"})


def log_to_stderr(asked: str | None, *, as_json: bool = False) -> None:
    """Send the package's log to standard error, unless the host has configured logging already.

    Args:
        asked: a level, `json`, or both with a comma; None stands for warnings, and the progress of long work.
        as_json: lines are JSON all the same.
    """
    level, is_json = parse_log_setting(asked)
    logger = logging.getLogger("mirrorlake")
    if logger.handlers or logging.getLogger().handlers:
        return
    wanted = int(getattr(logging, (level or "WARNING").upper(), logging.WARNING))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(line_format(as_json=as_json or is_json))
    handler.addFilter(lambda record: record.levelno >= _least(record.name, wanted, asked=level is not None))
    logger.addHandler(handler)
    # A library may set the root up later, as py4j does where the JVM has gone, and each line would come twice.
    logger.propagate = False
    # What is not for people goes into the log file, where there is one.
    logger.setLevel(min(wanted, logging.INFO))


def _least(name: str, wanted: int, *, asked: bool) -> int:
    """Return the least level of a logger's records that a person sees."""
    if name == LOGGER and not asked:
        return logging.INFO
    if name != "mirrorlake.kafka.client" or wanted <= logging.DEBUG:
        return wanted
    # librdkafka reports every lost connection, 58 lines a second while a target is away; what matters reaches us as an error, and
    # the log file has them all.
    return max(wanted, logging.ERROR) if asked else logging.CRITICAL + 1
