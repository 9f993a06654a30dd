"""Locks of this machine, each with its holder's description; the operating system releases a lock with its process."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Locks:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, name: str, said: str, *, is_left: bool) -> Iterator[None]:
        """Share a lock with its other holders; `said` replaces their description. The file stays at the end if it `is_left`.

        Raises:
            OSError: the folder may not be written, or its file system has no locks.
        """
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+", encoding="utf-8") as handle:
            # Shared: a mirror does not wait for the previous one, only for a `holder` call, which ends at once.
            fcntl.flock(handle, fcntl.LOCK_SH)
            handle.truncate(0)
            handle.write(said)
            handle.flush()
            yield
        if not is_left:
            file.unlink(missing_ok=True)

    def holder(self, name: str) -> str:
        """Return the description of a lock's holder, or "" if the lock is free."""
        with suppress(OSError), self._file(name).open("r", encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return handle.read().strip() or "a process of this machine"
        return ""

    def exists(self, name: str) -> bool:
        return self._file(name).exists()

    def remove(self, name: str) -> None:
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name.replace('->', '.')}.lock"
