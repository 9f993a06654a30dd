"""Start Spark's Python workers light: `spark.python.daemon.module` names this module where mirrorlake makes the session.

PySpark's daemon imports from `pyspark.zip`, which holds no compiled modules, and its workers call
`importlib.invalidate_caches()` for each task, on which every importer of a zip reads the zip's directory again: 190 ms of
CPU before a task reaches its own code. From the installed package of the same Spark it is 50 ms.

Arrow's default memory pool gives each buffer back to the kernel, which then clears the next one page by page: with malloc's
own pool a fetch of 1 KB records costs 2.7 CPU-s per million for 5.3.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from zipimport import zipimporter


def prefer_package(path: list[str]) -> list[str]:
    """Drop from an import path the `pyspark.zip` of a pyspark that the same path holds as an installed package.

    Example:
        >>> prefer_package(["/spark/python/lib/pyspark.zip", "/app"])
        ['/spark/python/lib/pyspark.zip', '/app']
    """
    # <folder>/pyspark/python/lib/pyspark.zip: the same installation, so the same version.
    packages = {(Path(entry) / "pyspark" / "python" / "lib" / "pyspark.zip").resolve() for entry in path if entry}
    return [entry for entry in path if not entry or Path(entry).resolve() not in packages]


def main() -> None:
    """Run PySpark's own daemon."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.path[:] = prefer_package(sys.path)
    from pyspark.daemon import manager

    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]
    manager()


if __name__ == "__main__":
    main()
