"""Load the names of a package at their first use (PEP 562): `import mirrorlake` takes less than 0.3 s, a command only its rooms.

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


def attach(package: str, *own: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package from its `__init__.pyi`.

    `own` are names that the package itself holds.
    """
    module: Any = sys.modules[package]
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
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        value = import_module(f"{package}.{original}") if home == package else getattr(import_module(home), original)
        setattr(module, name, value)
        return value

    names = sorted([*own, *homes])
    return load, lambda: names, names
