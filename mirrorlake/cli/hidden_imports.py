"""Packages that others look for at import and a command never needs: looking for them costs half as much as asking a question."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_HIDDEN = frozenset({"pandas", "tornado"})


class _Nowhere(MetaPathFinder):
    """Finds the spared packages nowhere."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _HIDDEN:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)
        return None


def hide_unused_imports() -> None:
    """Load pyarrow without pandas, and tenacity without tornado: 0.35 CPU-s of every command (2026-11-22).

    What asks pyarrow for a frame of pandas still gets it: only the first look, which needs none, finds nothing. Only for a
    process of our own: there, nobody hands pyarrow an object of pandas before.
    """
    with _hidden():
        import pyarrow as pa
        import tenacity  # noqa: F401  it looks for tornado once

        # Looks for pandas, and remembers what it found.
        pa.scalar(0)


@contextmanager
def _hidden() -> Iterator[None]:
    finder = _Nowhere()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
