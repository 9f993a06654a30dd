"""Land, republish, sample and publish: the methods of `Mirror` that move records."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake import publish
from mirrorlake.config import closest
from mirrorlake.errors import UsageError
from mirrorlake.mirror.base import MirrorBase, of_flow
from mirrorlake.mirror.flow import FlowHandle
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult, TableResult
from mirrorlake.model.remotes import LostTopic
from mirrorlake.status import Monitor, PositionSnapshot
from mirrorlake.tables import (
    TablePage,
    TableProof,
    TableRebuild,
    Tables,
    read_page,
    read_tables,
    rebuild_table,
    verify_table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlake.publish import LakeProducer, Published
    from mirrorlake.republish import Quarantine


class RunMethods(MirrorBase):
    """The methods of a `Mirror` that move records."""

    def run(
        self,
        flow: str | None = None,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        metrics_port: int | None = None,
        take_over: bool = False,
    ) -> Ran:
        """Land every source and republish every flow, or one of them.

        With `once`, the sources are drained first and the flows after them, each to its own end; then the first
        failure is raised. Otherwise all streams run side by side until `stop` is set, and follow pauses and newly
        applied settings. A stream that fails is parked, and retried if that can help; the others are not affected.
        `parked` and `status` show the reason, `resume` restarts it.

        Args:
            flow: one flow; all of them without it.
            once: drain and return.
            stop: set it to return after the current batches.
            metrics_port: serve metrics on this port (docs/metrics.md), instead of `metrics.port` of the settings.
            take_over: with `once`, drain instead of a process that runs the flows; that process ends.

        Raises:
            AlreadyRuns: with `once`, a process of any machine already runs one of the flows; nothing was done.
            MirrorlakeError: the worst reason, once every stream is parked and none can recover by itself.
        """
        return self._runner.run(
            flow, once=once, stop=stop or threading.Event(), metrics_port=metrics_port, take_over=take_over
        )

    def progress(self) -> Ran:
        """Return the counts of the newest always-on `run` of this mirror so far; zero before it began.

        Example:
            >>> mirror.progress()  # doctest: +SKIP
            run: 1 234 records landed · 1 200 records republished
        """
        return self._runner.progress()

    def running(self, flow: str | None = None) -> Mapping[str, str]:
        """Return the process that runs each flow, or one of them, now, and since when; calls no cluster.

        Law F: a second run claims relay and lanes, and the first one stops with exit 3. Runs on other machines show a sign in the lake;
        the sign of a killed run counts for 25 s after it is first read.

        Example:
            >>> mirror.running()  # doctest: +SKIP
            {'east->central': 'process 4711 on mirror-1, since 2026-01-01 12:00:00 UTC'}
        """
        return self._context.running_flows.find_running([one.name for one in self._context.chosen(flow)])

    def land(
        self,
        source: str,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        rebuild_checkpoint: bool = False,
        take_over: bool = False,
    ) -> LandResult:
        """Land one source cluster.

        Args:
            source: its alias.
            once: land the records so far and return; otherwise until `stop` is set.
            stop: set it to return after the current batch.
            rebuild_checkpoint: create a new checkpoint location from the relay after the old one was lost.
            take_over: with `once`, land instead of a process that lands the source; that process ends.

        Raises:
            AlreadyRuns: with `once`, a process of any machine already lands the source; nothing was done.
        """
        if source not in self.config.sources:
            known = self.config.sources
            raise UsageError(
                f"no flow has '{source}' as its source",
                remedy=f"{closest(source, known)}name one of: {', '.join(known)}",
            )
        return self._runner.land(
            source, once=once, stop=stop or threading.Event(), rebuild=rebuild_checkpoint, take_over=take_over
        )

    def republish(
        self,
        flow: str,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        rebuild_checkpoint: bool = False,
        restore_ledger: bool = False,
        topic: str | None = None,
        send_again: bool = False,
        accept_empty: bool = False,
        take_over: bool = False,
    ) -> RepublishResult:
        """Republish one flow (see `FlowHandle.republish`).

        `topic` with `send_again` or `accept_empty` resolves a lost remote topic (see `resolve_lost_topic`).
        """
        handle = self[flow]
        if send_again or accept_empty or topic is not None:
            self.resolve_lost_topic(flow, topic, send_again=send_again, accept_empty=accept_empty)
        return handle.republish(
            once=once,
            stop=stop,
            rebuild_checkpoint=rebuild_checkpoint,
            restore_ledger=restore_ledger,
            take_over=take_over,
        )

    lost_topics = of_flow(FlowHandle.lost_topics)

    def resolve_lost_topic(
        self, flow: str, topic: str | None, *, send_again: bool = False, accept_empty: bool = False
    ) -> LostTopic | None:
        """Choose what happens to a remote topic that was deleted or created again; the flow does it when it starts or runs.

        Returns the topic, or None if this choice was made before and is done. Law F: until then nothing is sent to the
        topic. Afterwards the offset map has only the records of the new topic.

        Args:
            flow: the flow's name.
            topic: the remote topic, or a source topic that goes into it.
            send_again: send everything again from the relay.
            accept_empty: send only unsent records; those sent into the earlier topic are not sent again.

        Raises:
            UsageError: not exactly one of both is chosen, or the topic was not lost.
            ClusterError: the target does not answer.

        Example:
            >>> mirror.resolve_lost_topic("east->central", "east.orders", send_again=True)  # doctest: +SKIP
        """
        handle = self[flow]
        if send_again == accept_empty or topic is None:
            raise UsageError(
                "a topic and one of two ways on are needed",
                consequence="nothing was changed",
                remedy="name --topic T, and --send-again or --accept-empty",
                flow=handle.name,
            )
        return handle.send_again(topic) if send_again else handle.accept_empty(topic)

    def quarantine(self, flow: str) -> Quarantine:
        """Return the quarantined records of a flow, and the call that redrives them."""
        return self[flow].quarantine

    def sample(self) -> PositionSnapshot:
        """Read all positions once and write new ones to `positions`, for lag over time (see `lag`); changes no cluster.

        A running mirror does this by itself.

        Raises:
            StoreError: the lake failed. A cluster that does not answer is reported in `PositionSnapshot.unanswered`.
        """
        return self._context.shared(Monitor).sample()

    def tables(self) -> Tables:
        """Return the typed tables of the landed topics: their lag, bad records, pauses and faults; calls no cluster.

        Example:
            >>> mirror.tables()  # doctest: +SKIP
        """
        return read_tables(self._context)

    def table(self, name: str, *, newest: int = 20) -> TablePage:
        """Return a typed table's status, columns, size, bad records by reason, and newest rows; calls no cluster.

        Columns and rows are read without Spark; where only Spark reaches the table, they are left out. Rows of topics under
        `never_leave` are left out, too.

        Args:
            name: its name.
            newest: the maximum number of rows.

        Raises:
            UsageError: no entry of the settings makes this table.

        Example:
            >>> mirror.table("sales").columns[0].type  # doctest: +SKIP
            'STRING'
        """
        return read_page(self._context, name, newest=newest)

    def rebuild_table(self, name: str, *, apply: bool = False) -> TableRebuild:
        """Build a typed table again from the relays, as one made from scratch; without `apply` nothing changes (law G).

        It is built beside the old one, and takes its place in one commit; readers and a running mirror go on. A table that is lost
        or broken is built, too. After a kill, a second call has the same result.

        Raises:
            UsageError: no entry of the settings makes this table.
            StoreError: others wrote the table again and again.
        """
        with self._context.board() as board:
            return rebuild_table(self._context, name, apply=apply, tell=board.tell)

    def verify_table(self, table: str) -> TableProof:
        """Compare a typed table with the records of the relays, up to the table's positions, by count and content.

        Law E: each record is a row, superseded by a newer one of its key, filtered by a rule, or in `bad_records`.

        Raises:
            UsageError: there is no such table, or it was never written.

        Example:
            >>> mirror.verify_table("sales").equal  # doctest: +SKIP
        """
        return verify_table(self._context, table)

    def keep_tables(
        self, table: str | None = None, *, once: bool = False, stop: threading.Event | None = None
    ) -> list[TableResult]:
        """Write the relays' records to the typed tables, or to one of them; `run` does it, too.

        Law F: a record is a row once, whatever is killed: a batch's commit carries its rows, its number and the positions.

        Args:
            table: its name; all tables without it.
            once: write the records that the relays hold, and return; otherwise until `stop` is set.
            stop: set it to return after the current batches.

        Raises:
            UsageError: there is no such table; a record is no row, and `bad_records` is `stop`; or an expression fails.
            SafetyError: another process writes the table.

        Example:
            >>> mirror.keep_tables("sales", once=True)  # doctest: +SKIP
        """
        return self._runner.keep_tables(table, once=once, stop=stop or threading.Event())

    def publish(
        self, frame: DataFrame, *, topic: str | None = None, cluster: str | None = None, batch_id: str | None = None
    ) -> Published:
        """Publish a frame into a lake cluster, in one commit: all of it or nothing. Flows carry it to their targets.

        Offsets are dense within each partition and follow the order of the frame (law D), even beside other
        publishers.

        Args:
            frame: column `value` (binary or string; null is a tombstone) and, optionally, `key`, `headers` (array of key
                and value, or a map), `timestamp` (default: now), `partition` (default: by key with murmur2, as Java's
                clients; without a key one after another) and `topic`.
            topic: the topic of all records, instead of a column.
            cluster: the lake cluster's alias; optional if there is only one.
            batch_id: a name: a second call with it publishes nothing and returns the first result, for 30 days (law F).

        Raises:
            UsageError: the cluster, the frame or a record of it does not fit; nothing was published.
            StoreError: the lake failed; the message says whether anything was published.
        """
        return publish.publisher_of(self._context, cluster).publish(frame, topic=topic, batch_id=batch_id)

    def publish_file(
        self,
        file: str | Path,
        *,
        key: str | None = None,
        topic: str | None = None,
        cluster: str | None = None,
        batch_id: str | None = None,
    ) -> Published:
        """Publish a file of JSON lines, or Parquet (see `read_records_of`).

        `key` names the field whose value is the record's key; the other arguments, and the errors, are those of
        `publish`.
        """
        with self._context.board() as board:
            # One commit has no progress before it is made.
            board.tell(f"publish {Path(file).name}", 0, None)
            alias = self.config.lake_cluster(cluster)
            frame = publish.read_records_of(lambda: self.spark, file, key=key)
            done = self.publish(frame, topic=topic, cluster=alias, batch_id=batch_id)
            board.tell(f"publish {Path(file).name}", done.records, done.records)
        return done

    def producer(self, cluster: str | None = None, config: Mapping[str, Any] | None = None) -> LakeProducer:
        """Return a producer into a lake cluster, with the shape of `confluent_kafka.Producer` (see `LakeProducer`)."""
        return publish.LakeProducer(publish.publisher_of(self._context, cluster), config=config)
