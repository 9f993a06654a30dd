"""The cache of downloaded and generated files, which processes share."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """Return `$MIRRORLAKE_CACHE`, or `mirrorlake` in the user's cache directory (XDG)."""
    if own := os.environ.get("MIRRORLAKE_CACHE"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(shared).expanduser().absolute() / "mirrorlake"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock `path` exclusively against processes and threads; the kernel releases the lock when its process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write `content` to `path` so that a reader, or a crash, gets either the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Each writer has its own name, because two writers at once must not share a partly written file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # Created with its final mode, because settings may contain passwords.
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as handle:
        handle.write(data)
    temporary.replace(path)
