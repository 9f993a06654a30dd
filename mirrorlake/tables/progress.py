"""How far a typed table is, in its own commits, and how several processes commit to it.

A commit holds rows and positions together, so a table that is restored to an older version goes on from there (law F). The one that
comes second finds out, and reads the relay again.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tenacity import RetryError, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from mirrorlake.errors import MirrorlakeError, StoreError
from mirrorlake.lake import BAD_RECORDS, Lake, erased_from, quote
from mirrorlake.model.flow import SourcePartition

T = TypeVar("T")
APP = "mirrorlake.table"
UPKEEP = "upkeep"
"""The owner of commits that carry a table's progress on, as erasure's."""
_ATTEMPTS = 10
# Delta's errors for a commit that came second.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT|METADATA_CHANGED|MetadataChanged|ProtocolChanged|"
    r"Concurrent(Append|Delete|Transaction|Write)"
)
# The newest commit is nearly always a batch: two commits take 1.2 ms of CPU to read, fifty 4.6 (2026-11-26).
_NEWEST = (2, 50, None)


class Overtaken(Exception):
    """A batch was dropped, because another process changed the table meanwhile: its records are to be read again."""


class ConcurrentBatch(Exception):
    """Another batch of the same number came first: a conflict (`is_conflict`)."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The signature of a typed table's commit.

    `batch` is also the version of the table's application transaction, `owner` the run that wrote it. `positions` are next offsets
    by source, `deleted` the greatest timestamps of tombstones by source, in microseconds. With `is_stale` the table is to be built
    again from the relay. `at` is when it was committed; not a part of the signature.
    """

    batch: int = 0
    owner: str = ""
    positions: Mapping[str, Mapping[SourcePartition, int]] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    is_stale: bool = False
    at: datetime | None = field(default=None, compare=False)

    def to_text(self) -> str:
        read: dict[str, Any] = {}
        for source, positions in self.positions.items():
            for at, position in sorted(positions.items()):
                of_topic = read.setdefault(source, {}).setdefault(at.topic, {})
                of_topic.setdefault(str(at.generation), {})[str(at.partition)] = position
        document: dict[str, Any] = {"app": APP, "batch": self.batch, "owner": self.owner, "read": read}
        document |= {"deleted": dict(self.deleted)} if self.deleted else {}
        return json.dumps(document | ({"stale": True} if self.is_stale else {}), separators=(",", ":"))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TableProgress | None:
        """Parse a commit's user metadata, or return None if no batch wrote it."""
        if document.get("app") != APP:
            return None
        positions = {
            source: {
                SourcePartition(topic, int(generation), int(partition)): position
                for topic, generations in topics.items()
                for generation, of_generation in generations.items()
                for partition, position in of_generation.items()
            }
            for source, topics in document["read"].items()
        }
        deleted, is_stale = document.get("deleted", {}), bool(document.get("stale"))
        return cls(int(document["batch"]), str(document["owner"]), positions, deleted, is_stale)


def read_progress(lake: Lake, location: str) -> TableProgress:
    """Read the progress of a typed table from its newest batch's commit; commits of upkeep lie between batches.

    After a RESTORE the positions are those of the restored version, and the number that of the newest batch: Delta keeps
    application transactions, and drops a batch whose number it has seen.

    Raises:
        StoreError: its log cannot be read, or has lost a commit.
    """
    try:
        for limit in _NEWEST:
            newest, until, oldest = 0, None, 0
            for commit in lake.commits(location, limit=limit):
                oldest = commit.version
                progress = TableProgress.from_document(commit.signature)
                newest = newest if progress is None else max(newest, progress.batch)
                if until is not None and commit.version > until:
                    continue
                if commit.operation == "RESTORE" and commit.restored_to < 0:
                    raise broken_error(
                        location, "it was restored to a time, and only versions tell which records it has"
                    )
                if progress is not None:
                    _require_whole(location)
                    return replace(progress, batch=newest, at=commit.at)
                until = commit.restored_to if commit.restored_to >= 0 else until
        _require_whole(location)
        if oldest > 0:
            raise broken_error(location, "it no longer has the commit with the table's positions")
    except MirrorlakeError:
        raise
    except Exception as error:
        _require_whole(location)
        raise broken_error(location, " ".join(str(error).split())[:200]) from error
    return TableProgress()


def _require_whole(location: str) -> None:
    # Opening the table has put an empty commit in the place of one that cannot be read: its rows are lost.
    for lost in Path(location).glob("_delta_log/*.json.broken") if ":/" not in location else ():
        raise broken_error(location, f"its commit {lost.name.partition('.')[0]} cannot be read")


def broken_error(location: str, why: str) -> StoreError:
    name = location.rstrip("`").rpartition("/" if "/" in location else "`")[2]
    return StoreError(
        f"the log of the table {name} is broken: {why}",
        consequence="no record is written to it; its relay has them",
        remedy=f"mirrorlake tables --rebuild {name} --apply",
        table=name,
    )


def app_of(name: str) -> str:
    return f"mirrorlake.table.{name}"


def is_conflict(error: BaseException) -> bool:
    """Return whether a commit failed because another one came first."""
    named = f"{type(error).__name__} {error}"
    return isinstance(error, ConcurrentBatch) or _CONFLICT.search(named) is not None


def retried(commit: Callable[[], T], name: str) -> T:
    """Commit, again if another commit came first.

    Raises:
        StoreError: others came first again and again.
    """
    attempts = Retrying(
        retry=retry_if_exception(is_conflict),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=2),
    )
    with suppress(RetryError):
        return attempts(commit)
    raise StoreError(
        f"other commits came first {_ATTEMPTS} times on the table {name}",
        consequence="the table stays as it is",
        remedy=f"mirrorlake pause --table {name}, run the same command again, then mirrorlake resume --table {name}",
        table=name,
    )


def claim_batch(lake: Lake, name: str, *, makes_stale: bool = False) -> None:
    """Commit no rows as a table's next batch: a batch that was read before is dropped, and its records are read again.

    The commit carries the table's progress on, so that those after it may have none. With `makes_stale` the next batch builds the
    table again.

    Raises:
        StoreError: batches of a running query came first again and again.
    """
    location = lake.typed_location(name)

    def claim() -> None:
        known = read_progress(lake, location)
        mine = replace(known, batch=known.batch + 1, owner=f"{UPKEEP} {uuid.uuid4().hex}")
        mine = replace(mine, is_stale=known.is_stale or makes_stale)
        empty = lake.typed(name).limit(0)
        lake.append(empty, location, app_id=app_of(name), version=mine.batch, signature=mine.to_text())
        if read_progress(lake, location) != mine:
            raise ConcurrentBatch

    retried(claim, name)


def forget_erased(lake: Lake, name: str, sources: Iterable[str], *, since: datetime) -> None:
    """Delete the bad records of records that were erased lately: a batch that was dropped may have recorded them since."""
    acts = [(source, one) for source in sources for one in erased_from(lake, source) if one.removed_at > since]
    if not acts or not lake.exists(lake.meta_location(BAD_RECORDS)):
        return
    for source, one in acts:
        at = one.source
        offsets = " OR ".join(f"offset BETWEEN {first} AND {first + length - 1}" for first, length in one.all_ranges)
        lake.delete_rows(
            BAD_RECORDS,
            f"table_name = {quote(name)} AND source = {quote(source)} AND topic = {quote(at.topic)}"
            f" AND generation = {at.generation} AND partition = {at.partition} AND ({offsets})",
        )
