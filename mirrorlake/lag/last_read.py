"""Cache the last value that was read, for queries that share it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LastRead(Generic[Value]):
    """The last value and its key; threads that need it at once read it once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Hashable, Value] | None = None

    def of(self, key: Hashable, read: Callable[[], Value]) -> Value:
        """Return the value of a key, and read it if the last value had another key."""
        with self._lock:
            if self._held is None or self._held[0] != key:
                self._held = key, read()
            return self._held[1]
