"""Conversion of a published frame of records to rows of a lake cluster's relay.

Law D (order): within a partition, offsets follow the order of the frame's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.errors import UsageError
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.late_times import LATEST_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import types as T

# A failed Spark job with this text had a record that cannot be published; any other failure is the store's.
REFUSAL = "mirrorlake.publish refuses "
# Kafka's default `max.message.bytes`; a record alone in a batch has 61 bytes of header and some of lengths before it.
DEFAULT_LIMIT = 1_048_588
OVERHEAD = 128
_HEADERS = "array<struct<key:string,value:binary>>"
_MAX_TASKS = 32
_COLUMNS = ("topic", "partition", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """The limits of a topic: its partition count, and the largest record that its targets accept."""

    partitions: int
    max_bytes: int = DEFAULT_LIMIT


def shaped(frame: DataFrame, *, topic: str | None) -> DataFrame:
    """Select `topic, partition, timestamp, key, value, headers` from a person's frame.

    `timestamp` may be milliseconds since 1970, `headers` a map; `topic` is that of all records, instead of a column.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    held = {field.name: field.dataType for field in frame.schema.fields}
    unknown = sorted(held.keys() - {*_COLUMNS})
    if unknown or "value" not in held:
        problem = f"it has {', '.join(unknown)}" if unknown else "it has no column 'value'"
        raise UsageError(
            f"the frame to publish does not fit: {problem}",
            consequence="nothing was published",
            remedy="give it the column value and, if you need them, key, headers, timestamp, partition and topic; "
            "to_json(struct('*')) AS value makes one column of many",
        )
    if (topic is None) == ("topic" not in held):
        problem = "both a column and an argument name" if topic else "neither a column nor an argument names"
        raise UsageError(
            f"{problem} the topic", consequence="nothing was published", remedy="give topic='orders' or a column topic"
        )
    return frame.select(
        (F.lit(topic) if topic else _typed("topic", held["topic"], (T.StringType,), "string")).alias("topic"),
        _optional("partition", held, (T.ByteType, T.ShortType, T.IntegerType, T.LongType), "int"),
        _timestamp(held.get("timestamp")).alias("timestamp"),
        _optional("key", held, (T.BinaryType, T.StringType), "binary"),
        _optional("value", held, (T.BinaryType, T.StringType), "binary"),
        _headers(held.get("headers")).alias("headers"),
    )


