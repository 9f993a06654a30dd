"""Land by long-lived tasks: one, or several that share the partitions of a source (a turn: `live_task.py`)."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mirrorlake.lake import (
    LandingLog,
    count_landed_since,
    landing_interval_s,
    marks_address,
    relay_schema,
)
from mirrorlake.landing.context import LandingContext
from mirrorlake.landing.live_task import BACKLOG_BYTES, CHANGED, DRAINED, UNREADABLE, LandTaskSpec, run_landing_task
from mirrorlake.landing.retry import SourceChanged
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.owner import short_owner
from mirrorlake.runtime import (
    LiveTasks,
    LiveTaskSlots,
    RunMarker,
    TaskResult,
    is_cluster,
    own_session,
)
from mirrorlake.timing import timing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# A task alone lands some 300 000 records a second, but shares its machine with others.
_RECORDS_PER_S, _BACKLOG_RECORDS = 100_000, 5_000_000
# A task for partitions with less than this would land next to nothing.
_BUSY_PER_S, _BUSY_BACKLOG = 100, 10_000
# The number of tasks follows from the records landed within this time.
_RECENT = timedelta(hours=1)
_DESCRIBE_INTERVAL_S, _DESCRIBE_INTERVAL_PARTITION_S = 2.0, 0.001
# How long a drain waits for a partition that has lost its leader: an election takes seconds.
LEADER_TIMEOUT_S = 20.0
_TICK_S = 0.2


class LiveDriver:
    """Run the tasks of one lander. `can_read` turns False at a record that only Java's client can read."""

    def __init__(self, context: LandingContext, tick: Callable[[], None]) -> None:
        self._context = context
        self._tick = tick
        self.can_read = True

    def land(self, start: Mapping[TopicPartition, int], stop: threading.Event, *, once: bool, slot_count: int) -> bool:
        """Land until `stop` is set, or with `once` up to the source's present ends. Return whether all ends were reached.

        If not, the source must be compared again.

        Raises:
            SourceChanged: topics or leaders have changed since the start.
            LanderReplaced: another lander has claimed the relay.
        """
        context, alias = self._context, self._context.settings.alias
        task = self._task(start, once=once)
        spark = None if once and sum(context.backlog.values()) <= timing().max_records_in_process else self._session
        more = self._wanted_tasks(spark) - max(1, slot_count)
        with LiveTaskSlots(lambda: self._session, max(0, more), min_count=0) as slots:
            shares = split_task(task, max(1, slot_count) + slots.taken)
            answers = self._run(spark, task, shares, stop)
        ended = [answer for answer in answers if answer.kind != DRAINED]
        for answer in ended:
            log.warning("land.ended source=%s what=%s why=%s", alias, answer.kind, answer.body.decode())
            self.can_read = self.can_read and answer.kind != UNREADABLE
        if any(answer.kind == CHANGED for answer in ended):
            raise SourceChanged
        return len(answers) - len(ended) == len(shares)

    def _task(self, start: Mapping[TopicPartition, int], *, once: bool) -> LandTaskSpec:
        context, settings, known = self._context, self._context.settings, self._context.topics.known
        lake, alias, relay_claim = context.lake, settings.alias, context.writer.relay_claim()
        context.log = LandingLog(relay_claim)
        newest = context.writer.history.last_batch
        return LandTaskSpec(
            relay_claim=relay_claim,
            schema=relay_schema(),
            options=settings.reader_options,
            start=context.key_by_source(start),
            read_to=context.read_to,
            topic_ids={tp.topic: known[tp.topic].topic_id for tp in {*start, *context.leaderless}},
            leader_epochs={tp: known[tp.topic].leader_epochs.get(tp.partition, -1) for tp in start},
            ends=context.admin.last_stable_offsets(start) if once else None,
            marks="" if once else marks_address(lake, alias),
            leaderless=context.leaderless,
            landed=None if newest is None else (newest.checkpoint, newest.batch),
            landed_until=context.landed_until,
            pace_s=landing_interval_s(relay_claim.path, settings.trigger),
            follows_cpu=not settings.trigger,
            max_records=settings.max_records_per_batch,
            max_bytes=min(BACKLOG_BYTES, settings.max_bytes_per_batch or BACKLOG_BYTES),
            run_marker=RunMarker(f"{lake.checkpoint_root()}/live/land.{alias}", relay_claim.number),
        )

    def _wanted_tasks(self, spark: SparkSession | None) -> int:
        context = self._context
        if spark is None:
            return 1
        if context.settings.tasks is not None:
            return context.settings.tasks
        if not is_cluster(spark):
            return 1
        lately = count_landed_since(context.lake, context.settings.alias, context.now() - _RECENT)
        return wanted_tasks(context.backlog, {tp: count / _RECENT.total_seconds() for tp, count in lately.items()})

    @cached_property
    def _session(self) -> SparkSession:
        return own_session(self._context.lake.spark)

    def _run(
        self, spark: SparkSession | None, task: LandTaskSpec, shares: Sequence[LandTaskSpec], stop: threading.Event
    ) -> list[TaskResult]:
        """Run the shares of a task until `stop` is set, one ends, or the source's topics change. Return their results.

        Shares without ends stop together. Without a session they run in threads of this process.
        """
        # A check for new topics takes 10 us of CPU per partition.
        interval_s = max(_DESCRIBE_INTERVAL_S, _DESCRIBE_INTERVAL_PARTITION_S * len(task.start))
        next_describe = time.monotonic() + interval_s
        name = f"land {task.relay_claim.alias}@{short_owner(task.relay_claim.owner)}"
        options: Any = {"run_marker": task.run_marker, "name": name, "grace_s": timing().grace_s}
        with LiveTasks(
            spark, shares, run_landing_task, end_apart=task.ends is not None and len(shares) > 1, **options
        ) as tasks:
            led_at = time.monotonic()
            while not tasks.wait(_TICK_S) and not stop.is_set():
                self._tick()
                if time.monotonic() >= next_describe:
                    states = self._context.describe()
                    if not task.covers(states):
                        break
                    next_describe = time.monotonic() + interval_s
                    led_at = led_at if task.waits_for_leader(states) else time.monotonic()
                    if time.monotonic() - led_at > LEADER_TIMEOUT_S:
                        # The next start leaves the partition out, and logs it.
                        break
        self._context.update_landed()
        return tasks.results()


