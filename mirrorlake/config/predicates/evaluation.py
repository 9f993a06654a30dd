"""The DuckDB in which predicates are checked and evaluated: in memory, one thread, no files, no network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_LOCKED: dict[str, str | bool | int | float | list[str]] = {
    # Spark counts a Python worker as one core.
    "threads": 1,
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # A predicate could otherwise name a variable of this process as a table.
    "python_enable_replacements": "false",
}
# Not a thread's own: a process that forks destroys what its other threads keep as theirs, in the child, where DuckDB then
# waits for threads that do not exist. So ends the launcher of Spark's JVM, for one (SIGSEGV).
_IDLE: list[duckdb.DuckDBPyConnection] = []
# What one connection may keep of the process's memory: DuckDB gives back what it freed when it is closed, not before. A question
# about the three million records of a backlog left 870 MB; another connection costs 12 ms.
_MAX_CACHED_BYTES = 64 << 20


@contextmanager
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection that no other thread uses; made when it is first needed (60 ms), so that nothing of it is ever pickled."""
    try:
        connection = _IDLE.pop()
    except IndexError:
        connection = _connect()
    held = _resident()
    try:
        yield connection
    finally:
        if _resident() - held > _MAX_CACHED_BYTES:
            connection.close()
        else:
            _IDLE.append(connection)


def _resident() -> int:
    """Read how much memory this process holds; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _connect() -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:", config=_LOCKED)
    connection.execute("SET TimeZone = 'UTC'")
    # Past two seconds it is drawn on standard output, also where that is one JSON document.
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")
    return connection
