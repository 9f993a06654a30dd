"""Make the archives of class data that the JVMs of the suite start from, before its tests take the machine.

    python -m tests.archives

The package makes them beside its first JVMs, as nice as it can. Beside tests that leave no core idle that of Spark was ready
after 40 of 52 minutes (2 cores, an empty cache, 2026-11-23).
"""

from __future__ import annotations

import fcntl
import os

from mirrorlake.runtime import cache_directory, class_archive, find_java, session
from mirrorlake.sandbox import broker


def wait_for_archives(name: str) -> None:
    """Wait until nobody makes an archive of a list of classes."""
    for lock in (cache_directory() / "class-data").glob(f"{name}-*.lock"):
        with lock.open("a") as handle:
            # Held as long as one is being made.
            fcntl.flock(handle, fcntl.LOCK_EX)


def main() -> None:
    class_archive._NICENESS = 0
    java = find_java()
    # Spark's launcher looks nowhere else.
    os.environ["JAVA_HOME"] = str(java.spark_java_home)
    session._driver_conf(java)
    broker._archived()
    for name in ("spark", "broker"):
        wait_for_archives(name)


if __name__ == "__main__":
    main()
