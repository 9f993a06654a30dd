"""Translate whole tables of offsets by the offset map: set-based, no row goes through Python.

Mapped ranges are split at their holes into dense segments. A window per partition gives each offset the last segment that
starts at or before it. `mirrorlake.model.offset_map` translates one offset in the same manner. `runs` are always sent
rows of `offset_map` of one flow; further columns of the offsets pass through.

Law A (never ahead): `position` never skips a source record before the offset.
Law B (monotonic): a later upstream offset never has an earlier position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from mirrorlake.model.flow import SOURCE_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TARGET_KEY = ("target_topic", "target_partition")


def translated(offsets: DataFrame, runs: DataFrame) -> DataFrame:
    """Return the downstream offset of each upstream offset, or the reason for none.

    A null or absent `generation` is the newest one that was republished.

    Adds `status` (`exact`, `in_a_hole`, `not_yet_republished`, `before_the_first`, `unknown_partition`), `target_topic`,
    `target_partition`, `downstream_offset` (of an exact answer), and `position`, from which a reader of that target partition
    resumes that has read everything before the offset (null if nothing of the partition was ever republished). If a source
    partition goes to several target partitions, `mirrorlake.offsets.neighbours` returns the position on each.
    """
    from pyspark.sql import functions as F

    parts = segments(runs)
    if "generation" not in offsets.columns:
        offsets = offsets.withColumn("generation", F.lit(None).cast("int"))
    lives = runs.select(
        F.col("source_topic").alias("topic"), "generation", F.col("source_partition").alias("partition")
    )
    newest = lives.groupBy("topic", "partition").agg(F.max("generation").alias("newest"))
    first = F.min_by(F.struct("first_upstream", "first_downstream", *TARGET_KEY), "first_upstream").alias("first")
    points = (
        offsets.join(newest, ["topic", "partition"], "left")
        .withColumn("generation", F.coalesce("generation", "newest"))
        .drop("newest")
        .join(parts.groupBy(*SOURCE_KEY).agg(first), [*SOURCE_KEY], "left")
    )
    found = _with_segment(points, parts, keys=SOURCE_KEY, start="first_upstream")
    status = _status(F.col("first").isNull(), _inside())
    return found.select(
        *[column for column in offsets.columns if column != "generation"],
        "generation",
        status.alias("status"),
        *[F.coalesce(F.col(f"part.{name}"), F.col(f"first.{name}")).alias(name) for name in TARGET_KEY],
        F.when(status == "exact", _place()).alias("downstream_offset"),
        F.when(F.col("part").isNull(), F.col("first.first_downstream"))
        .otherwise(F.least(_place(), F.col("part.first_downstream") + F.col("part.record_count")))
        .alias("position"),
    )


def translated_back(offsets: DataFrame, runs: DataFrame) -> DataFrame:
    """Return the upstream offset of each downstream offset (`topic` is the remote topic), or the reason for none.

    Adds `status`, `source_topic`, `generation`, `source_partition` and `upstream_offset`.
    """
    from pyspark.sql import functions as F

    keys = ("topic", "partition")
    parts = segments(runs).select(
        F.col("target_topic").alias("topic"),
        F.col("target_partition").alias("partition"),
        "first_downstream",
        "record_count",
        "first_upstream",
        F.col("topic").alias("source_topic"),
        "generation",
        F.col("partition").alias("source_partition"),
    )
    seen = parts.select(*keys).distinct().withColumn("seen", F.lit(True))
    found = _with_segment(offsets.join(seen, list(keys), "left"), parts, keys=keys, start="first_downstream")
    beyond = F.col("offset") - F.col("part.first_downstream")
    status = _status(F.col("seen").isNull(), beyond < F.col("part.record_count"))
    exact = status == "exact"
    return found.select(
        *offsets.columns,
        status.alias("status"),
        *[F.when(exact, F.col(f"part.{n}")).alias(n) for n in ("source_topic", "generation", "source_partition")],
        F.when(exact, F.col("part.first_upstream") + beyond).alias("upstream_offset"),
    )


def with_stale(
    offsets: DataFrame,
    standing: DataFrame,
    fallen: DataFrame | None,
    look_up: Callable[[DataFrame, DataFrame], DataFrame],
) -> DataFrame:
    """Translate offsets by the present remote topics (`standing`), or as `in_a_deleted_topic` if only those have them.

    `fallen` are the mapped ranges of deleted incarnations, any number of them. `look_up` is `translated` or `translated_back`.
    """
    from pyspark.sql import functions as F

    if fallen is None:
        return look_up(offsets, standing)
    asked = F.col("generation") if "generation" in offsets.columns else F.lit(None).cast("int")
    offsets = offsets.withColumn("asked", asked)
    found = look_up(offsets, standing)
    keys = ["topic", "partition", "offset", "asked"]
    only = [*keys, *({"generation"} & set(offsets.columns))]
    for row in fallen.select("target_topic_id").distinct().collect():
        runs = fallen.where(F.col("target_topic_id").eqNullSafe(F.lit(row.target_topic_id)))
        gone = look_up(offsets.select(*only).distinct(), runs).where("status = 'exact'")
        gone = gone.select(*[F.col(key).alias(f"gone_{key}") for key in keys]).distinct()
        same = reduce(and_, [F.col(key).eqNullSafe(F.col(f"gone_{key}")) for key in keys])
        lost = F.col("gone_offset").isNotNull() & (F.col("status") != "exact")
        found = (
            found.join(gone, same, "left")
            .withColumn("status", F.when(lost, "in_a_deleted_topic").otherwise(F.col("status")))
            .drop(*[f"gone_{key}" for key in keys])
        )
    return found.drop("asked")


def segments(runs: DataFrame) -> DataFrame:
    """Split mapped ranges, each once, at their holes into segments that are dense on both sides.

    Columns: `topic`, `generation`, `partition` of the source, `first_upstream`, `first_downstream`, `record_count`,
    `target_topic`, `target_partition`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    run = [*SOURCE_KEY, "run"]
    starts = F.expr("concat(array(run), transform(holes, hole -> hole.first + hole.length))")
    ends = F.expr("concat(transform(holes, hole -> hole.first - 1), array(last_upstream))")
    cut = (
        runs.select(
            F.col("source_topic").alias("topic"),
            "generation",
            F.col("source_partition").alias("partition"),
            F.col("first_upstream").alias("run"),
            "last_upstream",
            "holes",
            "first_downstream",
            *TARGET_KEY,
        )
        .dropDuplicates(run)
        .select(
            *run,
            *TARGET_KEY,
            F.col("first_downstream").alias("base"),
            F.explode(F.arrays_zip(starts.alias("first"), ends.alias("last"))).alias("part"),
        )
        .withColumn("record_count", F.col("part.last") - F.col("part.first") + 1)
    )
    before = Window.partitionBy(*run).orderBy("part.first").rowsBetween(Window.unboundedPreceding, -1)
    return cut.select(
        *SOURCE_KEY,
        F.col("part.first").alias("first_upstream"),
        (F.col("base") + F.coalesce(F.sum("record_count").over(before), F.lit(0))).alias("first_downstream"),
        "record_count",
        *TARGET_KEY,
    )


