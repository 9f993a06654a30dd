"""Read how far a source is landed, by its relay, its commits and the checkpoint location of a Structured Streaming query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY
from mirrorlake.lake.landing_progress import landing_history
from mirrorlake.lake.metadata import KnownTopic, newest_topics
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.removed import left_before
from mirrorlake.lake.schema import POSITIONS
from mirrorlake.lake.spark_tables import quote
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.runtime import open_folder


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """The newest batches that a query planned and finished (-1 for none), with the offset documents of each source."""

    path: str
    last_planned: int
    last_committed: int
    planned_by_source: tuple[Any, ...] = ()
    committed_by_source: tuple[Any, ...] = ()

    @property
    def planned(self) -> Any:
        """The planned offsets of the first source, the only one of a mirror's query; None without."""
        return next(iter(self.planned_by_source), None)

    @property
    def committed(self) -> Any:
        """The finished offsets of the first source; None without."""
        return next(iter(self.committed_by_source), None)

    @property
    def landed(self) -> tuple[int, int] | None:
        """The number and batch of a landing query's last finished batch, each of which is a commit; None without one."""
        number = self.path.rpartition("/")[2]
        return (int(number), self.last_committed) if number.isdigit() and self.last_committed >= 0 else None

    @property
    def has_progress(self) -> bool:
        return self.last_planned >= 0

    @property
    def ending(self) -> str:
        """The last planned batch, as the predicate of an error's sentence."""
        if self.has_progress:
            return f"ends at batch {self.last_planned}"
        return "holds no offsets/ and commits/ any more"


def read_checkpoint_location(lake: Lake, path: str) -> CheckpointLocation:
    """Read `offsets/` and `commits/` of a checkpoint location; an absent one has no progress."""
    offsets, commits = (
        {int(name): text for name, text in lake.texts(f"{path}/{folder}").items() if name.isdigit()}
        for folder in ("offsets", "commits")
    )
    planned = max(offsets, default=-1)
    committed = max((batch for batch in commits if batch in offsets), default=-1)
    return CheckpointLocation(
        path=path,
        last_planned=planned,
        last_committed=committed,
        planned_by_source=_source_offsets(offsets.get(planned)),
        committed_by_source=_source_offsets(offsets.get(committed)),
    )


def _source_offsets(text: str | None) -> tuple[Any, ...]:
    # Spark's OffsetSeqLog: version, metadata of the batch, then one line a source; a dash for one without a batch.
    lines = (text or "").strip().split("\n")[2:]
    return tuple(json.loads(line) if line.startswith("{") else None for line in lines)


def last_kafka_offsets(lake: Lake, path: str) -> dict[str, dict[str, int]]:
    """Read the next offsets of all Kafka sources of a query after its last finished batch, `{"orders": {"0": 17}}`."""
    found: dict[str, dict[str, int]] = {}
    for document in read_checkpoint_location(lake, path).committed_by_source:
        # A query may have other sources, too: a Delta source's line has numbers and texts.
        if document and all(isinstance(partitions, dict) for partitions in document.values()):
            found |= document
    return found


def kafka_positions(document: Mapping[str, Mapping[str, int]] | None) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in (document or {}).items()
        for partition, offset in partitions.items()
    }


def land_checkpoint_path(lake: Lake, alias: str, number: int) -> str:
    return f"{lake.checkpoint_root()}/land/{alias}/{number}"


def newest_location(lake: Lake, alias: str, number: int) -> CheckpointLocation:
    """Read the newest checkpoint location of a source with a finished batch, or that of `number` if there is none.

    A relay from a backup has a lower number than the newest locations.
    """
    root = land_checkpoint_path(lake, alias, number).rpartition("/")[0]
    numbers = {number, *(int(name) for name in open_folder(root).names() if name.isdigit())}
    for one in sorted(numbers, reverse=True):
        known = read_checkpoint_location(lake, f"{root}/{one}")
        if known.last_committed >= 0:
            return known
    return read_checkpoint_location(lake, f"{root}/{number}")


def rewind_positions(lake: Lake, alias: str) -> dict[SourcePartition, int]:
    """Delete the positions of a source past the records that its relay has, or that left it by retention.

    Return the number of offsets to land again, by partition.
    """
    held = dict(left_before(lake, alias))
    for source, at in update_landed_positions(lake, alias, LandedPositions(reached={}, accounted={})).reached.items():
        held[source] = max(at, held.get(source, 0))
    again = {}
    for row in lake.query(_ACCOUNTS, source=alias):
        source = SourcePartition(row.topic, row.generation, row.partition)
        # Nothing was landed before the position at which the account was opened.
        last = max(held.get(source, 0), int(row.opened))
        if last < int(row.position):
            lake.delete_rows(
                POSITIONS,
                f"source = {quote(alias)} AND kind = 'landed' AND topic = {quote(source.topic)} "
                f"AND generation = {source.generation} AND partition = {source.partition} AND position > {last}",
            )
            again[source] = int(row.position) - last
    return again


_ACCOUNTS = """
    SELECT topic, generation, partition, min(position) AS opened, max(position) AS position FROM {positions}
    WHERE source = :source AND kind = 'landed' GROUP BY topic, generation, partition
"""


