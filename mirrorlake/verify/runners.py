"""Run comparisons in threads of this process or, for very many records, in the tasks of one Spark job.

Both run `compare_unit`. A task reads the relay's files itself and returns mismatches, digests and counts; neither records nor
their offsets come back.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import RelayFile
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.runtime import TaskResult, find_failure, run_tasks
from mirrorlake.verify.feeds import FeedKey
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.unit import ComparisonUnit, Ends, Fetching, UnitResult, compare_unit, fetch_as_consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A job costs seconds to start its workers and consumers, so fewer records are compared in threads.
JOB_RECORDS = 5_000_000
# Python code uses one core; decompression, digests and Parquet decoding run beside it.
_THREADS = 2
# Partitions of one consumer: more cost memory, fewer cost connections.
_MAX_PARTITIONS = 16
# A topic with hundreds of partitions gets about this many tasks, because each opens a consumer.
_TASKS = 64
_COMPARED = "compared"


class FedEnd(Protocol):
    """The origin of a feed's rows: a relay, or the source in its place."""

    def rows(self, source: SourcePartition, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range in offset order, each offset once."""

    def files(self, source: SourcePartition, span: OffsetRange) -> tuple[RelayFile, ...]:
        """List the files that hold a range, for a task."""


FedBy = Callable[[FeedKey], FedEnd]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerChoice:
    """Choose the runner of a hop's comparisons; without a session it is threads. A custom `fetching` needs threads.

    `max_partitions` bounds the partitions that a thread compares at once.
    """

    session: SparkSession | None = None
    fetching: Fetching | None = None
    max_partitions: int = _MAX_PARTITIONS

    def choose(self, spans: Collection[OffsetRange]) -> ThreadRunner | SparkJobRunner:
        """Return the runner for some partitions, one range of each."""
        if self.fetching is not None:
            return ThreadRunner(self.fetching)
        if self.session is None or sum(span.end - span.first for span in spans) < JOB_RECORDS:
            return ThreadRunner(max_partitions=self.max_partitions)
        return SparkJobRunner(self.session, max_partitions=min(_MAX_PARTITIONS, -(-len(spans) // _TASKS)))


class ThreadRunner:
    """Compare units in this process, two at a time; a unit may have up to `max_partitions`."""

    def __init__(self, fetching: Fetching = fetch_as_consumer, *, max_partitions: int = _MAX_PARTITIONS) -> None:
        self.max_partitions = max_partitions
        self._fetching = fetching

    def compare(
        self, units: Iterable[ComparisonUnit], *, fed_by: FedBy, admin: ClusterAdmin, tell: Callable[[int], None]
    ) -> list[UnitResult]:
        """Compare units, and return their results in the same order.

        Raises:
            ClusterError: the cluster does not answer, or a partition does not come to its end.
        """
        compare = partial(
            compare_unit,
            rows=lambda feed: fed_by(feed.key).rows(feed.source, feed.span),
            earliest=admin.log_start_offsets,
            latest=admin.last_stable_offsets,
            fetching=self._fetching,
            tell=tell,
        )
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="verify") as pool:
            return list(pool.map(compare, units))


class SparkJobRunner:
    """Compare units in Spark tasks, as many in parallel as Spark has slots; a task reads the relay's files itself."""

    def __init__(self, session: SparkSession, *, max_partitions: int) -> None:
        self.max_partitions = max(1, max_partitions)
        self._session = session

    def compare(
        self,
        units: Iterable[ComparisonUnit],
        *,
        fed_by: FedBy,
        admin: ClusterAdmin,  # noqa: ARG002  a task has its own
        tell: Callable[[int], None],
    ) -> list[UnitResult]:
        """Compare units, and return their results in the same order (see `ThreadRunner.compare`)."""
        sent = [_with_files(unit, fed_by) for unit in units]
        if not sent:
            return []
        answers = run_tasks(self._session, list(enumerate(sent)), _compare_in_task)
        if (failure := find_failure(answers)) is not None:
            raise failure
        found = dict(_unpack_result(sent, answer) for answer in answers)
        tell(sum(one.matched for result in found.values() for one in result.by_feed))
        return [found[number] for number in range(len(sent))]


def _with_files(unit: ComparisonUnit, fed_by: FedBy) -> ComparisonUnit:
    feeds = (replace(feed, files=fed_by(feed.key).files(feed.source, feed.span)) for feed in unit.feeds)
    return replace(unit, feeds=tuple(feeds))


def _compare_in_task(work: tuple[int, ComparisonUnit]) -> Iterator[TaskResult]:
    number, unit = work

    def ask(ends: Callable[[ClusterAdmin, Iterable[TopicPartition]], Mapping[TopicPartition, int]]) -> Ends:
        return lambda partitions: ends(ClusterAdmin(unit.alias, unit.options), partitions)

    found = compare_unit(
        unit, earliest=ask(ClusterAdmin.log_start_offsets), latest=ask(ClusterAdmin.last_stable_offsets)
    )
    # The driver has the offsets already, and the options hold secrets.
    small = replace(found, unit=replace(found.unit, feeds=(), options={}))
    yield TaskResult(_COMPARED, pickle.dumps((number, small)))


def _unpack_result(sent: Sequence[ComparisonUnit], answer: TaskResult) -> tuple[int, UnitResult]:
    number, found = pickle.loads(answer.body)  # noqa: S301  of a task of this job
    unit = sent[number]
    if found.unit.spans != unit.spans:
        unit = unit.within(found.unit.spans)
    return number, replace(found, unit=unit)