def _with_segment(points: DataFrame, parts: DataFrame, *, keys: tuple[str, ...], start: str) -> DataFrame:
    """Add the last segment that starts at or before each point, as `part`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    starts = Window.partitionBy(*keys).orderBy(start)
    held = [column for column in parts.columns if column not in keys]
    marks = parts.select(
        *keys,
        F.col(start).alias("at"),
        F.lit(1).alias("is_part"),
        F.struct(
            *held,
            F.lead(start).over(starts).isNull().alias("is_last"),
            F.lead("first_downstream").over(starts).alias("following"),
        ).alias("part"),
    )
    laid = points.withColumns({"at": F.col("offset"), "is_part": F.lit(0)}).unionByName(marks, allowMissingColumns=True)
    line = Window.partitionBy(*keys).orderBy("at", F.desc("is_part"))
    return (
        laid.withColumn("part", F.last("part", ignorenulls=True).over(line)).where("is_part = 0").drop("at", "is_part")
    )


def _status(is_unknown: Column, is_inside: Column) -> Column:
    from pyspark.sql import functions as F

    return (
        F.when(is_unknown, "unknown_partition")
        .when(F.col("part").isNull(), "before_the_first")
        .when(is_inside, "exact")
        .when(F.col("part.is_last"), "not_yet_republished")
        .otherwise("in_a_hole")
    )


def _inside() -> Column:
    from pyspark.sql import functions as F

    return F.col("offset") < F.col("part.first_upstream") + F.col("part.record_count")


def _place() -> Column:
    from pyspark.sql import functions as F

    return F.col("part.first_downstream") + F.col("offset") - F.col("part.first_upstream")
