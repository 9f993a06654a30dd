"""How far a typed table is in its relays, which its own commits tell, and how several processes commit to it.

A commit holds rows and positions together, so a table that is restored to an older version goes on from there (law F). Of two commits
the second one is dropped, and its records are read again.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import RetryError, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from mirrorlake.errors import MirrorlakeError, StoreError
from mirrorlake.lake import BAD_RECORDS, Lake, RelayPart, erased_from, quote
from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import own_session, require_classic_session
from mirrorlake.tables.formats import PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlake.tables.definition import TypedTable

T = TypeVar("T")
Positions = Mapping[str, Mapping[SourcePartition, int]]
"""Next offsets by source."""
APP = "mirrorlake.table"
UPKEEP = "upkeep"
"""The owner of commits that carry a table's progress on, as erasure's."""
_ATTEMPTS = 10
# Delta's errors for a commit that came second.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT|METADATA_CHANGED|MetadataChanged|ProtocolChanged|"
    r"Concurrent(Append|Delete|Transaction|Write)"
)


class Overtaken(Exception):
    """A commit was dropped, because another one came first: its records are to be read again."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The signature of a typed table's commit.

    `batch` is also the version of the table's application transaction, `owner` the run that wrote it, `deleted` the greatest timestamp
    of a tombstone in microseconds. With `is_stale` the table is to be built again from the relay. `at` is when it was committed; not a
    part of the signature.
    """

    batch: int = 0
    owner: str = ""
    positions: Positions = field(default_factory=dict)
    deleted: int = 0
    is_stale: bool = False
    at: datetime | None = field(default=None, compare=False)

    def to_text(self) -> str:
        read: dict[str, Any] = {}
        for source, positions in self.positions.items():
            for at, position in sorted(positions.items()):
                of_topic = read.setdefault(source, {}).setdefault(at.topic, {})
                of_topic.setdefault(str(at.generation), {})[str(at.partition)] = position
        document: dict[str, Any] = {"app": APP, "batch": self.batch, "owner": self.owner, "read": read}
        document |= {"deleted": self.deleted} if self.deleted else {}
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
        batch, owner, deleted = int(document["batch"]), str(document["owner"]), document.get("deleted", 0)
        # It once was by source.
        deleted = max(deleted.values()) if isinstance(deleted, dict) else deleted
        return cls(batch, owner, positions, deleted, bool(document.get("stale")))


def read_progress(lake: Lake, name: str) -> TableProgress:
    """Read the progress of a typed table from its newest batch's commit, that of no batch if it is not there.

    After a RESTORE the positions are those of the restored version, and the number that of the newest batch: Delta keeps
    application transactions, and drops a batch whose number it has seen.

    Raises:
        StoreError: its log cannot be read, or has lost a commit.
    """
    location = lake.typed_location(name)
    if not lake.exists(location):
        return TableProgress()
    try:
        found, why = _newest(lake, location)
    except MirrorlakeError:
        raise
    except Exception as error:
        found, why = TableProgress(), " ".join(str(error).split())[:200]
    # Reading has put an empty commit in the place of one that cannot be read: its rows are lost.
    for lost in Path(location).glob("_delta_log/*.json.broken") if ":/" not in location else ():
        why = f"its commit {lost.name.partition('.')[0]} cannot be read"
    if why:
        raise StoreError(
            f"the log of the table {name} is broken: {why}",
            consequence="no record is written to it; its relay has them",
            remedy=f"mirrorlake tables --rebuild {name} --apply",
            table=name,
        )
    return found


def _newest(lake: Lake, location: str) -> tuple[TableProgress, str]:
    """Return the progress, or why the log does not tell it; commits of upkeep lie between batches."""
    oldest, newest, until = 0, 0, None
    for commit in lake.commits(location):
        oldest = commit.version
        progress = TableProgress.from_document(commit.signature)
        newest = newest if progress is None else max(newest, progress.batch)
        if until is not None and commit.version > until:
            continue
        if commit.operation == "RESTORE" and commit.restored_to < 0:
            return TableProgress(), "it was restored to a time, and only versions tell which records it has"
        if progress is not None:
            return replace(progress, batch=newest, at=commit.at), ""
        until = commit.restored_to if commit.restored_to >= 0 else until
    return TableProgress(), "it no longer has the commit with the table's positions" if oldest > 0 else ""


def app_of(name: str) -> str:
    return f"mirrorlake.table.{name}"


def is_conflict(error: BaseException) -> bool:
    """Return whether a commit failed because another one came first."""
    return isinstance(error, Overtaken) or _CONFLICT.search(f"{type(error).__name__} {error}") is not None


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
    """
    location = lake.typed_location(name)

    def claim() -> None:
        known = read_progress(lake, name)
        mine = replace(known, batch=known.batch + 1, owner=f"{UPKEEP} {uuid.uuid4().hex}")
        mine = replace(mine, is_stale=known.is_stale or makes_stale)
        empty = lake.typed(name).limit(0)
        lake.append_frame(empty, location, app_id=app_of(name), version=mine.batch, signature=mine.to_text())
        if read_progress(lake, name) != mine:
            raise Overtaken

    retried(claim, name)


