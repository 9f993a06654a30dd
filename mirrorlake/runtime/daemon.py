"""Start Spark's Python workers light: `spark.python.daemon.module` names this module where mirrorlake makes the session.

PySpark's daemon imports from `pyspark.zip`, which holds no compiled modules, and its workers call
`importlib.invalidate_caches()` for each task, on which every importer of a zip reads the zip's directory again: 190 ms of
CPU before a task reaches its own code. From the installed package of the same Spark it is 50 ms.

Arrow's default memory pool gives each buffer back to the kernel, which then clears the next one page by page: with malloc's
own pool a fetch of 1 KB records costs 2.7 CPU-s per million for 5.3. malloc does the same, with what it frees at the end of its
heap: kept, 1 KB records cost 1.8 CPU-s per million less on their way into the relay and out of it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from zipimport import zipimporter

# Of glibc's malloc.h: how much free memory at the end of the heap is kept, and from which size on a buffer is mapped alone.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def prefer_package(path: list[str]) -> list[str]:
    """Drop from an import path the `pyspark.zip` of a pyspark that the same path holds as an installed package.

    Example:
        >>> prefer_package(["/spark/python/lib/pyspark.zip", "/app"])
        ['/spark/python/lib/pyspark.zip', '/app']
    """
    # <folder>/pyspark/python/lib/pyspark.zip: the same installation, so the same version.
    packages = {(Path(entry) / "pyspark" / "python" / "lib" / "pyspark.zip").resolve() for entry in path if entry}
    return [entry for entry in path if not entry or Path(entry).resolve() not in packages]


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, up to 256 MB a process; `BacklogMemory` gives it back when a backlog is worked off."""
    # Another C library has no such function.
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def main() -> None:
    """Run PySpark's own daemon."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    keep_freed_memory()
    sys.path[:] = prefer_package(sys.path)
    from pyspark.daemon import manager

    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]
    manager()


if __name__ == "__main__":
    main()