def wanted_tasks(backlog: Mapping[TopicPartition, int], per_s: Mapping[TopicPartition, float]) -> int:
    """Return how many tasks a source needs, by its backlog and by the records landed per second lately."""
    busy = {tp for tp, records in backlog.items() if records >= _BUSY_BACKLOG}
    busy |= {tp for tp, rate in per_s.items() if rate >= _BUSY_PER_S}
    work = max(sum(backlog.values()) / _BACKLOG_RECORDS, sum(per_s.values()) / _RECORDS_PER_S)
    return max(1, min(len(busy), math.ceil(work)))


def split_task(task: LandTaskSpec, groups: int) -> list[LandTaskSpec]:
    """Split a task into at most so many by partition; each share knows how far all partitions were read."""
    dealt: dict[int, dict[SourcePartition, int]] = {}
    for source, offset in task.start.items():
        dealt.setdefault(lane_of(source.topic, source.partition, lanes=groups), {})[source] = offset
    if len(dealt) < 2:
        return [task]
    return [
        replace(
            task,
            relay_claim=replace(task.relay_claim, group=group),
            groups=len(dealt),
            start=start,
            read_to={**task.read_to, **task.start},
            ends=None if task.ends is None else _ends_of_share(start, task.ends),
            leaderless=frozenset() if group else task.leaderless,
        )
        for group, (_, start) in enumerate(sorted(dealt.items()))
    ]


def _ends_of_share(
    start: Mapping[SourcePartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    mine = {source.tp for source in start}
    return {tp: end for tp, end in ends.items() if tp in mine}
