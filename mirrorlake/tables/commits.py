"""Commits of several processes on one typed table: the one that comes second finds out, and reads the relay again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

from mirrorlake.errors import StoreError
from mirrorlake.lake import BAD_RECORDS, Lake, erased_from, quote
from mirrorlake.tables.progress import TableProgress, read_progress

# The owner of commits that carry a table's progress on, as erasure's.
UPKEEP = "upkeep"
T = TypeVar("T")
_ATTEMPTS = 10
# Delta's errors for a commit that came second.
_CONFLICTS = ("DELTA_CONCURRENT", "Concurrent", "METADATA_CHANGED", "MetadataChanged")


class Overtaken(Exception):
    """A batch was dropped, because upkeep or an erasure changed the table meanwhile: its records are to be read again."""


def app_of(name: str) -> str:
    return f"mirrorlake.table.{name}"


def is_conflict(error: BaseException) -> bool:
    """Return whether a commit failed because another one came first."""
    text = f"{type(error).__name__} {error}"
    return any(sign in text for sign in _CONFLICTS)


def retried(commit: Callable[[], T], name: str) -> T:
    """Commit, again if another commit came first.

    Raises:
        StoreError: others came first again and again.
    """
    for _ in range(_ATTEMPTS):
        try:
            return commit()
        except Exception as error:
            if not is_conflict(error):
                raise
    raise busy(name)


def claim_batch(lake: Lake, name: str, *, at_least: int = 0) -> TableProgress:
    """Commit no rows as a table's next batch: a batch that was read before is dropped, and its records are read again.

    The commit carries the table's progress on, so that those after it may have none.

    Raises:
        StoreError: batches of a running query came first again and again.
    """
    location = lake.typed_location(name)
    for _ in range(_ATTEMPTS):
        known = read_progress(lake, location)
        mine = TableProgress(max(known.batch + 1, at_least), f"{UPKEEP} {uuid.uuid4().hex}", known.positions)
        try:
            empty = lake.typed(name).limit(0)
            lake.append(empty, location, app_id=app_of(name), version=mine.batch, signature=mine.to_text())
        except Exception as error:
            if not is_conflict(error):
                raise
        if read_progress(lake, location) == mine:
            return mine
    raise busy(name)


def forget_erased(lake: Lake, name: str, sources: Iterable[str], *, since: datetime) -> None:
    """Delete the bad records of records that were erased lately: a batch that was dropped may have recorded them since."""
    acts = [(source, one) for source in sources for one in erased_from(lake, source) if one.removed_at > since]
    if not acts or not lake.exists(lake.meta_location(BAD_RECORDS)):
        return
    for source, one in acts:
        ranges = one.ranges or ((one.first_offset, one.last_offset - one.first_offset + 1),)
        at = one.source
        offsets = " OR ".join(f"offset BETWEEN {first} AND {first + length - 1}" for first, length in ranges)
        lake.delete_rows(
            BAD_RECORDS,
            f"table_name = {quote(name)} AND source = {quote(source)} AND topic = {quote(at.topic)}"
            f" AND generation = {at.generation} AND partition = {at.partition} AND ({offsets})",
        )


def busy(name: str) -> StoreError:
    return StoreError(
        f"other commits came first {_ATTEMPTS} times on the table {name}",
        consequence="the table stays as it is",
        remedy=f"mirrorlake pause --table {name}, run the same command again, then mirrorlake resume --table {name}",
        table=name,
    )
