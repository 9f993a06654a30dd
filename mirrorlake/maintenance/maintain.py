"""Run one maintenance pass over a lake in a folder: expire, compact, write log checkpoints, clean logs, vacuum.

A table that fails is named; the others are still maintained. No writer or reader stops: a replacement is one commit, removed
files stay on disk for hours, and readers list the files if the log was cleaned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from deltalake.exceptions import DeltaError

from mirrorlake.config.schema import ClusterConfig, MaintenanceConfig, RetentionConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import (
    AUDIT,
    MAINTAIN,
    SIDE_TABLES,
    Audit,
    Lake,
    TableMaintenance,
    TableSchema,
    accounted_positions,
    proven_until,
)
from mirrorlake.maintenance.compaction import SentUpTo, compact_relay, kept_files
from mirrorlake.maintenance.removal import OutOfTables, Removals
from mirrorlake.maintenance.results import Compacted, Expired, HeldBack, KeptTable
from mirrorlake.maintenance.retention import Guard, not_accounted, not_proven, not_sent, plan_expiry, replayable
from mirrorlake.maintenance.side_tables import compact_side_table
from mirrorlake.model.plan import Change
from mirrorlake.timing import timing

log = logging.getLogger(__name__)

# At four commits a second, a log of 60 000 commits costs each further commit 450 ms of CPU for its listing; 2 400, 20 ms.
_CHECKPOINT_AFTER = 300
# Writers also write log checkpoints, for tables without maintenance: seldom, because a batch waits for each.
_WRITERS_CHECKPOINT = "5000"
# Such a file belongs to a dead writer, or to a writer that is about to commit.
_ORPHANS_AFTER = timedelta(days=1)
# The records that left a relay by its retention, and those that stay past it.
_Left = tuple[Expired, tuple[HeldBack, ...]]


@dataclass(eq=False, repr=False)
class LakeUpkeep:
    """Maintain the tables of one lake.

    `needed` are further guards of each source's records, beside its flows. `out_of_tables` erases the rows of typed tables, for
    an erasure that was killed. `is_stopped` is called between two steps; a stopped pass leaves the rest to the next pass.
    """

    lake: Lake
    settings: MaintenanceConfig
    _: KW_ONLY
    now: Callable[[], datetime]
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)
    needed: Mapping[str, Sequence[Guard]] = field(default_factory=dict)
    out_of_tables: OutOfTables = lambda _alias, _removed: {}
    is_stopped: Callable[[], bool] = lambda: False

    def relay(self, alias: str, flows: Sequence[SentUpTo], *, is_published: bool, plan: bool) -> KeptTable | None:
        name, table = f"relay of {alias}", self.lake.open_maintenance(self.lake.relay_location(alias))
        if table is None:
            has_retention = alias in self.clusters and bool(self.clusters[alias].retention)
            why_not = "its retention needs a lake in a folder or an object store: nothing leaves it"
            return KeptTable(table=name, why_not=why_not) if has_retention and self.lake.is_spark_only else None
        if is_published:
            # Spark writes it, and publishers find in its history which batches they have published.
            return KeptTable(table=name, files=len(table.live()))

        def compact() -> Compacted:
            return compact_relay(
                table,
                alias,
                flows,
                now=self.now(),
                max_wait=self.settings.max_wait_for_flows,
                plan=plan,
                is_stopped=self.is_stopped,
            )

        streams = any(standing.flow.execution == "streaming" for standing in flows)
        expire = partial(self._expired, table, alias, flows, plan=plan)
        return self._kept(name, table, compact, plan=plan, is_signed=True, cleans=not streams, expire=expire)

    def _expired(self, table: TableMaintenance, alias: str, flows: Sequence[SentUpTo], *, plan: bool) -> _Left:
        """Finish announced removals, then take out records past the relay's retention."""
        removals = Removals(self.lake, alias, table, self.out_of_tables)
        if not plan:
            removals.finish()
        cluster, now = self.clusters.get(alias), self.now()
        if cluster is None or not cluster.retention or self.is_stopped():
            return Expired(), ()
        always: list[Guard] = [
            *map(not_sent, flows),
            not_accounted(partial(accounted_positions, self.lake, alias)),
            replayable(self.settings.replay_window, now),
            *self.needed.get(alias, ()),
        ]

        def guards(settings: RetentionConfig) -> Sequence[Guard]:
            return [*always, *self._proofs(flows)] if settings.proven else always

        files = [file for file in kept_files(table) if file.landed_by < now - timedelta(seconds=timing().hot_s)]
        expiries, held = plan_expiry(files, cluster.retention_of, guards, now)
        if not plan:
            left = removals.expire(expiries, now)
            if left:
                log.info("maintenance.expired source=%s records=%s", alias, sum(one.records for one in left))
            _warn(alias, held)
        return Expired(
            records=sum(one.records for one in expiries),
            files=len({file.path for one in expiries for file in one.files}),
            bytes=sum(one.bytes for one in expiries),
        ), tuple(held)

    def _proofs(self, flows: Sequence[SentUpTo]) -> list[Guard]:
        return [not_proven(one.flow.name, proven_until(self.lake, one.flow), one.flow.carries) for one in flows]

    def side_table(self, schema: TableSchema, *, plan: bool) -> KeptTable | None:
        table = self.lake.open_maintenance(self.lake.meta_location(schema))
        if table is None:
            return None
        compact = partial(compact_side_table, table, schema, plan=plan)
        return self._kept(schema.name, table, compact, plan=plan, is_signed=False, cleans=True)

    def typed_table(self, name: str, *, plan: bool) -> KeptTable | None:
        """Compact a typed table and delete its old files; return None if only Spark reaches it.

        Its log stays: the commit of its newest batch holds its positions.
        """
        table = self.lake.open_maintenance(self.lake.typed_location(name))
        if table is None:
            return None
        if self.lake.has_deletion_vectors(table.path):
            return self._kept_by_spark(f"table {name}", table, plan=plan)
        schema = TableSchema(name=name, comment="", columns={}, properties={})
        compact = partial(compact_side_table, table, schema, plan=plan)
        return self._kept(f"table {name}", table, compact, plan=plan, is_signed=True, cleans=False)

    def _kept_by_spark(self, name: str, table: TableMaintenance, *, plan: bool) -> KeptTable:
        """Maintain a table with deletion vectors.

        delta-rs 1.6 would remove a file without its vector, which leaves the file in the table, and delete the vectors' own files.
        """
        try:
            if plan:
                return KeptTable(table=name, files=len(table.live()))
            table.ensure_properties(self._properties(cleans=False))
            checkpoint = table.checkpoint(after=_CHECKPOINT_AFTER)
            self.lake.vacuum_by_spark(table.path, keep=self.settings.keep_removed)
            files, size, into = self.lake.compact_by_spark(table.path)
            compacted = Compacted(files=files, bytes=size, into=into)
            return KeptTable(table=name, files=len(table.live()), compacted=compacted, log_checkpoint=checkpoint)
        except Exception as error:  # Spark's, too: a batch that came first; the next pass tries again
            log.info("maintenance.failed table=%s", name, exc_info=True)
            return KeptTable(table=name, why_not=str(error).partition("\n")[0])

    def tables(
        self, flows: Mapping[str, Sequence[SentUpTo]], *, published: Sequence[str], plan: bool
    ) -> list[KeptTable]:
        relays = (
            self.relay(alias, standing, is_published=alias in published, plan=plan)
            for alias, standing in sorted(flows.items())
        )
        side_tables = (self.side_table(schema, plan=plan) for schema in SIDE_TABLES)
        typed_tables = (self.typed_table(name, plan=plan) for name in self.lake.typed_names())
        tables = [
            kept for kept in chain(relays, side_tables, typed_tables) if kept is not None and not self.is_stopped()
        ]
        if not plan:
            self._record(tables)
        return tables

    def _record(self, tables: Sequence[KeptTable]) -> None:
        """Record a pass that rewrote or deleted files; the tables' logs name its commits for minutes only."""
        after = {
            one.table: {"files": one.compacted.files, "into": one.compacted.into, "deleted": one.deleted}
            for one in tables
            if one.compacted.files or one.deleted
        }
        if after:
            self.lake.create_side_table(AUDIT)
            change = Change(where="lake", kind="lake", name="tables", action=MAINTAIN, after=after)
            Audit(self.lake, now=self.now).record([change], command=MAINTAIN)

    def _kept(
        self,
        name: str,
        table: TableMaintenance,
        compact: Callable[[], Compacted],
        *,
        plan: bool,
        is_signed: bool,
        cleans: bool,
        expire: Callable[[], _Left] = lambda: (Expired(), ()),
    ) -> KeptTable:
        try:
            if plan:
                expired, held = expire()
                files = len(table.live())
                return KeptTable(table=name, files=files, compacted=compact(), expired=expired, held=held)
            table.ensure_properties(self._properties(cleans=cleans))
            # Before compaction: the log is cleaned even if a file fails there.
            checkpoint = table.checkpoint(after=_CHECKPOINT_AFTER)
            if cleans:
                table.clean_log(keep=self.settings.keep_log, now=self.now(), is_signed=is_signed)
            keep = self.settings.keep_removed
            deleted = table.vacuum(keep=keep) + table.vacuum(keep=max(keep, _ORPHANS_AFTER), orphans=True)
            # Before compaction: expired files need not be rewritten.
            expired, held = expire()
            compacted = compact()
            return KeptTable(
                table=name,
                files=len(table.live()),
                compacted=compacted,
                deleted=deleted,
                log_checkpoint=checkpoint,
                expired=expired,
                held=held,
            )
        except (MirrorlakeError, DeltaError, OSError) as error:
            log.info("maintenance.failed table=%s", name, exc_info=True)
            return KeptTable(table=name, why_not=str(error).partition("\n")[0])

    def _properties(self, *, cleans: bool) -> dict[str, str]:
        minutes, hours = (
            self.settings.keep_log / timedelta(minutes=1),
            self.settings.keep_removed / timedelta(hours=1),
        )
        shared = {
            "delta.checkpointInterval": _WRITERS_CHECKPOINT,
            "delta.deletedFileRetentionDuration": f"interval {max(1, round(hours))} hours",
        }
        if not cleans:
            return shared
        # Only maintenance cleans the log: it knows which commits must stay.
        return shared | {
            "delta.enableExpiredLogCleanup": "false",
            "delta.logRetentionDuration": f"interval {max(1, round(minutes))} minutes",
        }


def _warn(alias: str, held: Sequence[HeldBack]) -> None:
    """Log who holds back records past a relay's retention: the relay grows meanwhile."""
    for name in sorted({one.held_by for one in held} - {"landing"}):
        mine = [one for one in held if one.held_by == name]
        size = sum(one.bytes for one in mine)
        log.warning(
            "maintenance.held source=%s by=%s bytes=%s why=%s next=%s", alias, name, size, mine[0].why, mine[0].remedy
        )