def forget_erased(lake: Lake, name: str, sources: Iterable[str], *, since: datetime) -> None:
    """Delete the bad records of records that were erased lately: a batch that was dropped may have recorded them since."""
    acts = [(source, one) for source in sources for one in erased_from(lake, source) if one.removed_at > since]
    if not acts or not lake.exists(lake.meta_location(BAD_RECORDS)):
        return
    for source, one in acts:
        at = one.source
        offsets = " OR ".join(f"offset BETWEEN {first} AND {end - 1}" for first, end in one.ranges)
        lake.delete_rows(
            BAD_RECORDS,
            f"table_name = {quote(name)} AND source = {quote(source)} AND topic = {quote(at.topic)}"
            f" AND generation = {at.generation} AND partition = {at.partition} AND ({offsets})",
        )


# -- the relays' records ------------------------------------------------------------------------------------------------


def session_of(spark: SparkSession) -> SparkSession:
    """Return a new session: the transaction of a SQL statement is a setting of its session."""
    require_classic_session(spark)
    session = own_session(spark)
    for name in ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone"):
        session.conf.set(name, str(spark.conf.get(name)))
    session.conf.set("spark.sql.parquet.compression.codec", "zstd")
    # A name of a member may look like a variable.
    session.conf.set("spark.sql.variable.substitute", "false")
    return session


def with_sources(relays: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records of relays in one frame, with their source cluster as `_source`."""
    from pyspark.sql import functions as F

    frames = (relay.withColumn("_source", F.lit(source)) for source, relay in relays.items())
    return reduce(lambda one, other: one.unionByName(other), frames)


def records_of_table(records: DataFrame, table: TypedTable) -> DataFrame:
    """Return the records of a table's topics, with their coordinates as columns of the table; `records` have their source."""
    from pyspark.sql import functions as F

    chosen = records.where(F.col("_source").isin(*table.topics) & F.col("topic").rlike(table.config.topics_regex))
    if "{topic}" in table.config.name:
        chosen = chosen.where(F.col("topic").isin(*{topic for topics in table.topics.values() for topic in topics}))
    places = (F.col(name).alias(f"_{name}") for name in ("topic", "generation", "partition", "offset", "timestamp"))
    return chosen.select("_source", *places, "key", "value", *(["headers"] if table.config.through else []))


class TableRelay:
    """The relays of a table's sources as they are now, read in one session; `versions` are theirs by source."""

    def __init__(self, lake: Lake, table: TypedTable, session: SparkSession) -> None:
        self._lake = lake
        self._table = table
        self._session = session
        self.versions = {source: lake.version(lake.relay_location(source)) for source in table.topics}

    def records(self) -> DataFrame:
        return self._read({})

    def past(self, positions: Positions) -> DataFrame:
        return past(self._read(positions), positions)

    def before(self, positions: Positions) -> DataFrame:
        return _with_position(self._read({}), positions).where("_offset < _position").drop("_position")

    def tombstones(self, positions: Positions, since: int) -> DataFrame:
        """Return the records without a value before positions, from a timestamp in microseconds on."""
        from pyspark.sql import functions as F

        late = F.col("_timestamp") >= F.timestamp_micros(F.lit(since))
        # A rule may take a value away.
        has_none = F.lit(value=True) if self._table.config.through else F.col("value").isNull()
        return self.before(positions).where(late & has_none)

    def _read(self, positions: Positions) -> DataFrame:
        relays = {}
        for source, version in self.versions.items():
            # Spark reads a table's newest version in each job of a frame that names none.
            reader = self._session.read.option("versionAsOf", version)
            part = RelayPart(positions.get(source, {}))
            relays[source] = part.rows(self._lake.load_relay(reader, source))
        return records_of_table(with_sources(relays), self._table)


def past(frame: DataFrame, positions: Positions) -> DataFrame:
    if not any(positions.values()):
        return frame
    return _with_position(frame, positions).where("_offset >= coalesce(_position, 0)").drop("_position")


def _with_position(frame: DataFrame, positions: Positions) -> DataFrame:
    from pyspark.sql import functions as F

    known = [
        (source, at.topic, at.generation, at.partition, position)
        for source, of_source in positions.items()
        for at, position in of_source.items()
    ]
    columns = "_source string, _topic string, _generation int, _partition int, _position bigint"
    table = F.broadcast(frame.sparkSession.createDataFrame(known, columns))
    return frame.join(table, PARTITION, "left")
