"""The DuckDB in which predicates are checked and evaluated: in memory, one thread, no files, no network."""

from __future__ import annotations

import threading
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
_THREAD = threading.local()


def engine() -> duckdb.DuckDBPyConnection:
    """Return this thread's connection; made when it is first needed (60 ms), so that nothing of it is ever pickled."""
    connection: duckdb.DuckDBPyConnection | None = getattr(_THREAD, "connection", None)
    if connection is None:
        import duckdb

        connection = _THREAD.connection = duckdb.connect(":memory:", config=_LOCKED)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET lock_configuration = true")
    return connection
