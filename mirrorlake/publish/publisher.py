"""Publish: applications write once into the relay of a lake cluster, and flows carry it to every target.

Law F (repeatable): offsets are dense, even beside other publishers. A commit has the transaction version after the last one that
its publisher knows, of one transaction id for the cluster. Of two publishers that start from the same state Delta accepts one;
the other's commit fails or is dropped silently. So each commit is signed, searched in the table's history, and repeated with
fresh offsets if it is missing.

Commit times only grow, whatever the publishers' clocks say: later commits are selected by time, and a clock that is
set back changes no offset. The end of the relay is read from the relay and its history, never from `positions`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from mirrorlake.config.schema import ClusterConfig, topic_fault
from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError, StoreError, UsageError
from mirrorlake.lake import (
    APP,
    TICK,
    Lake,
    PublishLog,
    Signature,
    SourceTopics,
    Tail,
    summarize_landed_after,
)
from mirrorlake.model.causes import root_cause
from mirrorlake.model.flow import SourcePartition
from mirrorlake.publish.published_ends import PublishedEnds
from mirrorlake.publish.rows import DEFAULT_LIMIT, REFUSAL, TopicLimits, placed, relay_rows, shaped
from mirrorlake.topics import LakeTopics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A commit takes about half a second, so each of a hundred parallel publishers gets its turn within this time.
_PATIENCE_S = 300.0
# A Kafka producer reads partition counts every five minutes (`metadata.max.age.ms`).
_REFRESH_S = 60.0
# Delta's errors for a commit that came second.
_OVERTAKEN = ("DELTA_CONCURRENT", "ConcurrentTransaction", "ConcurrentAppend", "ConcurrentWrite", "MetadataChanged")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRange:
    """The records published to one partition: first and last offset, both included."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The records that one call published; `repeated` if an earlier call had published the batch and this one did nothing."""

    cluster: str
    records: int
    partitions: tuple[PublishedRange, ...]
    batch_id: str | None = None
    repeated: bool = False


class _OvertakenError(Exception):
    """Another publisher's commit came first: retry with fresh offsets."""


def publisher_of(context: Context, cluster: str | None = None) -> Publisher:
    """Return the publisher into a lake cluster, or into the only one; all threads of a mirror share it.

    Raises:
        UsageError: there is no such lake cluster, or there are several and none is named; or the session is one of Spark Connect.
    """
    context.require_classic_session()
    return context.shared(_make_publisher, context.config.lake_cluster(cluster))


def _make_publisher(context: Context, alias: str) -> Publisher:
    return Publisher(alias, context.config.cluster(alias), context.lake, now=context.now)


