"""Maintain the lake of a mirror and its flows' ledgers; safe while mirrors run in any process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import SafetyError, StoreError, UsageError
from mirrorlake.lake import StreamSign, flow_sign, landed_positions
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.flows import (
    flows_of_other_files,
    quarantined_records,
    read_ledger,
    unfinished_replays,
)
from mirrorlake.maintenance.maintain import LakeUpkeep
from mirrorlake.maintenance.results import KeptTable, Maintained, Retirement
from mirrorlake.maintenance.retention import Guard
from mirrorlake.maintenance.typed_tables import expire_tables, out_of_typed_tables, unread_by_tables
from mirrorlake.model.control import KNOWN_FLOW, RETIRE, Subject
from mirrorlake.model.plan import Change
from mirrorlake.republish import LedgerCopy
from mirrorlake.runtime import PeriodicTask
from mirrorlake.timing import timing
from mirrorlake.topics import settings_in_force

# Who waits for another pass looks this often whether it is stopped.
_STOP_POLL_S = 0.5


def maintain_lake(
    context: Context, *, plan: bool = False, is_stopped: Callable[[], bool] = lambda: False
) -> Maintained:
    """Do the due maintenance (see `Mirror.maintain`), one pass of a mirror at a time: two would record what leaves twice."""
    lock = threading.Lock() if plan else context.shared(_passes)
    while not lock.acquire(timeout=_STOP_POLL_S):
        if is_stopped():
            return Maintained(planned=plan, tables=())
    try:
        return _maintain(context, plan=plan, is_stopped=is_stopped)
    finally:
        lock.release()


def _passes(_: Context) -> threading.Lock:
    return threading.Lock()


def _maintain(context: Context, *, plan: bool, is_stopped: Callable[[], bool]) -> Maintained:
    config, lake = context.config, context.lake
    standing: dict[str, list[SentUpTo]] = {alias: [] for alias in config.sources}
    ledgers = []
    for flow in config.flows:
        found, trimmed = read_ledger(context, flow, plan=plan)
        standing[flow.source].append(found)
        ledgers.append(trimmed)
    for known in flows_of_other_files(context):
        if known.flow.source in standing:
            standing[known.flow.source].append(known)
    upkeep = LakeUpkeep(
        lake,
        config.maintenance,
        now=context.now,
        clusters=config.clusters,
        needed=_needed(context, [one.flow for several in standing.values() for one in several]),
        out_of_tables=partial(out_of_typed_tables, context),
        is_stopped=is_stopped,
    )
    tables = upkeep.tables(standing, published=config.lake_clusters, plan=plan)
    expired = {} if is_stopped() else {one.table: one for one in expire_tables(context, plan=plan)}
    tables = [_with_expired(one, expired.pop(one.table, None)) for one in tables] + [*expired.values()]
    return Maintained(planned=plan, tables=tuple(tables), ledgers=tuple(ledgers))


def _with_expired(kept: KeptTable, expired: KeptTable | None) -> KeptTable:
    if expired is None:
        return kept
    return replace(kept, expired=expired.expired, why_not=kept.why_not or expired.why_not)


def _needed(context: Context, flows: Iterable[FlowConfig]) -> dict[str, list[Guard]]:
    guards = unfinished_replays(context), unread_by_tables(context), quarantined_records(context, flows)
    return {source: [guard for one in guards for guard in one.get(source, ())] for source in set().union(*guards)}


def maintain_duty(context: Context, is_stopped: Callable[[], bool]) -> PeriodicTask:
    """Return the periodic task of a running mirror; it logs failures, and retries at its next run."""

    def do() -> None:
        done = maintain_lake(context, is_stopped=is_stopped)
        if not done.ok:
            raise StoreError("; ".join(done.why_not), consequence="all else was done", remedy="run mirrorlake maintain")

    every_s = context.config.maintenance.every.total_seconds()
    # At their start the streams need all cores.
    return PeriodicTask(
        name="maintain", interval_s=every_s, first_delay_s=min(every_s, timing().first_maintenance_s), run=do
    )


def retire_flow(context: Context, flow: str, *, reason: str, apply: bool) -> Retirement:
    """Release the records that a flow holds back (see `Mirror.retire`)."""
    config, control = context.config, context.control()
    state = control.state()
    if any(each.name == flow for each in config.flows):
        raise UsageError(
            f"{flow} is a flow of this settings file",
            consequence="nothing was retired",
            remedy="remove it from `flows` first; the records it has not sent stay in the relay until then",
            flow=flow,
        )
    others = {each.name: each for each in settings_in_force.flows_of_other_files(config, state)}
    if flow in state.retired_flows:
        return Retirement(flow=flow, state="retired", is_repeat=True)
    if flow not in others:
        raise UsageError(
            f"the lake knows no flow {flow}",
            consequence="nothing was retired",
            remedy=f"name one of: {', '.join(others)}"
            if others
            else "every flow that it knows is in this settings file",
            flow=flow,
        )
    signed_ms = StreamSign(context.lake, flow_sign(flow)).read() or 0
    age_s = context.now().timestamp() - signed_ms / 1000
    # A working stream may miss a sign on a busy machine.
    if age_s < 3 * timing().stream_sign_interval_s:
        raise SafetyError(
            f"{flow} was republished {age_s:.0f} s ago",
            consequence="the flow still runs; it was not retired",
            remedy="stop the flow, wait a minute, and run the same command again",
            flow=flow,
        )
    landed = landed_positions(context.lake, others[flow].source).reached
    sent = LedgerCopy(context.lake, others[flow]).positions()
    waiting = {
        str(partition): end - sent.get(partition, 0)
        for partition, end in sorted(landed.items())
        if others[flow].carries(partition.topic) and sent.get(partition, 0) < end
    }
    if apply:
        change = Change(where="lake", kind="flow", name=flow, action="retire", after=waiting, reason=reason, flow=flow)
        # Before the state: a retired flow without a row in `audit` could not be explained later.
        context.audit().record([change], command="retire")
        control.append(RETIRE, Subject(kind=KNOWN_FLOW, name=flow), reason=reason)
    return Retirement(flow=flow, state="retired" if apply else "planned", waiting=waiting)
