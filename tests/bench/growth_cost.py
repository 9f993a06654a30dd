"""How the growth benchmarks measure and say: CPU of this process, since the machine may have other work."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def say(**values: Any) -> None:
    """Print one line a measurement."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def cost(do: Callable[[], object], times: int = 3) -> dict[str, float]:
    """Measure what a call takes on average, after one that is not counted."""
    do()
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(times):
        do()
    return {
        "ms": round((time.monotonic() - began) / times * 1000, 1),
        "cpu_ms": round((time.process_time() - cpu) / times * 1000, 1),
    }


def least(
    do: Callable[[], object], times: int = 3, *, before: Callable[[], object] = lambda: None, digits: int = 1
) -> float:
    """Measure the least CPU-milliseconds of several calls, after one that is not counted; nor is what is done `before` each."""
    took = []
    for _ in range(times + 1):
        before()
        cpu = time.process_time()
        do()
        took.append(time.process_time() - cpu)
    return round(min(took[1:]) * 1000, digits)
