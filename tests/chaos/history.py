"""What happened when, and what was found."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was broken."""

    kind: str
    text: str


@dataclass(slots=True)
class History:
    """The events of a run, in order; `loud` prints each as it happens."""

    loud: bool = False
    events: list[tuple[float, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        with self._lock:
            self.events.append((self.now_s, text))
        if self.loud:
            sys.stderr.write(f"{self.now_s:7.1f} s  {text}\n")
            sys.stderr.flush()

    def find(self, kind: str, text: str) -> None:
        with self._lock:
            self.findings.append(Finding(kind, text))
        self.say(f"FOUND {kind}: {text}")

    def text(self) -> str:
        return "".join(f"{at:7.1f} s  {what}\n" for at, what in self.events)
