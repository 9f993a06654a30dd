"""Context of an operation on one flow, with the reads and actions that failover, failback, cutover and drill share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mirrorlake import landing, republish
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterUnreachable, LoginRefused, UsageError
from mirrorlake.failover.loss import NO_PROGRESS, read_flow_progress
from mirrorlake.kafka import (
    describe_with_leaders,
    format_partitions,
    leaderless_error,
    list_partitions,
)
from mirrorlake.lake import Control, FencedRelayWriter, Lake, landed_positions, newest_topics
from mirrorlake.model.flow import SourcePartition, TopicPartition, transactional_id
from mirrorlake.model.owner import new_owner
from mirrorlake.model.parked import landing as landing_stream
from mirrorlake.model.verify import VerifyReport
from mirrorlake.offsets import GroupSync
from mirrorlake.procedure import Journal, Operation, Refusal
from mirrorlake.republish import find_unsent, read_sent_positions
from mirrorlake.rules import View
from mirrorlake.runtime import open_folder
from mirrorlake.status import OpenTransaction, find_open_transactions
from mirrorlake.timing import timing
from mirrorlake.verify import Verifications

log = logging.getLogger(__name__)

FAILOVER, FAILBACK, CUTOVER, DRILL = "failover", "failback", "cutover", "drill"
# The step of a failover that later operations ask for.
FREEZE = "freeze"

# A running mirror reads the table `control` every 3 s, and ends the batch under way.
_PAUSE_NOTICED_S = 8.0
# A mirror that is known to run gets longer: its turns may be far apart, or its machine busy.
_BUSY_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """What an operation on one flow works with; `wait` is for tests.

    `lost` says why the flow's source is taken for lost, in a rehearsal; empty where it is asked.
    """

    context: Context
    flow: FlowConfig
    journal: Journal
    lost: str = ""
    wait: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, context: Context, flow: str, **more: Any) -> OperationContext:
        """Build the context of an operation on a flow."""
        settings = context.config.flow(flow)
        if context.config.cluster(settings.source).is_lake:
            raise UsageError(
                f"{flow} comes from a lake cluster, which nobody consumes from",
                consequence="nothing was done",
                remedy="name a flow between Kafka clusters",
            )
        context.create_tables()
        return cls(context=context, flow=settings, journal=open_journal(context, settings), **more)

    @property
    def lake(self) -> Lake:
        return self.context.lake

    @property
    def control(self) -> Control:
        return self.context.control()

    def now(self) -> datetime:
        return self.context.now()

    def identity(self, operation: Operation | None) -> dict[str, Any]:
        known: dict[str, Any] = {} if operation is None else {"id": operation.id, "began_at": operation.began_at}
        return {"flow": self.flow.name, "source": self.flow.source, "target": self.flow.target, **known}

    # -- looks ----------------------------------------------------------------------------------------------------
    # Each reads anew: a step trusts nothing that was read before the pause, the drain or the quiet time that it follows.

    def unreachable_reason(self, alias: str) -> str:
        """Return why a cluster cannot be asked, or "" if it can.

        Raises:
            LoginRefused: the cluster refuses the login; applications may still write to it, so it is not lost.
        """
        if self.lost and alias == self.flow.source:
            return self.lost
        if (pause := self.control.state().of_cluster(alias)) is not None:
            return f"{alias} is paused by {pause.who}, and was not asked"
        began = time.monotonic()
        while True:
            try:
                self.context.admin(alias).broker_count()
            except LoginRefused as error:
                raise LoginRefused(
                    error.cause,
                    consequence=f"{alias} is not lost, and nothing was done: what it holds could not be landed first",
                    remedy=f"{error.remedy}; to fail over without it: mirrorlake pause --cluster {alias}, then again",
                    **error.facts,
                ) from error
            except ClusterUnreachable as error:
                # A restarting broker refuses connections for seconds, but its cluster is not lost.
                if time.monotonic() - began >= timing().restart_timeout_s:
                    return error.cause
                self.wait(_POLL_INTERVAL_S)
            else:
                return ""

    def sent(self, flow: FlowConfig) -> Mapping[SourcePartition, int]:
        return read_sent_positions(self.context, flow).positions

    def topics(self, flow: FlowConfig) -> list[str]:
        """List the flow's source topics that existed when landing last described them."""
        return present_topics(self.lake, flow)

    def leaderless_reason(self, flow: FlowConfig) -> str:
        _, leaderless = self._split_by_leader(flow)
        return (
            f"{format_partitions(leaderless)} has no leader; its last recorded end offsets are used"
            if leaderless
            else ""
        )

    def ends(self, flow: FlowConfig, *, needs_all: bool = True) -> dict[SourcePartition, int]:
        """Read the end offsets of a flow's source, in the generation of each partition that landing knows.

        Raises:
            ClusterError: the source does not answer, or with `needs_all` a partition is leaderless.
        """
        known = newest_topics(self.lake, flow.source, "source", missing_ok=True)
        led, leaderless = self._split_by_leader(flow)
        if leaderless and needs_all:
            raise leaderless_error(flow.source, leaderless, landed="nothing was done by this step")
        return {
            SourcePartition(
                tp.topic, known[tp.topic].generation_of(tp.partition) if tp.topic in known else 1, tp.partition
            ): end
            for tp, end in self.context.admin(flow.source).last_stable_offsets(led).items()
        }

    def open_transactions(self, flow: FlowConfig, ends: Mapping[SourcePartition, int]) -> tuple[OpenTransaction, ...]:
        """Find what of a flow's source nobody may read, because a transaction is open; `ends` were just read."""
        stable = {source.tp: end for source, end in ends.items()}
        return tuple(find_open_transactions(self.context, flow.source, stable).values()) if stable else ()

    def _split_by_leader(self, flow: FlowConfig) -> tuple[list[TopicPartition], Collection[TopicPartition]]:
        source = self.context.admin(flow.source)
        names = [name for name in source.topic_names() if flow.carries(name)]
        states, leaderless = describe_with_leaders(source, names, timeout_s=timing().election_timeout_s)
        if leaderless:
            log.warning("failover.no_leader source=%s partitions=%s", flow.source, format_partitions(leaderless))
        return [tp for tp in list_partitions(states) if tp not in leaderless], leaderless

    def is_live(self, flow: FlowConfig) -> bool:
        """Return whether live tasks send a flow; the marker of a killed task stays."""
        if self.lake.relay_log(flow.source) is None:
            return False
        return bool(
            open_folder(f"{self.lake.checkpoint_root()}/live/republish.{transactional_id(flow.name, 0)}").names()
        )

    def is_running(self, stream: str) -> bool:
        return bool(self.context.running_flows.find_running([stream]))

    def groups(self, flow: FlowConfig, *, recorded: bool = False, only: Collection[str] | None = None) -> GroupSync:
        return GroupSync(self.context, flow, recorded=recorded, only=only)

    def verify(self, flow: FlowConfig, *, lost: Collection[str] = ()) -> VerifyReport:
        return self.context.shared(Verifications).verify(flow.name, lost=lost)[0]

    def paused_clusters(self, *aliases: str) -> list[Refusal]:
        pauses = ((alias, self.control.state().of_cluster(alias)) for alias in aliases)
        return [
            Refusal(f"{alias} is paused by {pause.who}: {pause.resume_command}")
            for alias, pause in pauses
            if pause is not None
        ]

    def active_groups(self, groups: Collection[str], *aliases: str) -> list[Refusal]:
        return [
            Refusal(f"group {group} has members on {alias}: stop them, or name the other groups with --group")
            for alias in aliases
            for group in sorted({*groups} & self.context.groups(alias).active())
        ]

    # -- acts -----------------------------------------------------------------------------------------------------

    def wait_for_pause(self, flow: FlowConfig) -> None:
        """Wait some seconds until a running mirror notices a pause; up to a minute if its live tasks are known to run.

        Claiming the flow earlier is safe but makes the running mirror wait.
        """
        was_live, began = self.is_live(flow), time.monotonic()
        timeout_s = _BUSY_TIMEOUT_S if was_live else _PAUSE_NOTICED_S
        while self.is_running(flow.name) and time.monotonic() - began < timeout_s:
            if was_live and not self.is_live(flow):
                break
            self.wait(_POLL_INTERVAL_S)

    def land_up_to(self, flow: FlowConfig, ends: Mapping[SourcePartition, int]) -> int:
        """Wait until a flow's source is landed up to some ends; land it here if no lander makes progress.

        A running lander then waits until this one ends.
        """

        def left() -> int:
            reached = read_flow_progress(self.lake, flow, {})
            return sum(max(0, end - reached.get(source, NO_PROGRESS).landed) for source, end in ends.items())

        return (
            land_source(self.context, flow.source) if self._wait_while_moving(landing_stream(flow.source), left) else 0
        )

    def ensure_all_sent(self, flow: FlowConfig) -> int:
        """Wait until all landed records of a flow are sent; send them here if no running mirror does."""
        if self.is_running(flow.name) and self.control.state().of_stream(flow.name, flow.target) is None:

            def left() -> int:
                return sum(position for _, position in self.unsent(flow, self.sent(flow)))

            if not self._wait_while_moving(flow.name, left):
                return 0
        return drain_flow(self.context, flow)

    def unsent(
        self, flow: FlowConfig, sent: Mapping[SourcePartition, int], landed: Mapping[SourcePartition, int] | None = None
    ) -> list[tuple[SourcePartition, int]]:
        """List the partitions with landed records that were not sent, and the count of offsets.

        `landed` are the relay's positions; by default the present ones.
        """
        landed = landed_positions(self.lake, flow.source).reached if landed is None else landed
        return [
            (source, landed[source] - position)
            for source, position in find_unsent(self.lake, flow, sent, landed).items()
            # A flow with a later start owes nothing of a partition before its first record.
            if source in sent or flow.start.kind == "earliest"
        ]

    def _wait_while_moving(self, stream: str, left: Callable[[], int]) -> int:
        """Wait while `left` changes, and return the rest."""
        waiting, moved = left(), time.monotonic()
        while waiting:
            timeout_s = _BUSY_TIMEOUT_S if self.is_running(stream) else timing().progress_timeout_s
            if time.monotonic() - moved >= timeout_s:
                break
            self.wait(_POLL_INTERVAL_S)
            if (now := left()) != waiting:
                waiting, moved = now, time.monotonic()
        return waiting


