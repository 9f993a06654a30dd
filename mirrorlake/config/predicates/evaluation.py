"""Lend DuckDB connections that check and evaluate predicates: in memory, one thread, no files, no network."""

from __future__ import annotations

import atexit
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
# Not thread-local: a fork destroys the thread-locals of other threads in the child, and DuckDB's destructor then waits for
# threads that do not exist. The launcher of Spark's JVM, for example, crashed by it (SIGSEGV).
_IDLE: list[duckdb.DuckDBPyConnection] = []
# A thread that waits for ever keeps this module when Python ends, and DuckDB prints 40 lines about what is then left of it.
atexit.register(_IDLE.clear)
# The memory that a connection may retain: DuckDB returns freed memory only when it is closed. A query of a backlog's three
# million records left 870 MB; a new connection costs 12 ms.
_MAX_CACHED_BYTES = 64 << 20


@contextmanager
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection that no other thread uses; made at first use (60 ms), so that it is never pickled."""
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
    """Return the resident memory of this process in bytes, or 0 if unknown."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _connect() -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:", config=_LOCKED)
    connection.execute("SET TimeZone = 'UTC'")
    # After two seconds DuckDB draws it on standard output, even into a JSON document.
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")
    return connection
