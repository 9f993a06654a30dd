"""Send the records of a plan, as a procedure: the plan is recorded, its records are sent, and the end is recorded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mirrorlake import republish
from mirrorlake.context import Context
from mirrorlake.errors import LedgerLost, RemoteTopicLost, SafetyError
from mirrorlake.lake import Lake, removed_from
from mirrorlake.model.replay import Definition
from mirrorlake.procedure import Operation, Procedure, Refusal, Step
from mirrorlake.replay.flows import build_relay_slice, flow_of, view_of_replay
from mirrorlake.replay.plan import ReplayPlan, ReplayResult
from mirrorlake.replay.register import COMMAND, END, Register
from mirrorlake.rules import TIMES

log = logging.getLogger(__name__)

_COUNTS = """
    SELECT 'sent' AS what, '' AS rule, '' AS reason, coalesce(sum(record_count), 0) AS records
    FROM {offset_map} WHERE flow = :flow
    UNION ALL
    SELECT kind, rule, coalesce(reason, ''), sum(record_count) FROM {withheld} WHERE flow = :flow
    GROUP BY kind, rule, coalesce(reason, '')
"""


class ReplayRun(Procedure[ReplayResult]):
    """Send the records of a plan, each once, whatever an earlier call has sent; `stop` ends it between two transactions."""

    command = COMMAND
    last_step = END

    def __init__(self, context: Context, plan: ReplayPlan, *, stop: threading.Event) -> None:
        self._register = Register(context)
        super().__init__(self._register.journal(plan.name, target=plan.definition.target))
        self._context = context
        self._records = plan
        self._definition = plan.definition
        self._stop = stop
        self._began = time.monotonic()
        self._sent = 0

    def _repeat(self) -> ReplayResult | None:
        if self._records.state != "done":
            return None
        return _read_result(self._context, self._definition, sent=0, done=True)

    def _unfinished(self) -> Operation | None:
        begun = None if self._records.state == "new" else self._register.find(self._records.name)
        return None if begun is None else begun.operation

    def _request(self) -> Mapping[str, Any]:
        return {"operation_id": self._definition.name, "after": self._definition.as_dict()}

    def _refusals(self, _: Operation | None) -> Sequence[Refusal]:
        return self._records.refusals

    def _refused(self, refusals: Sequence[Refusal]) -> SafetyError:
        flags = " ".join(dict.fromkeys(one.flag for one in refusals if one.flag))
        remedies = "; ".join(dict.fromkeys(one.remedy for one in refusals))
        return SafetyError(
            "; ".join(map(str, refusals)),
            consequence="nothing was sent",
            remedy=f"{remedies}{f'; {flags} does it all the same' if flags else ''}",
            flow=self._records.name,
        )

    def _carry_out(self, operation: Operation, steps: Iterable[Step]) -> Operation:
        """Do every step: ledger, offset map and clusters tell each what is left, so that none needs a row."""
        self._context.lake.create_all([self._definition.source])
        # Of two processes that begin at once, both send what the first has recorded.
        begun = self._register.find(self._definition.name)
        self._definition = self._definition if begun is None else begun.definition
        for step in steps:
            if not self._stop.is_set() and step.is_needed(operation):
                step.run(operation)
        return operation

    def _steps(self) -> Sequence[Step]:
        return (Step("send", self._send),)

    def _report(self, _: Operation) -> ReplayResult:
        result = _read_result(self._context, self._definition, sent=self._sent, done=not self._stop.is_set())
        return replace(result, took_s=round(time.monotonic() - self._began, 3))

    def _is_over(self, report: ReplayResult) -> bool:
        return report.done

    def _stored(self, report: ReplayResult) -> Any:
        return {"records": report.total, "filtered": report.filtered, "missing": report.missing}

    def _send(self, _: Operation) -> None:
        context, definition = self._context, self._definition
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
                sender.run(once=True, stop=self._stop)
            except (LedgerLost, RemoteTopicLost) as error:
                raise SafetyError(
                    error.cause,
                    consequence="what stands on the target cannot be told from what is missing there; nothing more was sent",
                    remedy="give it another --name: it sends everything again, into a topic that is empty",
                    flow=flow.name,
                ) from error
        log.info("replay.sent name=%s records=%s done=%s", flow.name, sender.records, not self._stop.is_set())
        self._sent = sender.records


def _read_result(context: Context, definition: Definition, *, sent: int, done: bool) -> ReplayResult:
    rows = context.lake.query_rows(_COUNTS, flow=definition.name)
    predicates = {name for name, _ in definition.predicates}

    def of(what: str, chosen: Callable[[Any], bool] = lambda _: True) -> int:
        return sum(int(row.records) for row in rows if row.what == what and chosen(row))

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
        if one.ranges:
            count += sum(max(0, min(first + length, span.end) - max(first, span.first)) for first, length in one.ranges)
        elif one.first_offset < span.end and one.last_offset >= span.first:
            inside = min(one.last_offset + 1, span.end) - max(one.first_offset, span.first)
            count += min(one.records, inside)
    return count
