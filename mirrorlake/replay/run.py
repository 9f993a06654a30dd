"""Send the records of a plan: the plan is recorded, its records are sent, and the end is recorded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mirrorlake import republish
from mirrorlake.context import Context
from mirrorlake.errors import LedgerLost, RemoteTopicLost, SafetyError
from mirrorlake.lake import Lake, removed_from
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.replay import Definition
from mirrorlake.replay.flows import build_relay_slice, flow_of, view_of_replay
from mirrorlake.replay.plan import ReplayPlan, ReplayResult
from mirrorlake.replay.register import COMMAND, END, Register
from mirrorlake.rules import TIMES

log = logging.getLogger(__name__)

_COUNTS = """
    SELECT kind, rule, coalesce(reason, '') AS reason, sum(record_count) AS records
    FROM {offset_map} WHERE flow = :flow GROUP BY kind, rule, coalesce(reason, '')
"""


def run_replay(context: Context, plan: ReplayPlan, *, stop: threading.Event) -> ReplayResult:
    """Send the records of a plan, each once, whatever an earlier call has sent; `stop` ends it between two transactions."""
    if plan.state == "done":
        return _read_result(context, plan.definition, sent=0, done=True)
    if plan.refusals:
        raise _refused(plan)
    register, began = Register(context), time.monotonic()
    journal = register.journal(plan.name, target=plan.definition.target)
    if plan.state == "new":
        journal.begin(COMMAND, operation_id=plan.name, after=plan.definition.as_dict())
    context.lake.create_all([plan.definition.source])
    # Of two processes that begin at once, both send what the first has recorded.
    begun = register.begun(plan.name)
    # Ledger, offset map and clusters tell what is left, so no step of it needs a row.
    sent = 0 if stop.is_set() else _send(context, begun.definition, stop)
    result = _read_result(context, begun.definition, sent=sent, done=not stop.is_set())
    if result.done:
        after = {"records": result.total, "filtered": result.filtered, "missing": result.missing}
        journal.write(begun.operation, END, after=after)
    return replace(result, took_s=round(time.monotonic() - began, 3))


def _refused(plan: ReplayPlan) -> SafetyError:
    flags = " ".join(dict.fromkeys(one.flag for one in plan.refusals if one.flag))
    remedies = "; ".join(dict.fromkeys(one.remedy for one in plan.refusals))
    return SafetyError(
        "; ".join(map(str, plan.refusals)),
        consequence="nothing was sent",
        remedy=f"{remedies}{f'; {flags} does it all the same' if flags else ''}",
        flow=plan.name,
    )


def _send(context: Context, definition: Definition, stop: threading.Event) -> int:
    context.require_classic_session()
    flow = flow_of(definition, context.config)
    settings = republish.sending_settings(context, flow)
    settings = replace(
        settings,
        view=view_of_replay(definition, settings.flow),
        relay_slice=build_relay_slice(definition),
        selection=definition.fingerprint,
    )
    with context.board() as board:
        sender = republish.Republisher(
            context.lake, context.admin(flow.target), settings, audit=context.audit(), tell=board.tell
        )
        try:
            sender.run(once=True, stop=stop)
        except (LedgerLost, RemoteTopicLost) as error:
            raise SafetyError(
                error.cause,
                consequence="what stands on the target cannot be told from what is missing there; nothing more was sent",
                remedy="give it another --name: it sends everything again, into a topic that is empty",
                flow=flow.name,
            ) from error
    log.info("replay.sent name=%s records=%s done=%s", flow.name, sender.records, not stop.is_set())
    return sender.records


def _read_result(context: Context, definition: Definition, *, sent: int, done: bool) -> ReplayResult:
    rows = context.lake.query(_COUNTS, flow=definition.name)
    predicates = {name for name, _ in definition.predicates}

    def of(kind: str, chosen: Callable[[Any], bool] = lambda _: True) -> int:
        return sum(int(row.records) for row in rows if row.kind == kind and chosen(row))

    return ReplayResult(
        name=definition.name,
        sent=sent,
        records=definition.records,
        total=of("sent"),
        # Records of a span outside the requested times do not belong to the range.
        filtered=of("filtered", lambda row: row.rule != TIMES),
        unjudged=of("filtered", lambda row: row.rule in predicates and row.reason),
        quarantined=of("quarantined"),
        gone=_gone_since(context.lake, definition),
        done=done,
    )


def _gone_since(lake: Lake, definition: Definition) -> int:
    """Count the records of the range that left the relay after the planning; some may have been sent before."""
    spans = {span.source: span for span in definition.spans}
    count = 0
    for one in removed_from(lake, definition.source):
        span = spans.get(one.source)
        if span is None or int(one.removed_at.timestamp() * 1000) < definition.planned_at_ms:
            continue
        # The range of an expiry has offsets without a record, too.
        count += min(one.records, (one.ranges & Ranges([(span.first, span.end)])).count)
    return count
