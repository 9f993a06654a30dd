"""Start Spark's Python workers fast: sessions that mirrorlake creates set `spark.python.daemon.module` to this module.

PySpark's daemon imports from `pyspark.zip`, which has no compiled modules, and its workers call `importlib.invalidate_caches()` for
each task, after which every zip importer reads the zip's directory again: 190 ms of CPU before a task reaches its own code. From
the installed package of the same Spark it is 50 ms.

Arrow's default memory pool returns each buffer to the kernel, which then clears the next one page by page: with malloc's pool a
fetch of 1 KB records costs 2.7 CPU-s per million instead of 5.3. malloc returns free memory at the end of its heap: without that,
1 KB records cost 1.8 CPU-s per million less to land and to republish.

It stands beside the packages, since it has to choose before pyarrow is loaded.

The imports of long-lived tasks, and pandas, which pyarrow tries to import, are loaded before workers are forked: once, not by each
of three, which then share the memory pages.
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
"""The environment variable with comma-separated modules to import before workers are forked."""

# From glibc's malloc.h: the free memory at the heap's end that is not returned, and the size from which a buffer is mapped alone.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def prefer_package(path: list[str]) -> list[str]:
    """Remove the `pyspark.zip` of an installed pyspark package from an import path.

    Example:
        >>> prefer_package(["/spark/python/lib/pyspark.zip", "/app"])
        ['/spark/python/lib/pyspark.zip', '/app']
    """
    # <folder>/pyspark/python/lib/pyspark.zip: the same installation, so the same version.
    packages = {(Path(entry) / "pyspark" / "python" / "lib" / "pyspark.zip").resolve() for entry in path if entry}
    return [entry for entry in path if not entry or Path(entry).resolve() not in packages]


def keep_freed_memory() -> None:
    """Let malloc retain up to 256 MB of freed memory a process; `BacklogMemory` releases it after a backlog."""
    # Other C libraries lack this function.
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def preload(modules: Iterable[str]) -> None:
    """Import the modules of workers; ignore failures, because the task that needs a module reports them."""
    # Spark reads the daemon's port from its standard output.
    with redirect_stdout(sys.stderr), suppress(Exception):
        for name in modules:
            import_module(name)
        import_module("pyarrow").scalar(0)
    # The garbage collector of a worker would write to the objects' pages, and so copy them.
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
