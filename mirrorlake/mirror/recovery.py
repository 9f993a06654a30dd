"""Recover by a mirror: fail over and back, replay, restore; keep its relays well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirrorlake import failover, landing, maintenance, replay, verify
from mirrorlake.config import length_of
from mirrorlake.lake import FencedRelayWriter
from mirrorlake.mirror.base import MirrorBase, of_flow
from mirrorlake.mirror.flow import FlowHandle
from mirrorlake.model.owner import new_owner
from mirrorlake.model.parked import landing as landing_stream

if TYPE_CHECKING:
    from mirrorlake.failover import DrillReport
    from mirrorlake.maintenance import Erasure, Maintained, Retirement
    from mirrorlake.replay import Replay, Restore
    from mirrorlake.verify import Repair


class RecoveryMethods(MirrorBase):
    """The methods of a `Mirror` that recover, and keep relays well."""

    failover = of_flow(FlowHandle.failover)
    failback = of_flow(FlowHandle.failback)
    cutover = of_flow(FlowHandle.cutover)

    def drill(
        self,
        flow: str,
        *,
        into: str | None = None,
        every: str | timedelta | None = None,
        stop: threading.Event | None = None,
        tell: Callable[[DrillReport], None] = lambda _: None,
    ) -> DrillReport | None:
        """Rehearse a failover of a flow (see `FlowHandle.drill`), with `every` again and again until `stop` is set."""
        if every is None:
            return self[flow].drill(into=into)
        length_s = length_of(every).total_seconds()
        failover.run_drills(self._context, flow, length_s, into=into, stop=stop or threading.Event(), tell=tell)
        return None

    def replay(
        self,
        *,
        source: str | None = None,
        topic: str | None = None,
        into: str = "",
        start: str | datetime = "",
        end: str | datetime = "",
        partitions: Iterable[int] = (),
        from_offset: int | None = None,
        to_offset: int | None = None,
        keys: Iterable[str] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
        where: str = "",
        generation: int | None = None,
        timestamps: str = "original",
        through: str = "",
        rate: str = "",
        name: str | None = None,
        append: bool = False,
        accept_expiry: bool = False,
        hold_retention: bool = False,
    ) -> Replay:
        """Plan to send records of the relay once more, into any topic or file; nothing is sent before `Replay.run`.

        The relay alone is read: the source may be gone, and its retention long past. Each record is sent once, in upstream
        order, into its partition's number (laws D and F): a replay that was killed goes on with the same call, or with its
        `name` alone, and one that is done sends nothing. The flow's rules do not apply, unless `through` says so.

        Args:
            source: the alias of the cluster whose relay is read.
            topic: the source topic.
            into: `central:orders.replayed`, or `parquet:PATH`; without it, `Replay.pandas`, `arrow` and `frame` give the records.
            start: only records with a timestamp at or after it: a time (UTC without a zone), or how long ago, like `-2h`.
            end: only records before it.
            partitions: only these source partitions.
            from_offset: only records at or after this upstream offset.
            to_offset: only records before this upstream offset.
            keys: only records with one of these keys.
            headers: only records with all of these headers.
            where: only records for which this predicate is true; it is written as in a flow's rules (docs/rules.md).
            generation: the life of a topic that was created again; the newest without it.
            timestamps: original, shifted (they end at now and keep their distances) or now.
            through: a flow whose rules the records go through.
            rate: at most so much: `10MB/s` or `5000 records/s`.
            name: of the replay; without it, one that follows from what is asked.
            append: send into a topic that holds other records.
            accept_expiry: send although the target's retention deletes records at once.
            hold_retention: make the topic without an end of its records (retention.ms=-1).

        Raises:
            UsageError: the range is not in the relay, or something that is named does not exist.
            SafetyError: the name belongs to a replay of other records.
            ClusterError, StoreError: the target or the lake failed.

        Example:
            >>> mirror.replay(source="east", topic="orders", start="2026-11-22 03:30", into="central:orders.replayed")  # doctest: +SKIP
        """
        return replay.make_replay(
            self._context,
            name=name,
            leave=replay.ReplayConsent(
                append=append, accept_expiry=accept_expiry, hold_retention=hold_retention, rate=rate
            ),
            source=source,
            topic=topic,
            into=into,
            start=start,
            end=end,
            partitions=partitions,
            from_offset=from_offset,
            to_offset=to_offset,
            keys=keys,
            headers=headers,
            where=where,
            generation=generation,
            timestamps=timestamps,
            through=through,
        )

    def restore(
        self,
        *,
        source: str,
        topics: str | Iterable[str],
        at: str | datetime,
        into: str,
        name: str | None = None,
        rate: str = "",
        groups: bool = True,
        acls: bool = True,
        append: bool = False,
        accept_expiry: bool = False,
        hold_retention: bool = False,
    ) -> Restore:
        """Plan to restore topics of a source as they were at a time into a cluster; nothing is changed before `Restore.run`.

        Topics keep their names and get the partitions, settings and ACLs of then, the records that the source held then, from
        the relay alone, and groups stand where they stood, exactly (law A). What was restored is compared with the relay.

        Args:
            source: the alias of the cluster as it was.
            topics: names or regular expressions, as in a flow.
            at: the time: `2026-11-22 03:30` (UTC without a zone), or how long ago, like `-2h`.
            into: the alias of a cluster that has none of these topics, or empty ones.
            name: of the restore; without it, one that follows from what is asked.
            rate: at most so much: `10MB/s` or `5000 records/s`.
            groups: set consumer groups where they stood.
            acls: make the ACLs of then.
            append: send into topics that hold other records.
            accept_expiry: send although a topic's retention deletes records at once.
            hold_retention: make topics without an end of their records (retention.ms=-1).

        Raises:
            UsageError: nothing of the topics was known at that time, or something that is named does not exist.
            SafetyError: the name belongs to a restore of something else.
            ClusterError, StoreError: the target or the lake failed.

        Example:
            >>> mirror.restore(source="east", topics="orders, clicks.*", at="-2h", into="scratch").run().equal  # doctest: +SKIP
            True
        """
        return replay.restore_topics(
            self._context,
            source=source,
            topics=topics,
            at=at,
            into=into,
            name=name,
            leave=replay.ReplayConsent(
                append=append, accept_expiry=accept_expiry, hold_retention=hold_retention, rate=rate
            ),
            groups=groups,
            acls=acls,
        )

    def repair(self, source: str, *, check: bool = False) -> Repair:
        """Land again what broken files of a source's relay held, and leave each record once.

        A power cut, or a disk, may leave files empty or cut. What the source no longer holds of them becomes a gap. Broken files
        of side tables are taken out; the result says what is made again, and what is not.

        Flows send such a record once in any case; counts, questions and proofs see it twice. A lander that runs meanwhile
        waits for the end of this and goes on.

        With `check` it only looks.

        Raises:
            UsageError: nothing of the source was landed.
        """
        context = self._context

        def mending() -> landing.Mending:
            options = context.reader_options(source)
            return landing.Mending(self.lake, context.admin(source), options, alias=source, now=context.now)

        repair = partial(verify.repair_relay, self.lake, source, mending=mending, now=context.now)
        if check:
            return repair(writer=FencedRelayWriter(self.lake, source), check=True)
        with context.running_flows.announce_running([landing_stream(source)], temporary=True) as sign:
            return repair(writer=FencedRelayWriter(self.lake, source, owner=new_owner(sign)))

    def maintain(self, *, plan: bool = False) -> Maintained:
        """Keep the lake small: rewrite small files, write log checkpoints, clean logs, delete what was removed, trim ledgers.

        A mirror that runs does it every few minutes (`maintenance.every`); it disturbs no stream, here or elsewhere. Tables on a
        catalog or an object store are left to their own maintenance. With `plan` it only looks.

        Example:
            >>> mirror.maintain(plan=True)  # doctest: +SKIP
            Upkeep: ✓ ok · 9 600 files would become 8 · 0 files deleted · 0 ledger records deleted
        """
        return maintenance.maintain_lake(self._context, plan=plan)

    def retire(self, flow: str, *, reason: str, apply: bool = False) -> Retirement:
        """Retire a flow that is gone for good: what it has not sent no longer stays in the relay for it.

        Law E: until then retention keeps what any flow that the lake knows has not sent, also one of another settings file or
        one that was taken out of this one. Without `apply` it only shows what would be released.

        Raises:
            UsageError: the flow is in this settings file, or the lake does not know it.
            SafetyError: the flow runs.

        Example:
            >>> mirror.retire("east->old", reason="the cluster is gone", apply=True)  # doctest: +SKIP
            retire east->old: ✓ retired · releases 300 offsets to retention
        """
        return maintenance.retire_flow(self._context, flow, reason=reason, apply=apply)

    def erase(
        self,
        source: str,
        topic: str,
        *,
        reason: str,
        key: bytes | str | None = None,
        header: tuple[str, bytes | str] | None = None,
        where: str = "",
        targets: str = "leave",
        apply: bool = False,
    ) -> Erasure:
        """Erase records of a topic from the relay of a source and from `quarantine`, for good; without `apply` only look.

        They leave the lake's files and the disk, while the mirror runs. A flow that has not sent them never will; offsets
        stay exact, and say `erased`. The source is not touched (law H), targets by choice only: the result says what each
        keeps, and for how long. Killed and called again, it ends the same.

        Args:
            source: the alias of the source.
            topic: the source topic; all of its partitions and lives are searched.
            reason: why; it is kept in clear, so it names nobody.
            key: of the records with this key. Exactly one of `key`, `header` and `where` is given.
            header: of those with this header, name and value.
            where: of those for which a predicate is true, as the rules of a flow write it.
            targets: what becomes of records that were sent: `leave`; `tombstone` writes one, on a compacted remote topic, for
                each key whose newest record there was erased; `rewrite-by-replay` says how the topic is sent again.
            apply: do it.

        Raises:
            UsageError: nothing of the topic was landed, the choice cannot be read, or the relay is elsewhere.
            SafetyError: a flow streams the relay and has not read the records yet, or the source is a lake cluster.
            StoreError: files were rewritten again and again meanwhile.

        Example:
            >>> mirror.erase("east", "orders", key="customer-17", reason="request 4711").records  # doctest: +SKIP
            12
        """

        def raw(text: bytes | str) -> bytes:
            return text.encode() if isinstance(text, str) else text

        selector = maintenance.Selector(
            key=None if key is None else raw(key),
            header=None if header is None else (header[0], raw(header[1])),
            where=where,
        )
        return maintenance.erase_records(
            self._context, source, topic, selector, reason=reason, targets=targets, apply=apply
        )
