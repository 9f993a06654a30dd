"""Since when records wait: the oldest one at each position, and transactions that let nobody read on.

The time lag of a hop is the age of the oldest record that has not passed it, read by its offset and never interpolated.
Records that a rule withheld, aborted records and markers do not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import RecordReader
from mirrorlake.lake import Lake, PositionKey, RelayPart, dense_ranges, from_micros
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.late_times import relay_us
from mirrorlake.offsets import OffsetMaps, to_mapped_range
from mirrorlake.render import format_count, format_duration
from mirrorlake.status.verdict import age_ms

Offsets = Mapping[SourcePartition, int]
Readers = Callable[[str], AbstractContextManager[RecordReader]]
"""Open a reader of a source's records."""

# Partitions whose next record is read from the source at one snapshot; the time lag of further ones stays unknown.
_MAX_READ = 200
# The oldest waiting record is searched first within this many offsets.
_NEAR = 1_000


class WaitPosition(NamedTuple):
    """A position in a source partition that records may wait at; of a flow that may have withheld some, or of none."""

    flow: str | None
    source: SourcePartition
    position: int


Waiting = dict[PositionKey, datetime | None]
"""The timestamp of the oldest record that waits at a position, None where none does; a position of which it is not known is absent."""


class Ages:
    """Find since when records wait at the positions of one source. A position that did not move is not read again."""

    def __init__(self, lake: Lake, alias: str) -> None:
        self._lake = lake
        self._alias = alias
        self._known: dict[WaitPosition, datetime] = {}

    def find(
        self, places: Mapping[PositionKey, WaitPosition], *, landed: Offsets, ends: Offsets, readers: Readers | None
    ) -> Waiting:
        """Return what waits at each place up to the source's `ends`; `landed` are the next offsets to land.

        What is not landed yet is read from the source, the next record of a partition each; without `readers` it is not known.
        """
        asked = {place for place in places.values() if place.source in ends}
        found: dict[WaitPosition, datetime | None] = {one: None for one in asked if one.position >= ends[one.source]}
        since = {place: self._known[place] for place in asked - found.keys() if place in self._known}
        self._known = since | self._landed_since(asked - found.keys() - since.keys(), landed, ends)
        found |= self._known
        # Nothing landed waits: either all is landed, or it is the next record of the source.
        rest = {one: (one.source, max(one.position, landed.get(one.source, 0))) for one in asked - found.keys()}
        found |= {place: None for place, (source, offset) in rest.items() if offset >= ends[source]}
        unlanded = {rest[place] for place in rest.keys() - found.keys()}
        following = {} if readers is None else read_next_timestamps(readers, self._alias, unlanded)
        found |= {place: following[next_] for place, next_ in rest.items() if next_ in following}
        return {key: found[place] for key, place in places.items() if place in found}

    def _landed_since(
        self, asked: Iterable[WaitPosition], landed: Offsets, ends: Offsets
    ) -> dict[WaitPosition, datetime]:
        # The oldest waiting record is nearly always among the first ones, so a backlog of millions is not read for it.
        unsent = (one for one in asked if one.position < landed.get(one.source, 0))
        near = {one: min(ends[one.source], one.position + _NEAR) for one in unsent}
        if not near or not self._lake.exists(self._lake.relay_location(self._alias)):
            return {}
        found = self._query(near)
        far = {place: ends[place.source] for place in near if place not in found and near[place] < ends[place.source]}
        return found | self._query(far) if far else found

    def _query(self, until: Mapping[WaitPosition, int]) -> dict[WaitPosition, datetime]:
        """Return the timestamp of the oldest record that waits at each place before an offset, without those where none does."""
        places = list(until)
        rows = [
            {**one._asdict(), **asdict(one.source), "number": n, "until": until[one]} for n, one in enumerate(places)
        ]
        starts, ends = dict[SourcePartition, int](), dict[SourcePartition, int]()
        for place, end in until.items():
            starts[place.source] = min(place.position, starts.get(place.source, place.position))
            ends[place.source] = max(end, ends.get(place.source, end))
        part = RelayPart(starts, ends=ends, others=False)
        # The bounds over all places are what file statistics can answer.
        lowest, highest = min(place.position for place in places), max(until.values())
        tables = {"places": pa.Table.from_pylist(rows, _PLACES)}
        answer = self._lake.query(_OLDEST, relay=self._alias, part=part, tables=tables, lowest=lowest, highest=highest)
        return {places[row.number]: row.since for row in answer}


_PLACES = pa.schema(
    {
        **dict.fromkeys(("flow", "topic"), pa.string()),
        **dict.fromkeys(("number", "generation", "partition"), pa.int32()),
        **dict.fromkeys(("position", "until"), pa.int64()),
    }
)
_OLDEST = f"""
    WITH withheld AS (
        SELECT p.number, m.first_upstream, m.last_upstream, m.holes, m.lane, m.ledger_seq
        FROM {{offset_map}} AS m JOIN {{places}} AS p
            ON m.flow = p.flow AND m.source_topic = p.topic AND m.generation = p.generation AND m.source_partition = p.partition
        WHERE m.kind <> 'sent' AND m.last_upstream >= p.position AND m.first_upstream < p.until
    ),
    stretches AS ({dense_ranges("withheld", "number")})
    SELECT p.number, min_by(r.timestamp, r.`offset`) AS since
    FROM {{relay}} AS r JOIN {{places}} AS p
        ON r.topic = p.topic AND r.generation = p.generation AND r.partition = p.partition
    WHERE r.`offset` >= :lowest AND r.`offset` < :highest
        AND r.`offset` >= p.position AND r.`offset` < p.until AND NOT EXISTS (
        SELECT 1 FROM stretches AS s
        WHERE s.number = p.number AND s.first <= r.`offset` AND r.`offset` <= s.last)
    GROUP BY p.number
"""  # noqa: S608  names of columns