class Publisher:
    """Publish into one lake cluster; threads may share it."""

    def __init__(self, alias: str, config: ClusterConfig, lake: Lake, *, now: Callable[[], datetime]) -> None:
        self.alias = alias
        self._config = config
        self._lake = lake
        self.now = now
        self._location = lake.relay_location(alias)
        self._log = PublishLog(lake, alias)
        self._topics = SourceTopics(lake, alias)
        self._declared = LakeTopics(alias, config, lake)
        self._tail: Tail | None = None
        self._is_fresh = False
        self._ends = PublishedEnds(lake, alias, self._topics)
        self._next_load = 0.0
        self._is_ready = False
        self._lock = threading.RLock()

    def publish(self, frame: DataFrame, *, topic: str | None = None, batch_id: str | None = None) -> Published:
        """Append a frame of records in one commit (see `Mirror.publish`).

        Raises:
            UsageError: the frame, a topic or a record does not fit; nothing was published.
            StoreError: the lake failed; says whether anything was published.
        """
        rows = shaped(frame, topic=topic)
        with self._lock:
            self._make_ready()
            if found := self._batch(batch_id, is_new=False):
                return found
            names = [topic] if topic else [row.topic for row in rows.select("topic").distinct().collect() if row.topic]
            return self.append(placed(rows, self.limits(names)), batch_id=batch_id)

    def limits(self, names: Iterable[str]) -> dict[str, TopicLimits]:
        """Return the limits of the topics: partitions and record size; a new topic, or a grown one, is recorded first.

        Raises:
            UsageError: no record may be published to a topic of that name.
        """
        wanted = sorted(set(names))
        with self._lock:
            self._make_ready()
            for name in wanted:
                if fault := topic_fault(name):
                    raise UsageError(fault[0], consequence="nothing was published", remedy=fault[1])
            if time.monotonic() >= self._next_load:
                self._topics.load()
                self._next_load = time.monotonic() + _REFRESH_S
            states = {name: self._declared.state(name, self._topics.known.get(name)) for name in wanted}
            if landed := self._topics.recreated(states):
                raise UsageError(
                    f"the relay of {self.alias} holds landed records of {', '.join(landed)}: it was a Kafka cluster's",
                    consequence="nothing was published",
                    remedy="give the lake cluster an alias of its own",
                )
            self._topics.observe(states, self._declared, at=self.now())
            known, configs = self._topics.known, self._declared.configs(wanted)
            return {
                name: TopicLimits(
                    partitions=known[name].partitions,
                    max_bytes=int(configs[name].get("max.message.bytes", DEFAULT_LIMIT)),
                )
                for name in wanted
            }

    def append(self, rows: DataFrame, *, batch_id: str | None = None, is_new: bool = False) -> Published:
        """Append placed rows in one commit: `topic, partition, timestamp, key, value, headers, rank`, in the order of relay files.

        A second call with a `batch_id` does nothing. `is_new`: only this publisher can have used that name, so the earlier history need
        not be searched.
        """
        attempts = Retrying(
            retry=retry_if_exception_type(_OvertakenError),
            stop=stop_after_delay(_PATIENCE_S),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            retry_error_callback=self._give_up,
        )
        with self._lock:
            self._make_ready()
            done: Published = attempts(self._attempt, rows, batch_id, is_new)
            if self._tail is not None and self._is_fresh:
                self._ends.sample(self._tail)
        return done

    def append_batch(self, rows: pa.Table, *, name: str) -> Published:
        """Append placed rows of a producer's batch, whose name no other publisher uses."""
        # One file a batch, with its partitions one after another.
        return self.append(self._lake.spark.createDataFrame(rows).coalesce(1), batch_id=name, is_new=True)

    # -- one attempt ----------------------------------------------------------------------------------------------

    def _attempt(self, rows: DataFrame, batch_id: str | None, is_new: bool) -> Published:
        if found := self._batch(batch_id, is_new=is_new):
            return found
        tail = self._tail if self._tail and self._is_fresh else self._log.tail(self._tail)
        self._tail = tail
        # The end of the relay is unknown until this attempt has finished.
        self._is_fresh = False
        signature = Signature(
            id=uuid.uuid4().hex,
            version=tail.version + 1,
            landed_at=max(self.now(), tail.landed_at + TICK),
            before=tail.reached,
            batch_id=batch_id,
        )
        offsets = {s.tp: offset for s, offset in tail.reached.items()}
        dense = relay_rows(rows, offsets, landed_at=signature.landed_at)
        failure: Exception | None = None
        try:
            self._lake.append_frame(
                dense,
                self._location,
                app_id=f"{APP}.{self.alias}",
                version=signature.version,
                signature=signature.to_text(),
            )
        except Exception as error:
            # The commit may have succeeded although its writer failed after it.
            failure = error
        if not self._is_committed(signature):
            if failure is None or any(word in f"{type(failure).__name__} {failure}" for word in _OVERTAKEN):
                raise _OvertakenError from failure
            raise self._as_mirrorlake_error(failure) from failure
        done, reached = self._read_back(signature)
        self._tail = Tail(version=signature.version, landed_at=signature.landed_at, reached={**tail.reached, **reached})
        self._is_fresh = True
        return done

    def _is_committed(self, signature: Signature) -> bool:
        try:
            self._log.refresh()
        except Exception as error:
            name = f"batch_id '{signature.batch_id}'" if signature.batch_id else "a batch_id, from the first try on"
            raise StoreError(
                f"publishing into {self.alias} failed while reading whether the commit was made: {root_cause(str(error))}",
                consequence="the batch may or may not have been published",
                remedy=f"publish the batch again with {name}, which publishes nothing twice",
                alias=self.alias,
            ) from error
        return signature.id in self._log.ids

    def _read_back(self, signature: Signature) -> tuple[Published, dict[SourcePartition, int]]:
        at = signature.landed_at
        spans = summarize_landed_after(self._lake, self.alias, {}, at - TICK, at)
        places = {SourcePartition(span.topic, span.generation, span.partition): span for span in spans}
        self._ends.published({source: span.newest for source, span in places.items()})
        done = Published(
            cluster=self.alias,
            records=sum(int(span.records) for span in spans),
            partitions=tuple(
                PublishedRange(
                    topic=source.topic,
                    partition=source.partition,
                    first_offset=int(span.first),
                    last_offset=int(span.last),
                )
                for source, span in sorted(places.items())
            ),
            batch_id=signature.batch_id,
        )
        return done, {source: int(span.last) + 1 for source, span in places.items()}

    def _batch(self, batch_id: str | None, *, is_new: bool) -> Published | None:
        if batch_id is None:
            return None
        # The log has this publisher's own commits, unless an attempt did not finish.
        if not is_new or not self._is_fresh:
            self._log.refresh(whole=not is_new)
        signature = self._log.batches.get(batch_id)
        if signature is None:
            return None
        return replace(self._read_back(signature)[0], repeated=True)

    # -- around it ------------------------------------------------------------------------------------------------

    def _make_ready(self) -> None:
        if not self._is_ready:
            self._lake.create_all([self.alias])
            self._is_ready = True

    def _give_up(self, _: Any) -> Any:
        raise StoreError(
            f"for {_PATIENCE_S:.0f} s other publishers into {self.alias} committed first",
            consequence="nothing was published",
            remedy="publish larger batches less often, or through one producer",
            alias=self.alias,
        )

    def _as_mirrorlake_error(self, failure: Exception) -> MirrorlakeError:
        if isinstance(failure, MirrorlakeError):
            return failure
        _, marked, rest = str(failure).partition(REFUSAL)
        if marked:
            return UsageError(
                f"{rest.splitlines()[0]}: no flow could mirror it" if rest else "a record cannot be published",
                consequence="nothing was published",
                remedy="change or leave out such records; `configs` of the topic sets their size (max.message.bytes)",
            )
        return StoreError(
            f"publishing into {self.alias} failed: {root_cause(str(failure))}",
            consequence="nothing was published",
            remedy="mend the cause and publish it again",
            alias=self.alias,
        )
