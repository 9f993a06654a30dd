"""Names of the last release that still work: each warns with the name that took its place, and goes with the next release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any


def warn_renamed(old: str, new: str, *, stacklevel: int = 2) -> None:
    """Warn the caller's caller that a name has changed."""
    text = f"`{old}` is now `{new}`; the next release does not know the old name"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)


class RenamedWord(str):
    """A word that also equals its name of the last release, with a warning.

    Example:
        >>> RenamedWord("caught_up", before="in_step") == "caught_up"
        True
    """

    __slots__ = ("_before",)
    _before: str

    def __new__(cls, word: str, *, before: str) -> RenamedWord:
        """Return the word; it equals `before`, too."""
        made = super().__new__(cls, word)
        made._before = before
        return made

    def __eq__(self, other: object) -> bool:
        if other == self._before:
            warn_renamed(self._before, str(self))
            return True
        return str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        return (str(self),), {"before": self._before}


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
