"""Write files of a relay uncompressed until maintenance rewrites them, as long as the disk has space for them.

Writing and reading zstd costs 5.4 CPU-s per million records of 1 KB, no compression 1.6. Maintenance decodes and compresses small
files again, whatever their codec. If maintenance does not run, the space is used up, and new files are compressed.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress

# How the name of such a file ends.
ENDING = ".fresh.parquet"
# An eighth of the free disk space; rewritten files stay on the disk for hours, and count until they are deleted.
_SHARE = 8
# Checking 100 000 files takes 0.4 s.
_CHECK_INTERVAL_S = 60.0


def is_uncompressed(path: str) -> bool:
    """Return by its name whether a file of a relay is uncompressed and waits for maintenance."""
    return path.endswith(ENDING)


class UncompressedBudget:
    """Limit the uncompressed files in a relay's folder to an eighth of the free space on its disk.

    The limit on an object store is 0, because it charges each byte sent and stored. Tasks that write to one folder share the limit.
    """

    def __init__(self, folder: str, *, sharers: int = 1) -> None:
        self._folder = folder
        self._sharers = sharers
        self._left = 0
        self._next_check = time.monotonic()

    def allows_more(self) -> bool:
        if ":/" not in self._folder and time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _CHECK_INTERVAL_S
            # Other programs fill the disk, too: its free space is checked without scanning the files.
            if self._left > 0:
                self._left = min(self._left, _share(self._folder) // self._sharers)
            else:
                self._left = _budget(self._folder) // self._sharers
        return self._left > 0

    def spend(self, size: int) -> None:
        """Subtract the bytes of new uncompressed files."""
        self._left -= size


def _budget(folder: str) -> int:
    held = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_uncompressed(entry.name):
                # Maintenance deletes files meanwhile.
                with suppress(FileNotFoundError):
                    held += entry.stat().st_size
    return _share(folder) - held


def _share(folder: str) -> int:
    return shutil.disk_usage(folder).free // _SHARE
