"""Rows of `withheld`, one for each offset."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def each_offset(withheld: DataFrame) -> DataFrame:
    """Return a row for every withheld offset: the columns of `withheld` without `ranges`, and `offset`.

    Example:
        >>> each_offset(lake.meta(WITHHELD)).groupBy("rule").count()  # doctest: +SKIP
    """

    def stretch(part: Column) -> Column:
        return F.sequence(part.first, part.first + part.length - 1)

    return withheld.withColumn("offset", F.explode(F.flatten(F.transform("ranges", stretch)))).drop("ranges")
