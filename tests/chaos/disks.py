"""Small disks of their own, which can be full: a tmpfs each, where this process may mount one."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path

_BLOCK = bytes(1 << 16)


class Disk:
    """A file system of a bounded size at `place`.

    Args:
        place: a folder that is made for it.
        mib: its size; what it holds is in memory.
    """

    def __init__(self, place: Path, *, mib: int) -> None:
        self.place = place
        self._ballast = place / "ballast"
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(place)], check=True)

    def fill(self) -> None:
        """Leave no byte for anybody else."""
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(_BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        # Lazily: a process that is just ending may still have a file open.
        subprocess.run(["umount", "-l", str(self.place)], check=False)


def can_mount(folder: Path) -> bool:
    """Return whether this process may make disks."""
    if os.geteuid() != 0:
        return False
    with suppress(subprocess.CalledProcessError, FileNotFoundError):
        Disk(folder / "trial", mib=1).unmount()
        return True
    return False
