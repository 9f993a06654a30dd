"""Copy a flow's ledger to the table `offset_map`.

Law F: the ledger is the truth and the table its copy; after a crash the records missing in the table are read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from mirrorlake.config.schema import FlowConfig
from mirrorlake.crash_points import crash_point
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.lake import OFFSET_MAP, Lake, Row, remote_names
from mirrorlake.model.epochs import EPOCHS, table_version
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.remotes import BEGUN_AGAIN, Remote
from mirrorlake.model.withheld import SENT

log = logging.getLogger(__name__)

_APP = "mirrorlake.ledger"
# A row's commit time yields delays, so only ranges of one second are merged.
_MERGE_WINDOW_MS = 1000
# An epoch from a broken clock must not be continued.
_NEWEST = """
    SELECT lane, max(ledger_seq) AS seq, max(CASE WHEN epoch < :epochs THEN epoch END) AS epoch
    FROM {offset_map} WHERE flow = :flow GROUP BY lane
"""
# A row of another incarnation of its topic does not count; without an id it belongs to the one at its commit time.
_POSITIONS = """
    WITH done AS (
        SELECT source_topic AS topic, generation, source_partition AS partition, last_upstream AS reached, kind,
            target_topic_id, committed_at AS at
        FROM {offset_map} WHERE flow = :flow AND target_topic = <source_topic>
    ),
    lives AS (
        SELECT topic, nullif(max_by(coalesce(target_topic_id, ''), at), '') AS life
        FROM done WHERE kind = 'sent' GROUP BY topic
    ),
    begun AS (
        SELECT topic, generation, partition, max_by(position, observed_at) AS begins, max(observed_at) AS since
        FROM {positions} WHERE flow = :flow AND kind = :begun AND target_topic = <topic> GROUP BY topic, generation, partition
    ),
    everything AS (
        SELECT d.topic, d.generation, d.partition, d.reached
        FROM done AS d LEFT JOIN lives AS l ON d.topic = l.topic
        LEFT JOIN begun AS b ON d.topic = b.topic AND d.generation = b.generation AND d.partition = b.partition
        WHERE CASE WHEN d.target_topic_id IS NOT NULL AND l.life IS NOT NULL THEN d.target_topic_id = l.life
            ELSE b.since IS NULL OR unix_micros(d.at) >= unix_micros(b.since) END
        UNION ALL
        SELECT p.topic, p.generation, p.partition, p.position - 1
        FROM {positions} AS p
        LEFT JOIN begun AS b ON p.topic = b.topic AND p.generation = b.generation AND p.partition = b.partition
        WHERE p.flow = :flow AND p.kind = 'taken_over' AND p.target_topic = <p.topic> AND b.topic IS NULL
        UNION ALL
        SELECT topic, generation, partition, begins - 1 FROM begun WHERE begins > 0
    )
    SELECT topic, generation, partition, max(reached) + 1 AS position FROM everything GROUP BY topic, generation, partition
"""
_ENDS = """
    SELECT target_topic, target_partition, max(first_downstream + record_count) AS sent, target_topic_id
    FROM {offset_map} WHERE flow = :flow AND kind = 'sent' AND target_topic_id IS NOT NULL
    GROUP BY target_topic, target_partition, target_topic_id
"""
_REMOTES = """
    SELECT source_topic, target_topic, target_topic_id FROM (
        SELECT source_topic, target_topic, target_topic_id,
            row_number() OVER (PARTITION BY source_topic ORDER BY committed_at DESC) AS rank
        FROM {offset_map} WHERE flow = :flow AND kind = 'sent' AND target_topic = <source_topic>)
    WHERE rank = 1
