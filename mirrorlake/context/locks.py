"""Locks of this machine, each with the words of its holder: a lock of the operating system ends with its process."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Locks:
    """Hold locks in a folder, and tell who holds one.

    Args:
        folder: where each lock is a file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, name: str, said: str, *, is_left: bool) -> Iterator[None]:
        """Hold a lock beside its other holders; `said` replaces their words. The file stays at the end if it `is_left`.

        Raises:
            OSError: the folder may not be written, or knows no locks.
        """
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+", encoding="utf-8") as handle:
            # Shared: a mirror that takes over does not wait for the one before it, only for a look that ends at once.
            fcntl.flock(handle, fcntl.LOCK_SH)
            handle.truncate(0)
            handle.write(said)
            handle.flush()
            yield
        if not is_left:
            file.unlink(missing_ok=True)

    def holder(self, name: str) -> str:
        """Return what the holder of a lock says, or "" if nobody holds it."""
        with suppress(OSError), self._file(name).open("r", encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return handle.read().strip() or "a process of this machine"
        return ""

    def exists(self, name: str) -> bool:
        """Return whether a lock has a file, held or not."""
        return self._file(name).exists()

    def remove(self, name: str) -> None:
        """Delete the file of a lock that nobody holds."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name.replace('->', '.')}.lock"
