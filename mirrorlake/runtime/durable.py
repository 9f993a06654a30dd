"""Flush files to the disk, so that after a power cut every file exists that a commit or marker refers to.

A flush costs 0.12 ms on this project's machine and some milliseconds on a plain disk (2026-11-24), most of it waiting.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

# A turn over many partitions writes a file each, and a disk can flush many at once.
_AT_ONCE = 8


def flush(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(path: str) -> None:
    """Flush the names in a folder, unless a network file system does not support that."""
    with suppress(OSError):
        flush(path)


def flush_files(folder: str, names: Sequence[str]) -> None:
    """Flush files of a folder, and their names; files of an object store are durable already."""
    if ":/" in folder or not names:
        return
    paths = [f"{folder}/{name}" for name in names]
    if len(paths) < _AT_ONCE:
        for path in paths:
            flush(path)
    else:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(flush, paths))
    flush_folder(folder)