def open_journal(context: Context, flow: FlowConfig) -> Journal:
    commands = (FAILOVER, FAILBACK, CUTOVER, DRILL)
    return Journal(context.lake, commands, flow=flow.name, where=flow.target, now=context.now)


def failed_over(operations: Iterable[Operation]) -> Operation | None:
    """Return the completed failover that no failback has ended, or None."""
    over: Operation | None = None
    for one in operations:
        if one.is_done and one.command in (FAILOVER, FAILBACK):
            over = one if one.command == FAILOVER else None
    return over


def land_source(context: Context, alias: str) -> int:
    """Land the present records of a source, and return their count; a replaced lander resumes afterwards."""
    with (
        context.running_flows.announce_running([landing_stream(alias)], temporary=True) as sign,
        context.board() as board,
    ):
        writer = FencedRelayWriter(context.lake, alias, owner=new_owner(sign))
        return landing.land(context, alias, threading.Event(), once=True, tell=board.tell, writer=writer)


def drain_flow(context: Context, flow: FlowConfig, *, through: Callable[[View | None], View] | None = None) -> int:
    """Send all landed records of a flow, paused or not, and return their count; its periodic tasks do not run.

    `through` derives the view of the records from the flow's own. A replaced republisher resumes afterwards.
    """
    settings = republish.republish_settings(context, flow, context.control().state())
    if through is not None:
        settings = replace(settings, view=through(settings.view))
    with context.running_flows.announce_running([flow.name], temporary=True) as sign, context.board() as board:
        tenure = republish.Tenure(sign=sign)
        republisher = republish.make_republisher(context, settings, tell=board.tell, tenure=tenure)
        republisher.run(once=True, stop=threading.Event())
        return republisher.records


def present_topics(lake: Lake, flow: FlowConfig) -> list[str]:
    """List the topics of a flow that existed when landing last described them."""
    known = newest_topics(lake, flow.source, "source", missing_ok=True)
    return sorted(name for name, topic in known.items() if topic.present and flow.carries(name))


def positions_to_json(positions: Mapping[SourcePartition, int]) -> list[dict[str, Any]]:
    return [
        {"topic": s.topic, "generation": s.generation, "partition": s.partition, "position": position}
        for s, position in sorted(positions.items())
    ]


def positions_from_json(rows: Any) -> dict[SourcePartition, int]:
    """Read positions that `positions_to_json` wrote.

    >>> here = SourcePartition("orders", 1, 0)
    >>> positions_from_json(positions_to_json({here: 7})) == {here: 7}
    True
    """
    return {SourcePartition(r["topic"], r["generation"], r["partition"]): int(r["position"]) for r in rows or ()}
