"""A record that an application publishes, with its delivery report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CREATE_TIME = 1  # confluent_kafka.TIMESTAMP_CREATE_TIME
Headers = Sequence[tuple[str, Any]] | Mapping[str, Any] | None
OnDelivery = Callable[[Any, "Message"], object]


@dataclass(slots=True, eq=False)
class Message:
    """One record to publish; its methods are those of `confluent_kafka.Message`."""

    _topic: str
    _partition: int
    _key: bytes | None
    _value: bytes | None
    _headers: list[tuple[str, bytes | None]] | None
    _timestamp_ms: int
    _on_delivery: OnDelivery | None
    _offset: int | None = None

    def __len__(self) -> int:
        return len(self._value or b"")

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        """Return the partition; -1 before publication, unless one was requested."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset in the relay, which is the upstream offset of every flow; None before publication."""
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        """Return the value; None is a tombstone."""
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers in their order, or None without any."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type (1, CreateTime) and milliseconds since 1970."""
        return CREATE_TIME, self._timestamp_ms

    def error(self) -> None:
        """Return None: a record is published, or it stays queued."""

    @property
    def size(self) -> int:
        inner = sum(len(name.encode()) + len(value or b"") for name, value in self._headers or ())
        return len(self._key or b"") + len(self._value or b"") + inner

    def place(self, partition: int, offset: int) -> Callable[[], object] | None:
        """Set the published partition and offset; return the delivery report to serve, or None without a callback."""
        self._partition, self._offset = partition, offset
        report = self._on_delivery
        return None if report is None else lambda: report(None, self)


def bytes_of(value: bytes | str | None) -> bytes | None:
    """Encode text as UTF-8; bytes and None are returned as they are."""
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(f"a key or a value is bytes or text, not {type(value).__name__}")


def pairs_of(headers: Headers) -> list[tuple[str, bytes | None]] | None:
    """Return headers as pairs, or None without any."""
    items = headers.items() if isinstance(headers, Mapping) else headers or ()
    pairs = [(name, bytes_of(value)) for name, value in items]
    if any(not isinstance(name, str) for name, _ in pairs):
        raise TypeError("a header's key is text")
    return pairs or None
