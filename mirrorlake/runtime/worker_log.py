"""Log from tasks to their executor's standard error, because a worker's Python drops everything below warnings."""

from __future__ import annotations

import logging
import os
import sys
from typing import NamedTuple

from mirrorlake.progress import line_format, parse_log_setting


class WorkerLog(NamedTuple):
    level: str = "INFO"
    as_json: bool = False

    @classmethod
    def from_environment(cls) -> WorkerLog:
        """Return the settings in this process' `MIRRORLAKE_LOG`."""
        level, as_json = parse_log_setting(os.environ.get("MIRRORLAKE_LOG"))
        return cls(level or "INFO", as_json)

    def attach(self) -> None:
        """Send the package's log of this process to standard error, unless its host has configured logging."""
        logger, root = logging.getLogger("mirrorlake"), logging.getLogger()
        others = [one for one in logger.handlers if not isinstance(one, _ToExecutor)]
        if others or root.handlers:
            return
        # A worker runs many tasks of one application, whose level may change.
        handler = _ToExecutor(sys.stderr)
        handler.setFormatter(line_format(as_json=self.as_json, named=True))
        logger.handlers = [handler]
        logger.setLevel(getattr(logging, self.level, logging.INFO))


class _ToExecutor(logging.StreamHandler):  # type: ignore[type-arg]
    """The package's own handler in a worker."""
