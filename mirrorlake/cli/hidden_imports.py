"""Hide optional packages from imports: a command never needs them, and they cost half as much as a query."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_HIDDEN = frozenset({"pandas", "tornado"})


class _Nowhere(MetaPathFinder):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _HIDDEN:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)
        return None


def hide_unused_imports() -> None:
    """Load pyarrow without pandas, and tenacity without tornado: 0.35 CPU-s of every command (2026-11-22).

    pyarrow still converts to pandas frames: only its first check, which needs no pandas, finds none. Only for our own processes:
    nobody passes pyarrow a pandas object before. Nor does pydantic look for plugins among all packages, which costs 0.04 CPU-s.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    finder = _Nowhere()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa
        import tenacity  # noqa: F401  it checks for tornado once

        # Checks for pandas, and caches the result.
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
