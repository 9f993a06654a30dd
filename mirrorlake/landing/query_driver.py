"""Land by micro-batches: a Structured Streaming query from its own checkpoint location."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from mirrorlake.lake import KnownTopic, batch_time, kafka_positions, read_checkpoint_location
from mirrorlake.landing.context import LandingContext
from mirrorlake.landing.query import await_query
from mirrorlake.landing.ranges import KAFKA_COLUMNS, range_reader
from mirrorlake.landing.retry import SourceChanged
from mirrorlake.landing.source_state import current_partitions
from mirrorlake.model.chunk_size import ChunkSize
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.late_times import EARLIER_US, EARLIEST_MS, LATER_US, LATEST_MS
from mirrorlake.progress import log_context
from mirrorlake.runtime import require_parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)

_READ_COMMITTED = {
    # Spark detects a loss before it writes a batch; the next start decides about it.
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "groupIdPrefix": "mirrorlake-land",
    "kafka.isolation.level": "read_committed",
}
# The first batch, while the source's rate is unknown: 500 records of 10 KB take 100 s at 50 kB/s. Later batches take half a minute
# at most, so that a kill loses little; the minimum takes a second in any case.
_FIRST_OFFSETS, _MIN_OFFSETS, _AIM_S = 500, 50, 30.0
# A larger size needs a new query, so a query's size changes only if it grows by this factor.
_GROWTH = 4
# Java's client drops an answer after 30 s, so answers stay small until the source's rate is known.
_SMALL_FETCH = {"kafka.max.partition.fetch.bytes": str(2**18), "kafka.fetch.max.bytes": str(2**18)}


class QueryDriver:
    """Run the query of one lander; `tick` is called about five times a second.

    `failure` is the exception of the last batch: Spark passes on its text only.
    """

    def __init__(self, context: LandingContext, tick: Callable[[StreamingQuery], None]) -> None:
        self._context = context
        self._tick = tick
        self.failure: BaseException | None = None
        # Set if the source was too slow for a batch.
        self._size: ChunkSize | None = None

    def may_resume(self) -> bool:
        """Return whether a query may resume from its checkpoint location. It would repeat a batch that timed out, at the same size."""
        return self._size is None

    def land(self, start: Mapping[TopicPartition, int] | None, stop: threading.Event, *, once: bool) -> bool:
        """Land until `stop` is set, or with `once` up to the source's present ends; `start` is None to resume.

        Return whether the query reached its end; otherwise it must be started again, with larger batches.

        Raises:
            SourceChanged: topics or leaders have changed since the start.
            LanderReplaced: another lander has claimed the relay.
        """
        # The log of earlier tasks belongs to an older number of this lander.
        self._context.log, self.failure = None, None
        try:
            return self._land_by_query(start, stop, once=once)
        except Exception as error:
            if "TimeoutException" in str(error):
                if self._size is None:
                    most = self._context.settings.max_records_per_batch
                    self._size = ChunkSize(most, start=_FIRST_OFFSETS, min_size=_MIN_OFFSETS, aim_s=_AIM_S)
                else:
                    self._size.record_failure()
            raise

    def _land_by_query(self, start: Mapping[TopicPartition, int] | None, stop: threading.Event, *, once: bool) -> bool:
        context, settings = self._context, self._context.settings
        max_offsets = settings.max_records_per_batch if self._size is None else self._size.limit
        options = {
            **settings.kafka_options,
            **({} if max_offsets == settings.max_records_per_batch else _SMALL_FETCH),
            **_READ_COMMITTED,
            "subscribePattern": settings.subscribe_pattern,
            "maxOffsetsPerTrigger": str(max_offsets),
            "startingOffsets": _offsets_json(start) if start else "earliest",
        }
        require_parts(context.lake.spark, kafka=True)
        frame = context.lake.spark.readStream.format("kafka").options(**options).load()
        writer = frame.writeStream.queryName(f"land {settings.alias}").foreachBatch(self._land_batch)
        writer = writer.option("checkpointLocation", context.checkpoint_path)
        pace = f"{int(settings.trigger.total_seconds() * 1000)} milliseconds"
        query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=pace)).start()
        ended = threading.Event()

        def tick() -> None:
            self._tick(query)
            if stop.is_set() or self._has_grown(query, max_offsets):
                ended.set()

        await_query(query, ended, tick=tick)
        return stop.is_set() or not ended.is_set()

    def _has_grown(self, query: StreamingQuery, max_offsets: int) -> bool:
        """Return whether a source that was too slow for a batch has become fast enough for larger ones."""
        if self._size is None or not (done := query.lastProgress):
            return False
        self._size.record_success(int(done["numInputRows"]), seconds=done["durationMs"]["triggerExecution"] / 1000)
        return (
            max_offsets < self._size.limit >= min(_GROWTH * max_offsets, self._context.settings.max_records_per_batch)
        )

    # -- the batch ------------------------------------------------------------------------------------------------

    def _land_batch(self, frame: DataFrame, batch_id: int) -> None:
        try:
            # Spark calls from a thread of its own.
            with log_context(source=self._context.settings.alias, batch=batch_id):
                self._write(frame, batch_id)
        except BaseException as error:
            self.failure = error
            raise

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        context, topics, settings = self._context, self._context.topics, self._context.settings
        states = context.describe()
        if topics.recreated(states):
            raise SourceChanged
        topics.observe(states, context.admin, at=context.now(), read_leader_epochs=context.leader_epochs)
        # An election may have truncated the log: the next start compares it before more is landed.
        if any(
            topics.known[tp.topic].leader_epochs.get(tp.partition) != epoch
            for tp, epoch in context.leader_epochs(current_partitions(topics.known, states)).items()
        ):
            raise SourceChanged
        context.landing_at = landed_at = batch_time(context.now(), context.landed_until)

        def append(records: DataFrame) -> None:
            rows = relay_rows(records, topics.known.values(), never_leave=settings.never_leave)
            context.writer.append(rows, batch_id, landed_at)

        # The checkpoint location records the end of the batch.
        try:
            append(frame)
        except Exception as error:
            # Spark's Kafka source fails at a timestamp in nanoseconds, and does not name its record.
            if "long overflow" not in str(error):
                raise
            log.warning("land.overflow source=%s batch=%s", settings.alias, batch_id)
            append(self._read_batch(frame.sparkSession))
        context.batches += 1
        context.landed_until = landed_at

    def _read_batch(self, spark: SparkSession) -> DataFrame:
        """Read the batch under way by librdkafka."""
        context, settings = self._context, self._context.settings
        location = read_checkpoint_location(context.lake, context.checkpoint_path)
        initial = context.lake.texts(f"{context.checkpoint_path}/sources/0")["0"]
        firsts = kafka_positions(json.loads(initial[initial.index("{") :])) | kafka_positions(location.committed)
        ranges = [
            (tp.topic, tp.partition, first, end)
            for tp, end in kafka_positions(location.planned).items()
            if (first := firsts.get(tp, 0)) < end
        ]
        rows = spark.createDataFrame(ranges, "topic string, partition int, first bigint, end bigint")
        return rows.mapInArrow(range_reader(settings.alias, settings.reader_options), KAFKA_COLUMNS)


def relay_rows(frame: DataFrame, topics: Iterable[KnownTopic], *, never_leave: str) -> DataFrame:
    """Give a batch of Spark's Kafka source the relay's columns, except the time of the batch.

    `topics` tell a record's generation; topics that match the regular expression `never_leave` are left out.
    """
    from pyspark.sql import functions as F

    if never_leave:
        frame = frame.where(~F.col("topic").rlike(f"^(?:{never_leave})$"))
    return frame.select(
        "topic",
        _generation_column(topics).alias("generation"),
        "partition",
        "offset",
        _timestamp_column().alias("timestamp"),
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        "headers",
    )


def _timestamp_column() -> Column:
    """Return the timestamp, or a mark for one that the relay does not store (`model/late_times.py`)."""
    from pyspark.sql import functions as F

    us = F.unix_micros("timestamp")
    marked = F.when(us > LATEST_MS * 1000, LATER_US).when(us < EARLIEST_MS * 1000, EARLIER_US).otherwise(us)
    return F.timestamp_micros(marked)


def _generation_column(topics: Iterable[KnownTopic]) -> Column:
    from pyspark.sql import functions as F

    column = F.lit(1)
    for topic in topics:
        is_topic = F.col("topic") == topic.name
        if topic.generation > 1:
            column = F.when(is_topic, F.lit(topic.generation)).otherwise(column)
        for cut in sorted(topic.truncations, key=lambda cut: cut.generation):
            is_cut = is_topic & (F.col("partition") == cut.partition)
            column = F.when(is_cut, F.lit(cut.generation)).otherwise(column)
    return column.cast("int")


def _offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    document: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(document)


def reported_ends(query: StreamingQuery) -> dict[TopicPartition, int] | None:
    """Return the topics' ends that a query's Kafka source reported for its last finished batch, or None before there is one.

    A query that drains stops at these ends. Spark has read them for the batch itself, so this costs no request.
    """
    try:
        progress = query.lastProgress
        # PySpark gives the JSON document as printed by a Python dictionary; topic names hold no quotes.
        text = str(progress["sources"][0]["latestOffset"]).replace("'", '"') if progress else ""
        return kafka_positions(json.loads(text)) if text else None
    except Exception as error:
        # A platform may report in another shape: then the remaining work is unknown, and landing goes on.
        log.debug("progress.no_ends why=%s: %s", type(error).__name__, str(error)[:200])
        return None
