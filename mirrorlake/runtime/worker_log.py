"""What tasks say, on their executor's standard error: a worker's Python has no log of its own, and drops what is no warning."""

from __future__ import annotations

import logging
import os
import sys
from typing import NamedTuple

from mirrorlake.progress import line_format, parse_log_setting


class WorkerLog(NamedTuple):
    """How the driver was asked to log; it travels inside tasks."""

    level: str = "INFO"
    as_json: bool = False

    @classmethod
    def from_environment(cls) -> WorkerLog:
        """Read `MIRRORLAKE_LOG` of this process.

        Example:
            >>> WorkerLog.asked().level  # doctest: +SKIP
            'INFO'
        """
        level, as_json = parse_log_setting(os.environ.get("MIRRORLAKE_LOG"))
        return cls(level or "INFO", as_json)

    def attach(self) -> None:
        """Send the package's log of this process to standard error, unless its host has configured logging already."""
        logger, root = logging.getLogger("mirrorlake"), logging.getLogger()
        others = [one for one in logger.handlers if not isinstance(one, _ToExecutor)]
        if others or root.handlers:
            return
        # A worker serves the tasks of one application, which may ask for another level later.
        handler = _ToExecutor(sys.stderr)
        handler.setFormatter(line_format(as_json=self.as_json, named=True))
        logger.handlers = [handler]
        logger.setLevel(getattr(logging, self.level, logging.INFO))


class _ToExecutor(logging.StreamHandler):  # type: ignore[type-arg]
    """Ours among the handlers of a worker."""
