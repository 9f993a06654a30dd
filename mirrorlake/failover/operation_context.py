"""What failover, failback, cutover and drill of one flow work with, and the looks and acts that they share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from mirrorlake import landing, republish
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterUnreachable, LoginRefused
from mirrorlake.failover.journal import Journal, Operation
from mirrorlake.failover.loss import NO_PROGRESS, find_still_in_relay, read_flow_progress
from mirrorlake.groups import GroupSync
from mirrorlake.kafka import (
    ELECTION_TIMEOUT_S,
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
from mirrorlake.republish import merged_positions, read_lanes
from mirrorlake.rules import View
from mirrorlake.runtime import open_folder
from mirrorlake.verify import Verifications

log = logging.getLogger(__name__)

# A running mirror looks at the table `control` every 3 s, and ends the batch under way.
_PAUSE_NOTICED_S = 8.0
# A lander that shows no sign of life lands every second or so, a flow sends as often; what has not moved for so long is not there.
_PROGRESS_TIMEOUT_S = 5.0
# A mirror that is seen running is there all the same: a turn of its landing may be far from the next, or its machine busy.
_BUSY_TIMEOUT_S = 60.0
# As long as an administrative call waited for its cluster before it was probed.
_RESTART_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.5

StepHook = Callable[[str, str], None]
"""Hears of each step when its work is done (`done`), and when its row is written (`written`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """What an operation on one flow works with; `seam` and `wait` are for tests.

    `lost` says why the flow's source is taken for lost, in a rehearsal; empty where it is asked. `made` names the flow that was
    made for this command alone; empty where the settings have all that it needs.
    """

    context: Context
    flow: FlowConfig
    journal: Journal
    lost: str = ""
    derived_flow: str = ""
    step_hook: StepHook = lambda _, __: None
    wait: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, context: Context, flow: str, **more: Any) -> OperationContext:
        """Put together what an operation on a flow works with."""
        settings = context.config.flow(flow)
        context.create_tables()
        return cls(context=context, flow=settings, journal=open_journal(context, settings), **more)

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self.context.lake

    @property
    def control(self) -> Control:
        """What a person wants of the mirror."""
        return self.context.control()

    def now(self) -> datetime:
        """Read the clock."""
        return self.context.now()

    def write(self, operation: Operation, step: str, *, before: Any = None, after: Any = None) -> Operation:
        """Write that a step is done."""
        self.step_hook(step, "done")
        written = self.journal.write(operation, step, before=before, after=after)
        self.step_hook(step, "written")
        return written

    # -- looks ----------------------------------------------------------------------------------------------------

    def unreachable_reason(self, alias: str) -> str:
        """Say why a cluster cannot be asked; empty where it can.

        Raises:
            LoginRefused: it answers, and refuses us: applications may write to it as before, so it is not lost.
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
                    remedy=f"{error.remedy}; where it is to be left as it is: mirrorlake pause --cluster {alias}, then again",
                    **error.facts,
                ) from error
            except ClusterUnreachable as error:
                # A broker that restarts refuses connections for seconds, and its cluster is not lost.
                if time.monotonic() - began >= _RESTART_TIMEOUT_S:
                    return error.cause
                self.wait(_POLL_INTERVAL_S)
            else:
                return ""

    def sent(self, flow: FlowConfig) -> Mapping[SourcePartition, int]:
        """Read how far a flow has come, from its ledger."""
        with closing(self.context.ledger(flow)) as reader:
            return merged_positions(read_lanes(reader, self.context.admin(flow.target), flow.ledger_topic))

    def topics(self, flow: FlowConfig) -> list[str]:
        """List the topics of a flow's source that were there when landing looked last."""
        return present_topics(self.lake, flow)

    def leaderless_reason(self, flow: FlowConfig) -> str:
        """Return which partitions of a flow's source have no leader, as a reason; "" where all have one.

        Raises:
            ClusterError: the source does not answer.
        """
        _, leaderless = self._split_by_leader(flow)
        return (
            f"nobody leads {format_partitions(leaderless)}; the ends that were recorded last stand for them"
            if leaderless
            else ""
        )

    def ends(self, flow: FlowConfig, *, needs_all: bool = True) -> dict[SourcePartition, int]:
        """Read the ends of a flow's source, in the life of each partition that landing knows.

        Raises:
            ClusterError: the source does not answer, or with `needs_all` nobody leads one of its partitions.
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

    def in_transactions(self, flow: FlowConfig, ends: Mapping[SourcePartition, int]) -> list[TopicPartition]:
        """List the partitions of a flow's source that hold records of a transaction which is neither committed nor aborted.

        `ends` are those that were just read; one that has grown since then is listed, too.

        Raises:
            ClusterError: the source does not answer.
        """
        stable = {TopicPartition(source.topic, source.partition): end for source, end in ends.items()}
        return [
            tp
            for tp, end in sorted(self.context.admin(flow.source).high_watermarks(stable).items())
            if end > stable[tp]
        ]

    def _split_by_leader(self, flow: FlowConfig) -> tuple[list[TopicPartition], Collection[TopicPartition]]:
        """Return the partitions of a flow's source that have a leader, and those that have none."""
        source = self.context.admin(flow.source)
        names = [name for name in source.topic_names() if flow.carries(name)]
        states, leaderless = describe_with_leaders(source, names, timeout_s=ELECTION_TIMEOUT_S)
        if leaderless:
            log.warning("failover.no_leader source=%s partitions=%s", flow.source, format_partitions(leaderless))
        return [tp for tp in list_partitions(states) if tp not in leaderless], leaderless

    def is_watched(self, flow: FlowConfig) -> bool:
        """Tell whether a mirror that runs has sampled a flow a moment ago."""
        every = self.context.config.sampling.every or timedelta(seconds=30)
        text = "SELECT max(observed_at) AS at FROM {samples} WHERE subject = 'flow' AND name = :flow"
        rows = self.lake.query_rows(text, flow=flow.name, missing_ok=True)
        return bool(rows and rows[0].at is not None and self.now() - rows[0].at < 3 * every)

    def is_live(self, flow: FlowConfig) -> bool:
        """Tell whether long-lived tasks send a flow; they leave their sign when they end, and one that was killed does not."""
        if self.lake.relay_log(flow.source) is None:
            return False
        return bool(
            open_folder(f"{self.lake.checkpoint_root()}/live/republish.{transactional_id(flow.name, 0)}").names()
        )

    def is_running(self, stream: str) -> bool:
        """Tell whether a process of any machine carries a stream now."""
        return bool(self.context.running_flows.find_running([stream]))

    def groups(self, flow: FlowConfig, *, recorded: bool = False, only: Collection[str] | None = None) -> GroupSync:
        """Make the planner of a flow's groups, or of some of them."""
        return GroupSync(self.context, flow, recorded=recorded, only=only)

    def verify(self, flow: FlowConfig, *, lost: Collection[str] = ()) -> VerifyReport:
        """Compare the places where a flow's records stand, without asking the clusters in `lost`."""
        return self.context.shared(Verifications).verify(flow.name, lost=lost)[0]

    # -- acts -----------------------------------------------------------------------------------------------------

    def wait_for_pause(self, flow: FlowConfig) -> None:
        """Wait until a mirror that runs has heard of a pause, at most some seconds; a minute where it is seen running.

        Who took the flow over before that would be safe, too, and make it wait there.
        """
        is_live, began = self.is_live(flow), time.monotonic()
        if is_live or self.is_watched(flow) or self.is_running(flow.name):
            while time.monotonic() - began < (
                self._timeout_s(flow.name, _PAUSE_NOTICED_S) if is_live else _PAUSE_NOTICED_S
            ):
                if is_live and not self.is_live(flow):
                    break
                self.wait(_POLL_INTERVAL_S)

    def land_up_to(self, flow: FlowConfig, ends: Mapping[SourcePartition, int]) -> int:
        """Wait until a flow's source is landed up to some ends; land it here where nobody else does, or is far too slow.

        The lander that runs waits then until this has landed.
        """

        def left() -> int:
            reached = read_flow_progress(self.lake, flow, {})
            return sum(max(0, end - reached.get(source, NO_PROGRESS).landed) for source, end in ends.items())

        return (
            land_source(self.context, flow.source) if self._wait_while_moving(landing_stream(flow.source), left) else 0
        )

    def ensure_all_sent(self, flow: FlowConfig) -> int:
        """Wait until all that is landed of a flow is sent; send it here where no mirror that runs does."""
        may_run = self.is_live(flow) or self.is_watched(flow) or self.is_running(flow.name)
        if may_run and self.control.state().of_stream(flow.name, flow.target) is None:

            def left() -> int:
                return sum(position for _, position in self.unsent(flow, self.sent(flow)))

            if not self._wait_while_moving(flow.name, left):
                return 0
        return drain_flow(self.context, flow)

    def unsent(
        self, flow: FlowConfig, sent: Mapping[SourcePartition, int], landed: Mapping[SourcePartition, int] | None = None
    ) -> list[tuple[SourcePartition, int]]:
        """List the partitions of which landed records were not sent, and how many offsets that are.

        `held` is what the relay held at a time; what it holds now without it.
        """
        landed = landed_positions(self.lake, flow.source).reached if landed is None else landed
        late = {
            source: sent.get(source, 0)
            for source, position in sorted(landed.items())
            # A flow whose start leaves the past out owes nothing of a partition before its first record.
            if flow.carries(source.topic)
            and sent.get(source, 0) < position
            and (source in sent or flow.start.kind == "earliest")
        }
        # What was erased, or expired, before it was sent never will be.
        waiting = find_still_in_relay(self.lake, flow.source, late, landed)
        return [(source, landed[source] - at) for source, at in late.items() if source in waiting]

    def _timeout_s(self, stream: str, usual_s: float) -> float:
        return max(usual_s, _BUSY_TIMEOUT_S) if self.is_running(stream) else usual_s

    def _wait_while_moving(self, stream: str, left: Callable[[], int]) -> int:
        """Wait while what is left shrinks, and return the rest."""
        waiting, moved = left(), time.monotonic()
        while waiting and time.monotonic() - moved < self._timeout_s(stream, _PROGRESS_TIMEOUT_S):
            self.wait(_POLL_INTERVAL_S)
            if (now := left()) != waiting:
                waiting, moved = now, time.monotonic()
        return waiting


