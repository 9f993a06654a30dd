"""Options that several commands share."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.errors import UsageError

Conf = Annotated[Path, typer.Option("--conf", help="The settings file.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else there.")
]
OneFlow = Annotated[str, typer.Option("--flow", help="The flow, e.g. 'east->central'.")]
DEFAULT_CONF = Path("conf/mirror.yml")


def time_of(text: str) -> datetime:
    """Return the time that an option names.

    Raises:
        UsageError: it is no ISO 8601 time, or has no zone.
    """
    remedy = "write 2026-01-01T00:00:00Z"
    try:
        # Python 3.10 does not read the Z.
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise UsageError(f"'{text}' is no ISO 8601 time", remedy=remedy) from None
    if found.tzinfo is None:
        raise UsageError(f"'{text}' has no time zone", remedy=remedy)
    return found.astimezone(timezone.utc)
