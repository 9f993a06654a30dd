"""Save a settings file, without losing another one by mistake."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mirrorlake.config.load import loads
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
        if file.exists() and file.read_text(encoding="utf-8") != text and not replace:
            raise UsageError(
                f"{path} holds other settings",
                consequence="nothing was written",
                remedy="name another file, or allow that this one is replaced",
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: a job may read it at this moment.
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            fresh.write_text(text, encoding="utf-8")
            if file.exists():
                shutil.copymode(file, fresh)
            fresh.replace(file.resolve())
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror})", remedy="name a file in a folder you may write"
        ) from error
    return file
