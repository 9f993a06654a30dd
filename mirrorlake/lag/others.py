"""List the flows of other settings files on the same lake, from the lake alone: no cluster is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.lake import SIGN_INTERVAL_S, Lake, LandedPositions, StreamSign, flow_sign
from mirrorlake.model.control import ControlState
from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import JsonDisplayable, Sheet, Table, badge, format_count, table
from mirrorlake.republish import LedgerCopy
from mirrorlake.topics import settings_in_force

# A working stream writes its sign each 20 s, and may miss one on a busy machine.
SIGN_TIMEOUT = timedelta(seconds=3 * SIGN_INTERVAL_S)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OtherFlow(JsonDisplayable):
    """A flow that another settings file has on this lake, or had: renamed and removed flows count until they are retired.

    `waiting` are the offsets that are landed and not sent, by the lake's copy of the ledger, which may be some seconds old; they
    stay in the relay. `state` is `paused`, `parked`, `runs` where it worked in the last minute, else `stopped`.
    """

    flow: str
    source: str
    target: str
    waiting: int
    state: str
    reason: str = ""
    worked_at: datetime | None = None

    def sheet(self) -> Sheet:
        """Show the records that it holds back, and why."""
        facts = (
            f"{format_count(self.waiting)} offsets wait in the relay of {self.source}",
            self.reason or None,
            self.worked_at,
        )
        return Sheet(title=self.flow, badge=badge(self.state), facts=facts)


def other_flows(
    config: MirrorConfig,
    state: ControlState,
    *,
    lake: Lake,
    now: datetime,
    landed: Mapping[str, LandedPositions],
) -> tuple[OtherFlow, ...]:
    """List the flows that the lake knows and this settings file lacks, of the sources that a snapshot `landed`."""
    others = []
    for flow in settings_in_force.flows_of_other_files(config, state):
        if flow.source not in landed:
            continue
        reached = landed[flow.source].reached
        waiting = count_waiting(lake, flow, reached) if reached else {}
        worked_ms = StreamSign(lake, flow_sign(flow.name)).read()
        worked_at = None if worked_ms is None else datetime.fromtimestamp(worked_ms / 1000, timezone.utc)
        status, reason = _judge_state(flow, state, worked_at, now)
        others.append(
            OtherFlow(
                flow=flow.name,
                source=flow.source,
                target=flow.target,
                waiting=sum(waiting.values()),
                state=status,
                reason=reason,
                worked_at=worked_at,
            )
        )
    return tuple(others)


def others_table(others: Iterable[OtherFlow]) -> Table:
    """Show the flows of other settings files."""
    columns = ["flow", "source", "target", "state", "landed, not sent", "last worked", "why"]
    rows = [
        (one.flow, one.source, one.target, badge(one.state), one.waiting, one.worked_at, one.reason or None)
        for one in others
    ]
    return table("other settings files on this lake", columns, rows)


def count_waiting(lake: Lake, flow: FlowConfig, landed: Mapping[SourcePartition, int]) -> dict[SourcePartition, int]:
    """Count a flow's landed offsets that are not sent, by source partition; omit partitions without any."""
    sent = LedgerCopy(lake, flow.name, flow.source).positions()
    return {
        partition: end - sent.get(partition, 0)
        for partition, end in sorted(landed.items())
        if flow.carries(partition.topic) and sent.get(partition, 0) < end
    }


def _judge_state(flow: FlowConfig, state: ControlState, worked_at: datetime | None, now: datetime) -> tuple[str, str]:
    pause = state.of_stream(flow.name, flow.target) or state.of_cluster(flow.source)
    pauses = [pause] if pause else list(state.topics_of(flow.name).values())
    parked = state.of_flow(flow.name, flow.source)
    if pauses:
        return "paused", "; ".join(map(str, pauses))
    if parked:
        return "parked", "; ".join(map(str, parked))
    is_running = worked_at is not None and now - worked_at < SIGN_TIMEOUT
    return ("runs", "") if is_running else ("stopped", "")
