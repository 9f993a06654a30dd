"""Import pyspark in one thread at a time."""

from __future__ import annotations

import threading
from functools import cache
from importlib import import_module

_MODULES = ("sql", "sql.functions", "sql.types", "sql.streaming", "errors", "cloudpickle")
_LOADING = threading.Lock()


@cache
def load_pyspark() -> None:
    """Import the modules of pyspark that mirrorlake uses; call it before anything of pyspark is imported in a function.

    They import one another in circles. Two threads that begin at two of them would each wait for the other, and Python then
    gives one of them a module that is half imported (`ImportError: partially initialized module`).
    """
    with _LOADING:
        for name in _MODULES:
            import_module(f"pyspark.{name}")
