"""The log file of this process: what Spark's JVM, its workers and Kafka's clients say, which nobody wants in a notebook.

One file a process in `<cache>/logs`, named by its start and its pid. The newest files are kept, and a file that has grown is
begun again, with what it held beside it as `.1`: a mirror that runs for months fills no disk.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

from mirrorlake.progress import line_format, parse_log_setting
from mirrorlake.runtime.cache import cache_directory

log = logging.getLogger(__name__)

MAX_FILES = 20
MAX_BYTES = 32 << 20
# What these say is of use to whoever looks into a failure; what fails reaches people as an error.
_LIBRARIES = ("py4j", "pyspark", "mirrorlake.kafka.client")


def log_file() -> Path:
    """Return the log file of this process; it is made when it is first asked for.

    Example:
        >>> log_file().name  # doctest: +SKIP
        '20260101-120000-4711.log'
    """
    return _made(os.getpid())


@cache
def _made(pid: int) -> Path:
    name = f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{pid}.log"
    try:
        path = _touched(cache_directory() / "logs" / name)
    except OSError:
        # A container whose home is read-only.
        path = _touched(Path(tempfile.gettempdir()) / f"mirrorlake-logs-{os.getuid()}" / name)
    # In containers every process may be number 1, so that all of them seem to run.
    newest, spared = MAX_FILES, 10 * MAX_FILES
    files = sorted(path.parent.glob("*.log"), reverse=True)
    for old in [one for one in files[newest:spared] if not _is_written(one)] + files[spared:]:
        for each in (old, old.with_suffix(".log.1")):
            # Another process may just have removed it.
            with suppress(OSError):
                each.unlink(missing_ok=True)
    return path


def _is_written(path: Path) -> bool:
    """Tell whether the process whose log it is still runs: short commands must not remove that of a mirror always on."""
    try:
        os.kill(int(path.stem.rpartition("-")[2]), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def _touched(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Errors of clients may hold addresses and names: for its owner only.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return path


def log_into_file() -> Path:
    """Send what libraries log to the log file instead of standard error, and return it; what a host configured stays.

    Where mirrorlake's own log is configured, it goes into the file too, from INFO on.
    """
    path = log_file()
    own = logging.getLogger("mirrorlake")
    for logger in (*map(logging.getLogger, _LIBRARIES), *([own] if own.handlers else [])):
        if not any(isinstance(one, _ToLogFile) for one in logger.handlers):
            logger.addHandler(_ToLogFile(path))
    return path


class _ToLogFile(logging.FileHandler):
    """Append to the log file; the file is opened with the first line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="a", encoding="utf-8", delay=True)
        _, is_json = parse_log_setting(os.environ.get("MIRRORLAKE_LOG"))
        self.setFormatter(line_format(as_json=is_json, named=True))
        self._has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  as logging has it
        """Say once that the file cannot be written, on a full disk for example; by default each line prints a traceback."""
        if not self._has_failed:
            self._has_failed = True
            log.warning("log.not_written file=%s why=%s", self.baseFilename, sys.exc_info()[1])


def rotate_log() -> None:
    """Begin the log file again once it is large; everyone who writes it appends, so nobody has to reopen it."""
    path = log_file()
    with suppress(OSError):
        if path.stat().st_size > MAX_BYTES:
            shutil.copyfile(path, path.with_suffix(".log.1"))
            path.with_suffix(".log.1").chmod(0o600)
            os.truncate(path, 0)
