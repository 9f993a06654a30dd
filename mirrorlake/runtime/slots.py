"""The slots of Spark that long-lived tasks hold."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from mirrorlake.runtime.cluster import PAGE, is_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class _Slots:
    """The slots of this process' Spark that long-lived tasks hold; as many as there are cores stay free for all other work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = 0

    def take(self, spark: SparkSession, count: int, least: int) -> int:
        with self._lock:
            most = _live_slots(spark)
            taken = max(0, min(count, most - self._held))
            if taken < least:
                if is_cluster(spark):
                    # Nothing fails, and everything is slower: said once a stream.
                    log.warning(
                        "tasks.by_batches asked=%s held=%s most=%s next=--conf spark.mirrorlake.liveSlots=%s (%s)",
                        *(count, self._held, most, self._held + count, PAGE),
                    )
                return 0
            self._held += taken
            return taken

    def give_back(self, count: int) -> None:
        with self._lock:
            self._held -= count


_SLOTS = _Slots()


class HeldSlots:
    """Hold slots for long-lived tasks in a `with` block; `enough` tells whether there were as many.

    With `least` fewer are enough, and `held` says how many. The session is asked for only where slots are.
    """

    def __init__(self, spark: Callable[[], SparkSession], count: int, *, least: int | None = None) -> None:
        self._spark = spark
        self._count = count
        self._least = count if least is None else least
        self.enough = False
        self.held = 0

    def __enter__(self) -> HeldSlots:
        self.held = _SLOTS.take(self._spark(), self._count, self._least) if self._count else 0
        self.enough = self.held >= self._least
        return self

    def __exit__(self, *_: object) -> None:
        _SLOTS.give_back(self.held)


def _live_slots(spark: SparkSession) -> int:
    """Tell how many slots long-lived tasks may hold: those past the cores of a local session, on a cluster what it says."""
    said = spark.conf.get("spark.mirrorlake.liveSlots", "")
    if said:
        return int(said)
    master = spark.conf.get("spark.master", "")
    with suppress(ValueError):
        if master.startswith("local["):
            return max(0, int(master[6:-1].partition(",")[0]) - (os.cpu_count() or 1))
    return 0
