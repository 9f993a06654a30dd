"""The output of a command: one JSON document on standard output, or tables for people; logs and errors on standard error."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from rich.console import Console

from mirrorlake.errors import MirrorlakeError, StoreError
from mirrorlake.progress import LOGGER, Display, LogLines, RunMessage, choose_display, line_format, parse_log_setting
from mirrorlake.render import Displayable, Sheet, Table, document, table


class _Stream(io.FileIO):
    """Standard output or standard error of this process; after a failure, what follows is dropped.

    Without standard output a command ends, with 141 if its reader left (`| head`), as shells have it for SIGPIPE. Without standard
    error it goes on: a running mirror must not stop because nobody reads its log.
    """

    _has_failed = False

    def write(self, data: Any, /) -> Any:
        if not self._has_failed:
            try:
                return super().write(data)
            except OSError as error:
                self._has_failed = True
                if self.fileno() == 1:
                    raise _output_failure(error) from None
        return len(data)


def _output_failure(error: OSError) -> BaseException:
    if isinstance(error, BrokenPipeError):
        return SystemExit(128 + signal.SIGPIPE)
    what = "the answer is cut; what the command did stands"
    return StoreError(
        f"standard output cannot be written: {error.strerror}", consequence=what, remedy="free space there"
    )


def guard_streams() -> None:
    """Replace standard output and standard error, which may be closed or full, or lack the characters of a name."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number, which a file of the lake would get otherwise, with a library's messages.
            os.open(os.devnull, os.O_RDWR)
    for number, name in enumerate(("stdout", "stderr"), 1):
        old = getattr(sys, name)
        text = io.TextIOWrapper(
            io.BufferedWriter(_Stream(number, "w", closefd=False)),
            encoding=getattr(old, "encoding", "utf-8"),
            errors="backslashreplace",
            line_buffering=number == 2 or os.isatty(number),
            write_through=getattr(old, "write_through", False),
        )
        setattr(sys, name, text)


class Output:
    """The two output forms of a command: one JSON document on standard output and nothing else, or tables, `wide` at any width."""

    def __init__(self, *, as_json: bool, wide: bool = False) -> None:
        self.as_json = as_json
        self._wide = wide
        level, self._logs_json = parse_log_setting(os.environ.get("MIRRORLAKE_LOG"))
        # The requested log omits lines of progress.
        self._is_quiet = level in ("WARNING", "ERROR", "CRITICAL")
        # A topic may be named a:b:c, which is not an emoji.
        self._people = Console(highlight=False, soft_wrap=True, emoji=False)
        self._errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

    def display(self) -> Display:
        """Return the progress display: log lines beside a JSON document, bars at a terminal."""
        if self._is_quiet:
            return LogLines()
        here = choose_display()
        return self._lines() if self.as_json or self._logs_json or isinstance(here, LogLines) else here

    def _lines(self) -> PrintedLines:
        return PrintedLines(None if self.as_json or self._logs_json else self.note)

    def document(self, content: Any) -> None:
        if self.as_json:
            sys.stdout.write(json.dumps(document(content), default=str) + "\n")

    def say(self, text: str = "") -> None:
        if not self.as_json:
            self._people.print(text, markup=False)

    def answer(self, value: Displayable, **more: Any) -> None:
        """Print a value: its document with `more` under `--json`, its tables for people."""
        self.document({**document(value), **more})
        self.show(value)

    def show(self, value: Displayable, *, whole: bool = True, rows: int | None = None) -> None:
        """Print a value for people, in the terminal's width, or 80 columns without one.

        Long content is truncated without `whole`; each table has at most `rows`, or all of them.
        """
        self._fitted(value.sheet(), whole=whole, rows=rows)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Any], *, least: Sequence[str] = ()) -> None:
        """Print a table for people from rows without a value of their own (see `show`, `render.Table`)."""
        self._fitted(table(title, columns, rows, least=least))

    def _fitted(self, shown: Sheet | Table, *, whole: bool = True, rows: int | None = None) -> None:
        if not self.as_json:
            width = None if self._wide else self._people.width
            self.say(shown.text(rows=rows, width=width, whole=whole or self._wide))

    def note(self, text: str) -> None:
        """Print a line about progress on standard error, apart from any document."""
        if self._logs_json:
            self._lines().say(RunMessage(at=datetime.now(timezone.utc), stage="note", text=text))
            return
        self._errors.print(text, markup=False, style="dim")

    def line(self, stage: str, text: str) -> None:
        if not self._is_quiet:
            self._lines().say(RunMessage(at=datetime.now(timezone.utc), stage=stage, text=text))

    def error(self, error: MirrorlakeError) -> None:
        """Print an error on standard error, as text or a JSON log line; under `--json` also print its document."""
        if self._logs_json:
            at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z"
            said = {"at": at, "level": "error", "event": "cli.error", "text": str(error)}
            _write({**said, **error.as_dict()})
        else:
            self._errors.print(f"error: {error}", markup=False, style="red")
        self.document(error.as_dict())


def _write(document: dict[str, Any]) -> None:
    sys.stderr.write(json.dumps(document, default=str) + "\n")
    sys.stderr.flush()


class PrintedLines(LogLines):
    """Lines of a run: for people by `note`, else as JSON on standard error, beside the one document on standard output."""

    any_thread = True

    def __init__(self, note: Callable[[str], None] | None) -> None:
        super().__init__()
        self._note = note

    def say(self, said: RunMessage, /) -> None:
        if self._note is None:
            _write({**said.as_dict(), "level": "info", "event": f"run.{said.stage}"})
        else:
            self._note(f"{(said.at or datetime.now(timezone.utc)).astimezone():%H:%M:%S}  {said}")


def log_to_stderr(asked: str | None, *, as_json: bool = False) -> None:
    """Send the package's log to standard error, unless the host has configured logging already.

    `asked` is a level, `json`, or both with a comma; None for warnings and the progress of long work.
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
    # A library may configure the root logger later, as py4j does once the JVM is gone: each line would come twice.
    logger.propagate = False
    # Records below the wanted level still go to a log file, if there is one.
    logger.setLevel(min(wanted, logging.INFO))


def _least(name: str, wanted: int, *, asked: bool) -> int:
    """Return the lowest level of a logger's records for people."""
    if name == LOGGER and not asked:
        return logging.INFO
    if name != "mirrorlake.kafka.client" or wanted <= logging.DEBUG:
        return wanted
    # librdkafka reports every lost connection, 58 lines a second while a target is unreachable. Serious failures become
    # our errors, and the log file has all lines.
    return max(wanted, logging.ERROR) if asked else logging.CRITICAL + 1
