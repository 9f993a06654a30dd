"""Delete the rows of a typed table that are older than its retention."""

from __future__ import annotations

from datetime import datetime, timezone

from mirrorlake.lake import Lake
from mirrorlake.tables.commits import claim_batch, retried


def expire_rows(lake: Lake, name: str, *, before: datetime, plan: bool) -> int:
    """Delete the rows with an older record timestamp, and return their number; with `plan` they stay."""
    where = f"_timestamp < TIMESTAMP '{before.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S.%f}+00:00'"
    rows: int = lake.typed(name).where(where).count()
    if rows and not plan:
        # Carries the table's progress on: the log of a table without new records may be cleaned of its batches.
        claim_batch(lake, name)
        location = lake.typed_location(name)
        delete = f"DELETE FROM {lake.sql_name(location)} WHERE {where}"  # noqa: S608 - a time
        retried(lambda: lake.spark.sql(delete), name)
        retried(lambda: lake.purge_deleted(location), name)
    return rows
