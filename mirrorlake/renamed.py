"""Names of the last release that still work: each warns with the name that took its place, and goes with the next release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any


def warn_renamed(old: str, new: str, *, stacklevel: int = 2) -> None:
    """Warn the caller's caller that a name has changed."""
    text = f"`{old}` is now `{new}`; the next release does not know the old name"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)


def renamed_method(old: str, new: str) -> Callable[..., Any]:
    """Make a method under its old name: it warns, and calls the method of the new name."""

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        warn_renamed(old, new)
        return getattr(self, new)(*arguments, **options)

    call.__name__ = call.__qualname__ = old
    call.__doc__ = f"Do what `{new}` does; deprecated."
    return call


def renamed_attributes(module: str, names: Mapping[str, str], load: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module whose old `names` warn; other names are loaded as before."""

    def get(name: str) -> Any:
        if name in names:
            warn_renamed(f"{module}.{name}", f"{module}.{names[name]}")
            name = names[name]
        return load(name)

    return get