def placed(rows: DataFrame, topics: Mapping[str, TopicLimits]) -> DataFrame:
    """Add the partition to shaped rows, and `rank`, their number within it from 0, in the order of the frame.

    A record's own partition wins; else its key decides as in Kafka's default partitioner (murmur2); without a key,
    records go one after another over all partitions. Rows that cannot be published fail the job with a text that
    contains `REFUSAL`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from mirrorlake.publish.key_hashes import hashes

    # Before any other operation on the rows, so that the number follows their order in the frame.
    numbered = rows.withColumn("row", F.monotonically_increasing_id())
    hashed = numbered.withColumn("hash", F.pandas_udf(hashes, "int")("key"))
    count = _by_topic({name: limits.partitions for name, limits in topics.items()})
    wanted = F.when(F.col("partition") >= 0, F.col("partition"))
    spread = F.pmod(F.when(F.col("key").isNull(), F.col("row")).otherwise(F.col("hash").bitwiseAND(0x7FFFFFFF)), count)
    problem = _problem(count, _by_topic({name: limits.max_bytes for name, limits in topics.items()}))
    partition = F.when(problem.isNotNull(), F.raise_error(F.concat(F.lit(REFUSAL), problem)).cast("int")).otherwise(
        F.coalesce(wanted, spread.cast("int"))
    )
    tasks = min(_MAX_TASKS, sum(limits.partitions for limits in topics.values()))
    place = Window.partitionBy("topic", "partition").orderBy("row")
    # Each task writes one file, with its partitions one after another, in order. Two partitions may share a task.
    return (
        hashed.withColumn("partition", partition)
        .repartition(max(1, tasks), "topic", "partition")
        .withColumn("rank", F.row_number().over(place).cast("bigint") - 1)
        .select(*_COLUMNS, "rank")
    )


def relay_rows(rows: DataFrame, next_offsets: Mapping[TopicPartition, int], *, landed_at: datetime) -> DataFrame:
    """Return placed rows as rows of the relay, with dense offsets from the next ones on, or from 0.

    `landed_at` is the time of the commit, and the timestamp of records without one.
    """
    from pyspark.sql import functions as F

    known = [(tp.topic, tp.partition, offset) for tp, offset in next_offsets.items()]
    bases = rows.sparkSession.createDataFrame(known, "topic string, partition int, base bigint")
    return rows.join(F.broadcast(bases), ["topic", "partition"], "left").select(
        "topic",
        F.lit(1).alias("generation"),
        F.col("partition").cast("int"),
        (F.coalesce("base", F.lit(0)) + F.col("rank")).cast("bigint").alias("offset"),
        F.date_trunc("MILLISECOND", F.coalesce("timestamp", F.lit(landed_at))).alias("timestamp"),
        F.lit(0).alias("timestamp_type"),
        "key",
        "value",
        "headers",
        F.lit(landed_at).alias("landed_at"),
    )


def _by_topic(values: Mapping[str, int]) -> Column:
    from pyspark.sql import functions as F

    column = F.lit(None).cast("int")
    for name, value in values.items():
        column = F.when(F.col("topic") == name, F.lit(value)).otherwise(column)
    return column


def _problem(count: Column, limit: Column) -> Column:
    """Return why a row cannot be published, or null; such a row would stop every flow that carries it."""
    from pyspark.sql import functions as F

    headers = F.coalesce("headers", F.array().cast(_HEADERS))
    size = _bytes(F.col("key")) + _bytes(F.col("value"))
    size += F.aggregate(headers, F.lit(0), lambda total, h: total + _bytes(h["key"]) + _bytes(h["value"]))
    where = F.concat(F.lit("a record of "), F.col("topic"), F.lit(": "))
    bad_key = F.exists("headers", lambda h: h["key"].isNull() | h["key"].contains("\ufffd"))
    return (
        F.when(count.isNull(), F.concat(F.lit("a record of topic "), F.coalesce("topic", F.lit("NULL"))))
        .when(
            F.col("partition") >= count,
            F.concat(where, F.lit("partition "), F.col("partition"), F.lit(" of "), count),
        )
        .when(F.unix_millis("timestamp") <= 0, F.concat(where, F.lit("a timestamp of 1970 or before")))
        .when(F.unix_millis("timestamp") > LATEST_MS, F.concat(where, F.lit("a timestamp past the year 9999")))
        .when(bad_key, F.concat(where, F.lit("a header key that is null or not UTF-8")))
        .when(size + OVERHEAD > limit, F.concat(where, size, F.lit(" bytes, allowed are "), limit))
    )


def _bytes(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.octet_length(column), F.lit(0))


def _optional(name: str, held: Mapping[str, T.DataType], allowed: tuple[type[T.DataType], ...], kind: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if name not in held or isinstance(held[name], T.NullType):
        return F.lit(None).cast(kind).alias(name)
    return _typed(name, held[name], allowed, kind).alias(name)


def _typed(name: str, found: T.DataType, allowed: tuple[type[T.DataType], ...], kind: str) -> Column:
    from pyspark.sql import functions as F

    if not isinstance(found, allowed):
        raise _unfit(name, found, f"cast it to {' or '.join(one.typeName() for one in allowed)}")
    return F.col(name).cast(kind)


def _timestamp(found: T.DataType | None) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if found is None or isinstance(found, T.NullType):
        return F.lit(None).cast("timestamp")
    if isinstance(found, T.LongType):
        # Not an overflow, but a time that is refused by name.
        ms = F.col("timestamp")
        return F.timestamp_millis(F.when(ms > LATEST_MS, LATEST_MS + 1).when(ms < 0, 0).otherwise(ms))
    return _typed("timestamp", found, (T.TimestampType, T.TimestampNTZType), "timestamp")


def _headers(found: T.DataType | None) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if found is None or isinstance(found, T.NullType):
        return F.lit(None).cast(_HEADERS)
    column = F.col("headers")
    if isinstance(found, T.MapType):
        column, found = (
            F.map_entries(column),
            T.ArrayType(T.StructType([T.StructField("key", found.keyType), T.StructField("value", found.valueType)])),
        )
    pair = found.elementType if isinstance(found, T.ArrayType) else None
    if not isinstance(pair, T.StructType) or [field.name for field in pair.fields] != ["key", "value"]:
        raise _unfit("headers", found, "make it array<struct<key:string,value:binary>> or map<string,binary>")
    kinds = [type(field.dataType) for field in pair.fields]
    if kinds[0] is not T.StringType or kinds[1] not in (T.BinaryType, T.StringType):
        raise _unfit("headers", found, "header keys are string, their values binary or string")
    return F.when(F.size(column) > 0, column.cast(_HEADERS))


def _unfit(name: str, found: T.DataType, remedy: str) -> UsageError:
    return UsageError(
        f"the column {name} of the frame to publish has the unfit type {found.simpleString()}",
        consequence="nothing was published",
        remedy=remedy,
    )
