"""Save a settings file, without losing another one by mistake."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mirrorlake.config.loading import loads
from mirrorlake.errors import UsageError


def save(text: str, path: str | Path, *, replace: bool = False) -> Path:
    """Write settings to a file and return its path; a file that already has this content is left as it is.

    Args:
        text: the settings, as `Draft.yaml` gives them.
        path: where; its folder is made.
        replace: whether another content may be replaced.

    Raises:
        ConfigError: the text is not a settings file.
        UsageError: the file holds something else, or cannot be written.
    """
    loads(text)
    file = Path(path).expanduser()
    try:
        known = file.read_text(encoding="utf-8") if file.exists() else None
        if known == text:
            return file
        if known is not None and not replace:
            remedy = "name another file, or allow that this one is replaced"
            raise UsageError(f"{path} holds other settings", consequence="nothing was written", remedy=remedy)
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: a job may read it at this moment.
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            fresh.write_text(text, encoding="utf-8")
            if known is not None:
                shutil.copymode(target, fresh)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror})"
        raise UsageError(problem, remedy="name a file in a folder you may write") from error
    return file