def read_next_timestamps(
    readers: Readers, alias: str, places: Collection[tuple[SourcePartition, int]]
) -> dict[tuple[SourcePartition, int], datetime | None]:
    """Read the timestamps of the next records of a source from offsets on.

    None where nothing but markers follows; a partition that was not read is left out.
    """
    found: dict[tuple[SourcePartition, int], datetime | None] = {}
    if places:
        with suppress(ClusterError), readers(alias) as reader:
            for source, offset in sorted(places)[:_MAX_READ]:
                record = next(reader.read(source.topic, source.partition, offset), None)
                found[source, offset] = None if record is None else from_micros(relay_us(record.timestamp_ms))
    return found


# -- groups on a target ------------------------------------------------------------------------------------------------------


class TargetCommit(NamedTuple):
    """The position of a group in a partition of a flow's remote topic."""

    flow: str
    group: str
    partition: TopicPartition
    position: int


def find_unread(
    maps: OffsetMaps, commits: Iterable[TargetCommit], sent: Mapping[str, Mapping[SourcePartition, int]]
) -> dict[TargetCommit, dict[PositionKey, int]]:
    """Return the oldest unread record on the source for groups on targets (law A); `sent` is how far each flow has sent.

    A group that has read all of the remote topic waits for what is sent next. Where several source partitions feed one of the
    target, it has a position in each.
    """
    asked = list(commits)
    found: dict[TargetCommit, dict[PositionKey, int]] = {one: {} for one in asked}
    rows = [{**one._asdict(), **asdict(one.partition), "number": n} for n, one in enumerate(asked)]
    for row in maps.ask(_UNREAD, tables={"commits": pa.Table.from_pylist(rows, _PLACES)}) if rows else ():
        one, source = asked[row.number], SourcePartition(row.source_topic, row.generation, row.source_partition)
        position = sent[one.flow].get(source)
        if position is None:
            continue
        if row.first_downstream is not None:
            position = to_mapped_range(row).upstream_of(max(one.position, row.first_downstream))
        place = row.source_topic, row.generation, row.source_partition
        found[one][PositionKey(row.source, one.flow, *place, "consumed", one.group)] = position
    return found


# The first mapped range that is not before the position, of each source partition; null where all are.
_UNREAD = """
    SELECT number, source, source_topic, generation, source_partition, any_value(target_topic) AS target_topic,
        any_value(target_partition) AS target_partition, min(place) AS first_downstream,
        min_by(first_upstream, place) AS first_upstream, min_by(last_upstream, place) AS last_upstream,
        min_by(record_count, place) AS record_count, min_by(holes, place) AS holes
    FROM (
        SELECT c.number, r.*, CASE WHEN r.first_downstream + r.record_count > c.position THEN r.first_downstream END AS place
        FROM {runs} AS r JOIN {commits} AS c
            ON r.flow = c.flow AND r.target_topic = c.topic AND r.target_partition = c.partition)
    GROUP BY number, source, source_topic, generation, source_partition
"""


# -- transactions that block a partition -------------------------------------------------------------------------------------

# The default `transaction.timeout.ms` of Java's producers; an older transaction hangs, or its time-out was set higher.
HANGS_MS = 60_000
_FIX = (
    "let its producer end it, or where it hangs: kafka-transactions.sh --bootstrap-server {} abort --topic {} --partition {} "
    "--start-offset {} (find-hanging in place of abort tells whether it does)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that blocks a partition: nobody may read on from its first record, whoever wrote the next.

    `offset` is the last stable offset, that of this record, and `since_ms` its timestamp; `offsets` counts up to the high watermark.
    """

    cluster: str
    topic: str
    partition: int
    offset: int
    offsets: int
    since_ms: int
    fix: str

    @property
    def since(self) -> datetime:
        return from_micros(self.since_ms * 1000)

    def describe(self, now: datetime) -> str:
        since = f"{self.since:%H:%M:%S} UTC, {format_duration(age_ms(self.since, now))}"
        offsets = f"{format_count(self.offsets)} offsets from {self.offset} on cannot be read yet"
        return f"a transaction of the source is open since {since}: {offsets}"

    def __str__(self) -> str:
        said = f"{self.topic}-{self.partition} on {self.cluster}: {format_count(self.offsets)} offsets from {self.offset} on"
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"{said} are not mirrored, a transaction is open since {since}; next: {self.fix}"


OpenTransactions = Mapping[TopicPartition, OpenTransaction]


def find_open_transactions(context: Context, alias: str, stable: Mapping[TopicPartition, int]) -> OpenTransactions:
    """Return the open transaction of each partition that has one; `stable` are their last stable offsets of a moment ago."""
    admin = context.admin(alias)
    past = {tp: end for tp, end in admin.high_watermarks(stable).items() if end > stable[tp]}
    # A log that has only grown meanwhile has another last stable offset by now.
    still = admin.last_stable_offsets(past) if past else {}
    places = {tp: offset for tp, offset in sorted(still.items()) if offset == stable[tp]}
    if not places:
        return {}
    with context.reader(alias, committed=False) as reader:
        firsts = reader.read_each(places)
    return {
        tp: OpenTransaction(
            cluster=alias,
            **asdict(tp),
            offset=places[tp],
            offsets=past[tp] - places[tp],
            since_ms=relay_us(first.timestamp_ms) // 1000,
            fix=_FIX.format(admin.servers, tp.topic, tp.partition, places[tp]),
        )
        for tp, first in sorted(firsts.items())
    }