"""


class LedgerCopy:
    """Maintain the copy of one flow's ledger.

    `copied_seqs` are the newest ledger records of the lanes in the table, `copied_epoch` is the newest owner's.
    """

    def __init__(self, lake: Lake, flow: FlowConfig) -> None:
        self._lake = lake
        self._config = flow
        self._flow = flow.name
        self._epoch = 0
        self._appends = 0
        self.copied_epoch = 0
        self.copied_seqs: dict[int, int] = {}

    def owned_by(self, epoch: int) -> LedgerCopy:
        """Append under the epoch of the flow's owner from now on."""
        self._epoch = epoch
        return self

    def load(self) -> dict[int, int]:
        rows = self._lake.query(_NEWEST, flow=self._flow, epochs=EPOCHS - 1)
        self.copied_seqs = {row.lane: int(row.seq) for row in rows}
        self.copied_epoch = max([self.copied_epoch, *(row.epoch or 0 for row in rows)])
        return self.copied_seqs

    def repair(self, reader: LedgerReader, admin: ClusterAdmin, lanes: Sequence[int]) -> list[LedgerRecord]:
        """Append the ledger records that the table lacks, and return them.

        Older ledger records that the table has are deleted afterwards, except the last full one of a lane and later ones.
        """
        ledger = {lane: reader.since(lane, 0) for lane in lanes}
        if self._find_missing(ledger):
            # An older owner may be about to append the same records: fence it, then check which are still missing.
            self._append([], table_version(self._epoch, 0))
            self.load()
        missing = self._find_missing(ledger)
        self.add(missing)
        try:
            self._delete_copied(reader.topic, admin, ledger)
        except ClusterError as error:
            # A longer ledger does no harm, and the next owner tries again.
            log.info("ledger.not_trimmed flow=%s why=%s", self._flow, error.cause)
        return missing

    def trim(self, reader: LedgerReader, admin: ClusterAdmin, lanes: Sequence[int]) -> int:
        """Delete the ledger records that the table has. Return how many were deleted.

        The last full record of a lane and later ones stay (law F: the ledger never knows less). The flow may run meanwhile:
        the table only grows.

        Raises:
            ClusterError: the target does not answer, or does not let records be deleted.
        """
        ledger = {lane: reader.since(lane, 0) for lane in lanes}
        # Read after the ledger: a record that is missing in an older state of the table would only be deleted later.
        self.load()
        return self._delete_copied(reader.topic, admin, ledger)

    def add(self, records: Sequence[LedgerRecord]) -> None:
        """Append the contents of ledger records that the table lacks."""
        self._appends += 1
        missing = [record for record in records if self._is_missing(record)]
        if not missing:
            return
        self._append(fate_rows(self._flow, missing), table_version(self._epoch, self._appends))
        for record in missing:
            lane = record.claim.lane
            self.copied_seqs[lane] = max(self.copied_seqs.get(lane, -1), record.seq)

    def _append(self, rows: Sequence[Row], version: int) -> None:
        """Append rows, or none to fence older owners: the epochs of these are older, and what they append is dropped."""
        crash_point("ledger.copying")
        app_id = f"{_APP}.{self._flow}"
        if rows:
            self._lake.append(OFFSET_MAP, rows, app_id=app_id, version=version)
        else:
            self._lake.fence(OFFSET_MAP, app_id=app_id, version=version)
        crash_point("ledger.copied")

    def _find_missing(self, ledger: Mapping[int, Sequence[tuple[int, LedgerRecord]]]) -> list[LedgerRecord]:
        return [record for records in ledger.values() for _, record in records if self._is_missing(record)]

    def _is_missing(self, record: LedgerRecord) -> bool:
        # A record without fates has no row.
        return bool(record.runs or record.withheld) and record.seq > self.copied_seqs.get(record.claim.lane, -1)

    def _delete_copied(
        self, topic: str, admin: ClusterAdmin, ledger: Mapping[int, Sequence[tuple[int, LedgerRecord]]]
    ) -> int:
        keep: dict[TopicPartition, int] = {}
        deleted = 0
        for lane, records in ledger.items():
            last_full = max((index for index, (_, record) in enumerate(records) if record.is_whole), default=0)
            missing = (index for index, (_, record) in enumerate(records[:last_full]) if self._is_missing(record))
            if below := next(missing, last_full):
                keep[TopicPartition(topic, lane)] = records[below][0]
                deleted += below
        if keep:
            crash_point("ledger.trimming")
            admin.delete_records_before(keep)
            crash_point("ledger.trimmed")
        return deleted

    def positions(self) -> dict[SourcePartition, int]:
        """Read the next upstream offset of each source partition from the table, in the remote topics of the flow's policy.

        Positions taken over from another mirror count: such a partition need not have a mapped range yet. After a choice for
        a lost remote topic, only records sent since count, and its chosen first offset.
        """
        rows = self._lake.query(remote_names(_POSITIONS, self._config), flow=self._flow, begun=BEGUN_AGAIN)
        return {SourcePartition(row.topic, row.generation, row.partition): int(row.position) for row in rows}

    def remotes(self) -> dict[str, Remote]:
        """Read the last remote topic of each source topic under the flow's policy, if its id was stored."""
        rows = self._lake.query(remote_names(_REMOTES, self._config), flow=self._flow)
        return {row.source_topic: Remote(row.target_topic, row.target_topic_id) for row in rows if row.target_topic_id}

    def ends(self, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Read the offset after the last sent record in each partition of the remote topics with these ids."""
        rows = self._lake.query(_ENDS, flow=self._flow)
        return {
            TopicPartition(row.target_topic, row.target_partition): int(row.sent)
            for row in rows
            if ids.get(row.target_topic) == row.target_topic_id
        }

    def has_takeover(self) -> bool:
        taken = "SELECT 1 AS one FROM {positions} WHERE flow = :flow AND kind = 'taken_over' LIMIT 1"
        return bool(self._lake.query(taken, flow=self._flow))


def fate_rows(flow: str, records: Sequence[LedgerRecord]) -> list[Row]:
    """Return rows of `offset_map` for ledger records; sent ranges that adjoin on both sides become one row.

    A row has the `ledger_seq` of its last record, so the newest record of a lane stays the newest in the table.
    """
    sent = [
        {
            **_shared_columns(flow, record, run.source),
            "first_upstream": run.first_upstream,
            "last_upstream": run.last_upstream,
            "holes": [{"first": first, "length": length} for first, length in run.holes],
            "kind": SENT,
            "target_topic": run.target.topic,
            "target_partition": run.target.partition,
            "first_downstream": run.first_downstream,
            "record_count": run.count,
            "view": record.view or None,
        }
        for record, run in _merge_ranges(records)
    ]
    withheld = [
        {
            **_shared_columns(flow, record, item.source),
            "first_upstream": item.ranges.first,
            "last_upstream": item.ranges.end - 1,
            "holes": item.holes.structs,
            "kind": item.kind,
            "target_topic": record.remotes[item.source.topic].name if item.source.topic in record.remotes else None,
            "record_count": item.ranges.count,
            "rule": item.rule,
            "rule_version": item.version,
            "reason": item.reason,
        }
        for record in records
        for item in record.withheld
    ]
    return sent + withheld


def _shared_columns(flow: str, record: LedgerRecord, source: SourcePartition) -> Row:
    remote = record.remotes.get(source.topic)
    return {
        "flow": flow,
        "source_topic": source.topic,
        "generation": source.generation,
        "source_partition": source.partition,
        "lane": record.claim.lane,
        "ledger_seq": record.seq,
        "epoch": record.claim.epoch,
        "committed_at": datetime.fromtimestamp(record.committed_at_ms / 1000, tz=timezone.utc),
        "target_topic_id": remote.topic_id or None if remote is not None else None,
    }


def _merge_ranges(records: Iterable[LedgerRecord]) -> Iterator[tuple[LedgerRecord, MappedRange]]:
    """Yield mapped ranges, each with the last record that it is from.

    A transaction's marker follows its records, so only ranges that were sent without transactions adjoin.
    """
    open_runs: dict[tuple[int, SourcePartition, TopicPartition], tuple[LedgerRecord, MappedRange, int]] = {}
    for record in records:
        for run in record.runs:
            key = record.claim.lane, run.source, run.target
            since = record.committed_at_ms
            if (before := open_runs.pop(key, None)) is not None:
                first, earlier, began = before
                if _follows(record, run, first, earlier) and since - began < _MERGE_WINDOW_MS:
                    run, since = _join(earlier, run), began
                else:
                    yield first, earlier
            open_runs[key] = record, run, since
    for record, run, _ in open_runs.values():
        yield record, run


def _follows(record: LedgerRecord, run: MappedRange, before: LedgerRecord, earlier: MappedRange) -> bool:
    topic = run.source.topic
    return (
        run.first_downstream == earlier.last_downstream + 1
        and run.first_upstream > earlier.last_upstream
        and (record.claim.epoch, record.view) == (before.claim.epoch, before.view)
        and record.remotes.get(topic) == before.remotes.get(topic)
    )


def _join(earlier: MappedRange, run: MappedRange) -> MappedRange:
    missing = run.first_upstream - earlier.last_upstream - 1
    between = ((earlier.last_upstream + 1, missing),) if missing else ()
    return replace(
        earlier,
        last_upstream=run.last_upstream,
        count=earlier.count + run.count,
        holes=(*earlier.holes, *between, *run.holes),
    )
