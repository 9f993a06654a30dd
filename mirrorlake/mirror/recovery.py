"""Recovery by a mirror: failover and failback, replay; and the maintenance of its relays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirrorlake import landing, maintenance, replay, verify
from mirrorlake.lake import FencedRelayWriter
from mirrorlake.mirror.base import MirrorBase, of_flow
from mirrorlake.mirror.flow import FlowHandle
from mirrorlake.model.owner import new_owner
from mirrorlake.model.parked import landing as landing_stream

if TYPE_CHECKING:
    from mirrorlake.maintenance import Erasure, Maintained, Retirement
    from mirrorlake.replay import Replay
    from mirrorlake.verify import Repair


class RecoveryMethods(MirrorBase):
    """The methods of a `Mirror` that recover, and maintain relays."""

    failover = of_flow(FlowHandle.failover)
    failback = of_flow(FlowHandle.failback)
    cutover = of_flow(FlowHandle.cutover)
    drill = of_flow(FlowHandle.drill)

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
        name: str | None = None,
        append: bool = False,
        accept_expiry: bool = False,
        hold_retention: bool = False,
    ) -> Replay:
        """Plan to send records of the relay once more, into any topic; nothing is sent before `Replay.run`.

        Only the relay is read: the source may be gone, and its retention long past. Each record is sent once, in
        upstream order, to the same partition number (laws D and F). A replay that was killed resumes with the same
        call, or with its `name` alone; a finished one sends nothing. The flow's rules apply only with `through`.

        Args:
            source: the alias of the cluster whose relay is read.
            topic: the source topic.
            into: the topic: `central:orders.replayed`.
            start: only records with a timestamp at or after it: a time (UTC without a zone), or an age, like `-2h`.
            end: only records before this time.
            partitions: only these source partitions.
            from_offset: only records at or after this upstream offset.
            to_offset: only records before this upstream offset.
            keys: only records with one of these keys.
            headers: only records with all of these headers.
            where: only records for which this predicate is true, written as in a flow's rules (docs/rules.md).
            generation: the generation of a topic that was created again; the newest without it.
            timestamps: original, shifted (they end at now with the same distances) or now.
            through: a flow whose rules apply to the records.
            name: of the replay; by default derived from the request.
            append: send into a topic with other records.
            accept_expiry: send although the target's retention deletes records at once.
            hold_retention: create the topic without expiry (retention.ms=-1).

        Raises:
            UsageError: the range is not in the relay, or a named object does not exist.
            SafetyError: the name belongs to a replay of other records.
            ClusterError, StoreError: the target or the lake failed.

        Example:
            >>> mirror.replay(source="east", topic="orders", start="2026-11-22 03:30", into="central:orders.replayed")  # doctest: +SKIP
        """
        return replay.make_replay(
            self._context,
            name=name,
            leave=replay.ReplayConsent(append=append, accept_expiry=accept_expiry, hold_retention=hold_retention),
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

    def repair(self, source: str, *, check: bool = False) -> Repair:
        """Land the records of broken files of a source's relay again, and leave each record once.

        A power cut, or a disk, may leave files empty or truncated. Records that the source no longer has become a gap.
        Broken files of side tables are removed; the result says which tables are rebuilt, and which are not.

        Flows send a doubled record once in any case, but counts, queries and proofs see it twice. A running lander
        waits for the end of the repair and goes on.

        With `check` nothing is changed.

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
        """Maintain the lake: rewrite small files, write log checkpoints, clean logs, delete removed files, trim ledgers.

        A running mirror does it every few minutes (`maintenance.every`); it disturbs no stream of any process. Tables
        on a catalog or an object store are left to their own maintenance. With `plan` nothing is changed.

        Example:
            >>> mirror.maintain(plan=True)  # doctest: +SKIP
            Upkeep: ✓ ok · 9 600 files would become 8 · 0 files deleted · 0 ledger records deleted
        """
        return maintenance.maintain_lake(self._context, plan=plan)

    def retire(self, flow: str, *, reason: str, apply: bool = False) -> Retirement:
        """Retire a flow that is gone for good: the relay no longer retains its unsent records.

        Law E: until then retention spares the unsent records of every flow that the lake knows, also of a flow of another settings file
        or one removed from this file. Without `apply` it only shows what would be released.

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
        apply: bool = False,
    ) -> Erasure:
        """Erase records of a topic from the relay of a source, for good; without `apply` nothing changes.

        They leave the lake's files and the disk, while the mirror runs. A flow that has not sent them never will;
        offsets stay exact, and are explained as `erased`. Source (law H) and targets are not touched:
        the result says which copies remain on each, and for how long. After a kill, a second call has the same
        result.

        Args:
            source: the alias of the source.
            topic: the source topic; all of its partitions and generations are searched.
            reason: stored in clear, so it must name no person.
            key: erase the records with this key. Exactly one of `key`, `header` and `where` is given.
            header: erase those with this header, name and value.
            where: erase those for which a predicate is true, written as in a flow's rules.
            apply: erase them.

        Raises:
            UsageError: nothing of the topic was landed, the choice cannot be parsed, or the relay is not a local folder.
            SafetyError: a flow streams the relay and has not read the records yet, or the source is a lake cluster.
            StoreError: other writers rewrote the files again and again meanwhile.

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
        return maintenance.erase_records(self._context, source, topic, selector, reason=reason, apply=apply)
