"""Reserve Spark's task slots for long-lived tasks."""

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
    """The slots that long-lived tasks use in this process' Spark; one a core stays free for all other work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, spark: SparkSession, count: int, min_count: int) -> int:
        with self._lock:
            max_slots = _live_slots(spark)
            taken = max(0, min(count, max_slots - self._taken))
            if taken < min_count:
                if is_cluster(spark):
                    # Nothing fails but everything is slower; logged once a stream.
                    log.warning(
                        "tasks.by_batches asked=%s held=%s most=%s next=--conf spark.mirrorlake.liveSlots=%s (%s)",
                        *(count, self._taken, max_slots, self._taken + count, PAGE),
                    )
                return 0
            self._taken += taken
            return taken

    def give_back(self, count: int) -> None:
        with self._lock:
            self._taken -= count


_SLOTS = _Slots()


class LiveTaskSlots:
    """Reserve `count` slots for long-lived tasks in a `with` block; `is_enough` is whether they were free.

    With `min_count` fewer are enough; `taken` is their number. The session is created only if `count` is not 0.
    """

    def __init__(self, spark: Callable[[], SparkSession], count: int, *, min_count: int | None = None) -> None:
        self._spark = spark
        self._count = count
        self._min_count = count if min_count is None else min_count
        self.is_enough = False
        self.taken = 0

    def __enter__(self) -> LiveTaskSlots:
        self.taken = _SLOTS.take(self._spark(), self._count, self._min_count) if self._count else 0
        self.is_enough = self.taken >= self._min_count
        return self

    def __exit__(self, *_: object) -> None:
        _SLOTS.give_back(self.taken)


def _live_slots(spark: SparkSession) -> int:
    """Return the slots for long-lived tasks: by `spark.mirrorlake.liveSlots`, else those past a local session's cores."""
    setting = spark.conf.get("spark.mirrorlake.liveSlots", "")
    if setting:
        return int(setting)
    master = spark.conf.get("spark.master", "")
    with suppress(ValueError):
        if master.startswith("local["):
            return max(0, int(master[6:-1].partition(",")[0]) - (os.cpu_count() or 1))
    return 0
