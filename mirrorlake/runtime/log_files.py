"""The log file of this process, with the output of Spark's JVM, its workers and Kafka's clients, which does not suit a notebook.

One file a process in `<cache>/logs`, named by its start and its pid. Old files are deleted, and a large file is rotated to `.1`, so
that a mirror that runs for months fills no disk.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from contextlib import suppress
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

from mirrorlake.progress import line_format, parse_log_setting
from mirrorlake.runtime.cache import cache_directory

log = logging.getLogger(__name__)

MAX_FILES = 20
MAX_BYTES = 32 << 20
# The logs of these libraries help to analyse a failure; users get the failure itself as an error.
_LIBRARIES = ("py4j", "pyspark", "mirrorlake.kafka.client")


def log_file() -> Path:
    """Return the log file of this process, created at the first call."""
    return _made(os.getpid())


@cache
def _made(pid: int) -> Path:
    name = f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{pid}.log"
    path = cache_directory() / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Clients' errors may contain addresses and names, so only the owner may read the file.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    # In containers every process may have pid 1, so that all of them seem to run.
    newest, spared = MAX_FILES, 10 * MAX_FILES
    files = sorted(path.parent.glob("*.log"), reverse=True)
    for old in [one for one in files[newest:spared] if not _is_written(one)] + files[spared:]:
        for each in (old, old.with_suffix(".log.1")):
            # Another process may have just deleted it.
            with suppress(OSError):
                each.unlink(missing_ok=True)
    return path


def _is_written(path: Path) -> bool:
    """Return whether a log's process still runs: short commands must not delete the log of an always-on mirror."""
    try:
        os.kill(int(path.stem.rpartition("-")[2]), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def log_into_file() -> Path:
    """Send the libraries' logs to the log file instead of standard error, and return it; a host's handlers stay.

    If mirrorlake's own log is configured, it also goes into the file, from INFO on.
    """
    path = log_file()
    own = logging.getLogger("mirrorlake")
    for logger in (*map(logging.getLogger, _LIBRARIES), *([own] if own.handlers else [])):
        if not any(isinstance(one, _ToLogFile) for one in logger.handlers):
            logger.addHandler(_ToLogFile(path))
    return path


class _ToLogFile(logging.FileHandler):
    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="a", encoding="utf-8", delay=True)
        _, is_json = parse_log_setting(os.environ.get("MIRRORLAKE_LOG"))
        self.setFormatter(line_format(as_json=is_json, named=True))
        self._has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  as logging has it
        """Log once that the file cannot be written, for example on a full disk; by default each line prints a traceback."""
        if not self._has_failed:
            self._has_failed = True
            log.warning("log.not_written file=%s why=%s", self.baseFilename, sys.exc_info()[1])


def rotate_log() -> None:
    """Rotate a large log file in place; all its writers append, so that none has to reopen it."""
    path = log_file()
    with suppress(OSError):
        if path.stat().st_size > MAX_BYTES:
            shutil.copyfile(path, path.with_suffix(".log.1"))
            path.with_suffix(".log.1").chmod(0o600)
            os.truncate(path, 0)
