"""Save a settings file without overwriting another one by mistake."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path

from mirrorlake.config.edit.references import without_secrets
from mirrorlake.config.loading import loads
from mirrorlake.errors import UsageError


def save(text: str, path: str | Path, *, read: str | None = None, replace: bool = False) -> Path:
    """Write settings to a file and return its path; a file with this content is not written again.

    `read` is the content that these settings were read from; other content, such as a later edit, only `replace` overwrites.
    """
    loads(text)
    file = Path(path).expanduser()
    try:
        there = file.read_text(encoding="utf-8") if file.exists() else None
        if there == text:
            return file
        if there is not None and there != read and not replace:
            problem = f"{path} holds other settings" if read is None else f"{path} has changed since it was read"
            remedy = "name another file, or allow replacing this one"
            if read is not None:
                remedy = "read the file again and repeat your change, or name another file"
            raise UsageError(problem, consequence="nothing was written", remedy=remedy)
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        # Atomic: a job may read the file at this moment.
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            fresh.write_text(text, encoding="utf-8")
            if there is not None:
                shutil.copymode(target, fresh)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror})"
        raise UsageError(problem, remedy="name a file in a folder you may write") from error
    return file


def difference(before: str, after: str) -> str:
    """Return a unified diff of two settings files without secrets, or "" if only secrets differ.

    Example:
        >>> print(difference("lake: {root: ./a}", "lake: {root: ./b}"))
        --- as it was read
        +++ as it is now
        @@ -1 +1 @@
        -lake: {root: ./a}
        +lake: {root: ./b}
    """
    try:
        old, new = (without_secrets(text)[0].splitlines() for text in (before, after))
    except Exception:
        # A text that cannot be read as settings may contain a secret anywhere.
        return "the file is no longer valid YAML settings"
    return "\n".join(difflib.unified_diff(old, new, "as it was read", "as it is now", lineterm="", n=2))
