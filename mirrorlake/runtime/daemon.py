"""Start Spark's Python workers light: `spark.python.daemon.module` names this module where mirrorlake makes the session.

PySpark's daemon imports from `pyspark.zip`, which holds no compiled modules, and its workers call
`importlib.invalidate_caches()` for each task, on which every importer of a zip reads the zip's directory again: 190 ms of
CPU before a task reaches its own code. From the installed package of the same Spark it is 50 ms.

Arrow's default memory pool gives each buffer back to the kernel, which then clears the next one page by page: with malloc's
own pool a fetch of 1 KB records costs 2.7 CPU-s per million for 5.3. malloc does the same, with what it frees at the end of its
heap: kept, 1 KB records cost 1.8 CPU-s per million less on their way into the relay and out of it.

What long-lived tasks import, and pandas, for which pyarrow looks, is imported before workers are forked: once, not by each of
three, which then share its pages.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from zipimport import zipimporter

LOADED_BY_WORKERS = "MIRRORLAKE_LOADED_BY_WORKERS"
"""The variable that names modules, with commas, to import before workers are forked."""

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


def preload(modules: Iterable[str]) -> None:
    """Import what workers import; one that cannot be imported fails in the task that needs it, which says so."""
    # Spark reads the daemon's port from its standard output.
    with redirect_stdout(sys.stderr), suppress(Exception):
        for name in modules:
            import_module(name)
        import_module("pyarrow").scalar(0)
    # A worker that looked for cycles among it would get pages of its own.
    gc.freeze()


def main() -> None:
    """Run PySpark's own daemon."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    keep_freed_memory()
    sys.path[:] = prefer_package(sys.path)
    from pyspark.daemon import manager

    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]
    if modules := os.environ.get(LOADED_BY_WORKERS):
        preload(modules.split(","))
    manager()


if __name__ == "__main__":
    main()