def read_landing_positions(lake: Lake, alias: str) -> dict[SourcePartition, int]:
    """Read the next offset that landing will read of each partition, past the control records at its end."""
    location = lake.relay_location(alias)
    if not lake.exists(location):
        return {}
    history = landing_history(lake, location)
    if history.read_to is not None:
        return dict(history.read_to)
    number = int(lake.properties(location).get(CHECKPOINT_PROPERTY, "0"))
    known = read_checkpoint_location(lake, land_checkpoint_path(lake, alias, number))
    return location_positions(known, newest_topics(lake, alias, "source", missing_ok=True))


def location_positions(location: CheckpointLocation, known: Mapping[str, KnownTopic]) -> dict[SourcePartition, int]:
    """Return the next offsets after the last finished batch, of each partition's newest generation.

    A generation of a partition begins with a new checkpoint location.
    """
    return {
        SourcePartition(tp.topic, known[tp.topic].generation_of(tp.partition), tp.partition): offset
        for tp, offset in kafka_positions(location.committed).items()
        if tp.topic in known
    }


def landed_and_republished(*, holds: int | None, seen: int, end: int, sent: int) -> tuple[int, int]:
    """Return the landed and the republished position of a source partition.

    Control records at its end are read but never landed. `holds` is the offset after the relay's last record, None without one;
    `seen` the next offset to read (`read_to`); `end` the source's; `sent` the next one to republish by the flow's ledger.
    """
    held = holds or 0
    reached = min(max(held, seen), max(end, held))
    return reached, reached if holds is not None and sent >= held else sent


@dataclass(frozen=True, slots=True)
class LandedPositions:
    """The next offset to land of each partition; holes between `accounted` and `reached` may still be missing in `gaps`.

    `log` follows the relay from then on. If only Spark reaches it, `landed_at` is the time of the newest batch read.
    """

    reached: Mapping[SourcePartition, int]
    accounted: Mapping[SourcePartition, int]
    landed_at: datetime | None = field(default=None, compare=False)
    log: RelayLog | None = field(default=None, compare=False, repr=False)

    @property
    def is_accounted(self) -> bool:
        return self.reached == self.accounted


def accounted_until(lake: Lake, alias: str) -> datetime | None:
    """Read the time of the newest batch that `positions` accounts for, or None if no row has it."""
    text = "SELECT max(landed_at) AS newest FROM {positions} WHERE source = :source AND kind = 'landed'"
    [row] = lake.query(text, source=alias)
    return None if row.newest is None else row.newest.astimezone(timezone.utc)


def accounted_positions(lake: Lake, alias: str) -> dict[SourcePartition, int]:
    """Read the next offset of each partition from `positions`; the relay may hold more."""
    rows = lake.query(_ACCOUNTS, source=alias)
    return {SourcePartition(row.topic, row.generation, row.partition): int(row.position) for row in rows}


def count_landed_since(lake: Lake, alias: str, since: datetime) -> dict[TopicPartition, int]:
    """Count the offsets of each partition landed since a time."""
    rows = lake.query(
        "SELECT topic, partition, max(position) - min(position) AS records FROM {positions} "
        "WHERE source = :source AND kind = 'landed' AND observed_at >= :since GROUP BY topic, generation, partition",
        source=alias,
        since=since,
        missing_ok=True,
    )
    return {TopicPartition(row.topic, row.partition): int(row.records) for row in rows}


def landed_positions(lake: Lake, alias: str) -> LandedPositions:
    """Read how far a source is landed: of the relay only records past the accounted positions."""
    accounted = accounted_positions(lake, alias)
    return update_landed_positions(lake, alias, LandedPositions(reached=accounted, accounted=accounted))


def update_landed_positions(lake: Lake, alias: str, known: LandedPositions) -> LandedPositions:
    """Return the positions with the batches since the last read.

    In a folder the log's statistics suffice: opening a file costs 1.3 ms of CPU, and four batches a second write one a partition.
    Spark reads only newer batches; batch times always increase, whatever the clock says.
    """
    reached, newest = dict(known.reached), known.landed_at
    log = known.log or lake.relay_log(alias)
    if log is not None:
        for file in log.files(reached) if known.log is None else log.new_files(reached):
            reached[file.source] = max(reached.get(file.source, 0), file.last_offset + 1)
        return replace(known, reached=reached, log=log)
    for row in summarize_landed_after(lake, alias, known.reached if newest is None else {}, newest):
        source = SourcePartition(row.topic, row.generation, row.partition)
        reached[source] = max(reached.get(source, 0), int(row.last) + 1)
        newest = row.landed_at if newest is None else max(newest, row.landed_at)
    return replace(known, reached=reached, landed_at=newest)


def summarize_landed_after(
    lake: Lake,
    alias: str,
    positions: Mapping[SourcePartition, int],
    since: datetime | None,
    until: datetime | None = None,
) -> list[Any]:
    """Return first, last and count of the records at or past each position, in batches after `since` up to `until`.

    Rows: `topic, generation, partition, first, last, records, newest` (record timestamp), `landed_at` (newest batch).
    """
    part = RelayPart(positions, since=since, until=until)
    return lake.query(
        _SPANS, relay=alias, part=part, tables={"known": part.known()}, since=part.since, until=part.until
    )


_SPANS = """
    SELECT r.topic, r.generation, r.partition, min(r.`offset`) AS first, max(r.`offset`) AS last, count(*) AS records,
        max(r.timestamp) AS newest, max(r.landed_at) AS landed_at
    FROM {relay} AS r LEFT JOIN {known} AS k
        ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE (k.position IS NULL OR r.`offset` >= k.position)
        AND unix_micros(r.landed_at) > :since AND unix_micros(r.landed_at) <= :until
    GROUP BY r.topic, r.generation, r.partition
"""
