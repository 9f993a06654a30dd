"""The face of a room: what other rooms may use of it, as its `__init__.pyi` lists it.

`lazy_loader.attach_stub` does the same, but reads the stub from the file system; a wheel that Spark ships to workers with
`--py-files` is imported from its zip.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(room: str, *own: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package; a name is loaded when it is first asked for (PEP 562).

    `own` are names that the package itself holds.

    Example:
        >>> from mirrorlake import lag
        >>> "Verdict" in lag.__all__
        True
    """
    module: Any = sys.modules[room]
    # As it is written: in an executor's working directory a `Path` would drop the first two characters of "./mirrorlake.zip".
    stub = module.__spec__.loader.get_data(f"{os.path.dirname(module.__file__)}{os.sep}__init__.pyi")  # noqa: PTH120
    homes = {
        name.asname or name.name: (node.module or "", name.name)
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        home, original = homes[name]
        value = import_module(f"{room}.{original}") if home == room else getattr(import_module(home), original)
        setattr(module, name, value)
        return value

    names = sorted([*own, *homes])
    return load, lambda: names, names
