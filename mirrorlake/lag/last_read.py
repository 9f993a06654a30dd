"""What several questions about the same tables have in common, read once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LastRead(Generic[Value]):
    """The newest value that was read, and what it was read of; several threads that want it at once read it once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Hashable, Value] | None = None

    def of(self, key: Hashable, read: Callable[[], Value]) -> Value:
        """Return the value of a key, read if the last one was of another."""
        with self._lock:
            if self._held is None or self._held[0] != key:
                self._held = key, read()
            return self._held[1]
