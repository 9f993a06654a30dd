"""Where downloaded and generated files are kept between runs, and how two processes share them."""

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
    """Hold an exclusive lock on `path` against processes and threads alike; the kernel frees it with its holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Put `content` at `path` so that a reader, or a crash, meets the old file or the new one and nothing between."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # One name per writer: two that write the same file at once must not share a half-written one.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # Made with its final mode: settings may hold passwords.
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as handle:
        handle.write(data)
    temporary.replace(path)
