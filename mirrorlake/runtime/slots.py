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


class LiveTaskSlots:
    """Reserve `count` slots for long-lived tasks in a `with` block; `is_enough` is whether they were free.

    With `min_count` fewer are enough; `taken` is their number. The session is created only if `count` is not 0.
    """

    _lock = threading.Lock()
    # The slots that long-lived tasks use in this process' Spark; one a core stays free for all other work.
    _in_use = 0

    def __init__(self, spark: Callable[[], SparkSession], count: int, *, min_count: int | None = None) -> None:
        self._spark = spark
        self._count = count
        self._min_count = count if min_count is None else min_count
        self.is_enough = False
        self.taken = 0

    def __enter__(self) -> LiveTaskSlots:
        self.taken = self._take(self._spark()) if self._count else 0
        self.is_enough = self.taken >= self._min_count
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            LiveTaskSlots._in_use -= self.taken

    def _take(self, spark: SparkSession) -> int:
        with self._lock:
            max_slots, in_use = _live_slots(spark), LiveTaskSlots._in_use
            taken = max(0, min(self._count, max_slots - in_use))
            if taken < self._min_count:
                if is_cluster(spark):
                    # Nothing fails but everything is slower; logged once a stream.
                    log.warning(
                        "tasks.by_batches asked=%s held=%s most=%s next=--conf spark.mirrorlake.liveSlots=%s (%s)",
                        *(self._count, in_use, max_slots, in_use + self._count, PAGE),
                    )
                return 0
            LiveTaskSlots._in_use += taken
            return taken


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