def land_source(context: Context, alias: str) -> int:
    """Land what a source holds now, and return how many records that were; a lander that is replaced comes back after it."""
    with (
        context.running_flows.announce_running([landing_stream(alias)], temporary=True) as sign,
        context.board() as board,
    ):
        writer = FencedRelayWriter(context.lake, alias, owner=new_owner(sign))
        return landing.land(context, alias, threading.Event(), once=True, tell=board.tell, writer=writer)


def drain_flow(context: Context, flow: FlowConfig, *, through: Callable[[View | None], View] | None = None) -> int:
    """Send all that is landed of a flow, paused or not, and return how many records that were; its duties rest.

    `through` makes the view that records go through from the flow's own. A republisher that is replaced comes back after it.
    """
    settings = republish.republish_settings(context, flow, context.control().state())
    if through is not None:
        settings = replace(settings, view=through(settings.view))
    with context.running_flows.announce_running([flow.name], temporary=True) as sign, context.board() as board:
        tenure = republish.Tenure(sign=sign)
        republisher = republish.make_republisher(context, settings, tell=board.tell, tenure=tenure)
        republisher.run(once=True, stop=threading.Event())
        return republisher.records


def open_journal(context: Context, flow: FlowConfig) -> Journal:
    """Return the journal of a flow's operations."""
    return Journal(context.lake, flow=flow.name, where=flow.target, now=context.now)


def present_topics(lake: Lake, flow: FlowConfig) -> list[str]:
    """List the topics that a flow carries of those that were there when landing looked last."""
    known = newest_topics(lake, flow.source, "source", missing_ok=True)
    return sorted(name for name, topic in known.items() if topic.present and flow.carries(name))


def positions_to_json(positions: Mapping[SourcePartition, int]) -> list[dict[str, Any]]:
    """Write positions as a step of the journal holds them."""
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
