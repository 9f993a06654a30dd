"""Compare Spark's data frames with chispa."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame


def assert_rows(found: DataFrame, schema: str, rows: Sequence[tuple[Any, ...]], *, in_order: bool = False) -> None:
    """Compare a frame with rows, and its columns and their types with a schema."""
    assert_frames(found, found.sparkSession.createDataFrame([*rows], schema), in_order=in_order)


def assert_frames(found: DataFrame, expected: DataFrame, *, in_order: bool = False) -> None:
    """Compare columns, their types and rows, in any order unless it is asked for."""
    from chispa import assert_df_equality

    assert_df_equality(found, expected, ignore_row_order=not in_order, ignore_nullable=True, ignore_metadata=True)
