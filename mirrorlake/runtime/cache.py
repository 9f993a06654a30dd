"""The cache of downloaded and generated files, which processes share."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mirrorlake.errors import StoreError


def named_cache() -> Path | None:
    """Return `$MIRRORLAKE_CACHE`, or `mirrorlake` in the user's cache directory (XDG); None without a home."""
    with suppress(RuntimeError):
        if own := os.environ.get("MIRRORLAKE_CACHE"):
            return Path(own).expanduser().absolute()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "mirrorlake"
    return None


def cache_directory() -> Path:
    """Return the named cache, or a folder among the temporary files if this user may not write that, as in many containers."""
    named = named_cache()
    if named is not None and os.access(existing_folder(named), os.W_OK | os.X_OK):
        return named
    own = Path(tempfile.gettempdir()) / f"mirrorlake-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    seen = own.lstat()
    if seen.st_uid != os.getuid() or not stat.S_ISDIR(seen.st_mode):
        raise StoreError(
            f"{own} belongs to another user, and {named or 'a home'} cannot be written",
            consequence="nothing was started: Java would run what that user puts there",
            remedy="set MIRRORLAKE_CACHE to a folder that this user may write",
        )
    return own


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            if place.exists():
                return place
    return Path(folder.anchor)


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
