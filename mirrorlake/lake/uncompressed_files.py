"""Leave files of a relay uncompressed until upkeep writes their records again, as long as the disk has room for them.

zstd, to write and to read, costs 5.4 CPU-s per million records of 1 KB; without it 1.6 are left. Upkeep decodes and
compresses what is small once more, whatever its codec. Nobody need know here whether upkeep runs: where it does not, the room
is used up, and files are compressed as they are written.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress

# How the name of such a file ends.
ENDING = ".fresh.parquet"
# Of what is free on the disk; rewritten files stay for hours, and count as long as they lie there.
_SHARE = 8
# To look at 100 000 files costs 0.4 s.
_CHECK_INTERVAL_S = 60.0


def is_uncompressed(path: str) -> bool:
    """Tell by its name whether a file of a relay waits for upkeep uncompressed.

    Example:
        >>> is_uncompressed("part-1-0.fresh.parquet"), is_uncompressed("part-1-0.zstd.parquet")
        (True, False)
    """
    return path.endswith(ENDING)


class UncompressedBudget:
    """Bound the uncompressed files in a relay's folder to an eighth of what is free on its disk.

    An object store has no room: it costs by the byte, to send and to keep. Several tasks that write there share what is left.
    """

    def __init__(self, folder: str, *, sharers: int = 1) -> None:
        self._folder = folder
        self._sharers = sharers
        self._left = 0
        self._next_check = time.monotonic()

    def allows_more(self) -> bool:
        """Tell whether the next files may stay uncompressed."""
        if ":/" not in self._folder and time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _CHECK_INTERVAL_S
            # Others fill the disk, too: what it has left is asked without a look at the files.
            if self._left > 0:
                self._left = min(self._left, _share(self._folder) // self._sharers)
            else:
                self._left = _budget(self._folder) // self._sharers
        return self._left > 0

    def spend(self, size: int) -> None:
        """Take note of uncompressed files of so many bytes."""
        self._left -= size


def _budget(folder: str) -> int:
    held = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_uncompressed(entry.name):
                # Upkeep deletes files meanwhile.
                with suppress(FileNotFoundError):
                    held += entry.stat().st_size
    return _share(folder) - held


def _share(folder: str) -> int:
    return shutil.disk_usage(folder).free // _SHARE
