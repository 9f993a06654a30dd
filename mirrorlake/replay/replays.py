"""Plan and run replays: send records of a relay into any topic, exactly once.

    request     the request, as a person writes it
    survey      the exact offsets of it in the relay
    target      the topics there, and refusals
    register    recorded before the first record is sent
    run         one pass of the republisher over this slice of the relay (`republish.RelaySlice`)

Law F (repeatable): a replay killed at any instruction and run again with the same name ends with each record once.
Law G: `plan` changes nothing. The source is neither read nor written: it may be unreachable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirrorlake import republish
from mirrorlake.config import rate as rate_of
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import LedgerLost, RemoteTopicLost, SafetyError, UsageError
from mirrorlake.lake import Lake, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.removed import Removed
from mirrorlake.model.replay import Definition, Span
from mirrorlake.render import plural
from mirrorlake.replay.define import define, lent_rules, require_relay
from mirrorlake.replay.files import read_begun
from mirrorlake.replay.flows import HERE, build_relay_slice, flow_of, view_of_replay
from mirrorlake.replay.plan import ReplayPlan, ReplayResult
from mirrorlake.replay.register import Begun, Register
from mirrorlake.replay.request import NO_CONSENT, ReplayConsent, ReplayRequest, flow_name
from mirrorlake.replay.survey import RelayExtent, files_in, look_at_relay, size_of
from mirrorlake.replay.target import TargetLook, look_at_target
from mirrorlake.rules import TIMES

if TYPE_CHECKING:
    from mirrorlake.republish import RepublishSettings

log = logging.getLogger(__name__)

_COUNTS = """
    SELECT 'sent' AS what, '' AS rule, '' AS reason, coalesce(sum(record_count), 0) AS records
    FROM {offset_map} WHERE flow = :flow
    UNION ALL
    SELECT kind, rule, coalesce(reason, ''), sum(record_count) FROM {withheld} WHERE flow = :flow
    GROUP BY kind, rule, coalesce(reason, '')
"""


def plan_replay(
    context: Context, asked: ReplayRequest, *, name: str | None = None, leave: ReplayConsent = NO_CONSENT
) -> ReplayPlan:
    """Plan a replay; changes nothing. A replay begun under the name continues with its own definition.

    Raises:
        UsageError: the range is not in the relay, or a named cluster, flow or topic does not exist.
        SafetyError: the name belongs to a replay of other records.
        TopicDenied: the topic may never leave its cluster.
        ClusterError, StoreError: the target or the lake failed.
    """
    rate_of(leave.rate) if leave.rate else None
    words = asked.words()
    flow = flow_name(name, [asked.topic], words)
    require_free(context, flow)
    before = Register(context).find(flow)
    target, into = asked.place()
    if before is None:
        definition, held = define(context, asked, flow, target=target, into=into, leave=leave)
    else:
        refuse_other_words(before, words)
        definition, held = before.definition, look_at_relay(context.lake, before.definition.source)
    return plan_of(context, definition, held, before, leave)


def plan_here(context: Context, asked: ReplayRequest) -> ReplayPlan:
    """Plan a replay into files or a frame; asks no cluster.

    A replay begun in its folder continues with its planned records (law F), whatever a time like `-2h` means now.

    Raises:
        UsageError, TopicDenied: as `plan_replay` does.
        StoreError: the lake failed.
    """
    name = flow_name(None, [asked.topic], asked.words())
    begun = read_begun(asked.files, name) if asked.files is not None else None
    if begun is not None:
        definition, held = begun, require_relay(context, asked.source)
    else:
        definition, held = define(context, asked, name, target=HERE, into=None)
    files = files_in(held, definition.spans)
    return ReplayPlan(
        definition=definition,
        state="new" if begun is None else "begun",
        notes=tuple(gone_notes(context.lake, definition)),
        files=None if held.files is None else len({file.uri for file in files}),
        relay_bytes=None if held.files is None else size_of(files, definition.spans),
    )


def plan_again(context: Context, name: str, *, leave: ReplayConsent = NO_CONSENT) -> ReplayPlan:
    """Plan a begun replay by its name alone.

    Raises:
        UsageError: none of this name was begun, or it is a restore, which does more than send records.
    """
    before = found(context, name)
    if before.definition.at_ms is not None:
        words = before.definition.asked
        raise UsageError(
            f"{before.definition.name} is a restore: it sets groups and compares, too",
            consequence="nothing was sent",
            remedy=f"mirrorlake restore --source {words['source']} --topics '{', '.join(words['topics'])}' "
            f"--at '{words['at']}' --into {words['into']} --name {before.definition.name} goes on with it",
        )
    return plan_of(context, before.definition, look_at_relay(context.lake, before.definition.source), before, leave)


def found(context: Context, name: str) -> Begun:
    """Return a begun replay by its name. Raises UsageError: none was begun; lists the unfinished replays."""
    known = Register(context).all()
    for one in (name, flow_name(name, [], {})):
        if one in known:
            return known[one]
    names = ", ".join(flow for flow, one in known.items() if one.done_at is None) or "none"
    raise UsageError(
        f"no replay '{name}' was begun",
        remedy=f"name --source, --topic and --into for a new one; begun and not done: {names}",
    )


def plan_of(
    context: Context, definition: Definition, held: RelayExtent, before: Begun | None, leave: ReplayConsent
) -> ReplayPlan:
    """Plan a definition: new, begun or done."""
    if before is not None and before.done_at is not None:
        return ReplayPlan(definition=definition, state="done", done_at=before.done_at)
    flow = flow_of(definition, context.config)
    _refuse_other_rules(definition, flow)
    seen = _look(context, definition, flow, begun=before is not None, leave=leave)
    files = files_in(held, definition.spans)
    return ReplayPlan(
        definition=definition,
        state="new" if before is None else "begun",
        changes=seen.changes,
        refusals=seen.refusals,
        notes=(*gone_notes(context.lake, definition), *seen.notes),
        files=None if held.files is None else len({file.uri for file in files}),
        relay_bytes=None if held.files is None else size_of(files, definition.spans),
    )


def run_replay(
    context: Context, plan: ReplayPlan, *, leave: ReplayConsent = NO_CONSENT, stop: threading.Event | None = None
) -> ReplayResult:
    """Send the records of a plan; `stop` ends it between two transactions, and the same call continues.

    Raises:
        SafetyError: the plan is refused; nothing was sent.
        LaneFenced: another process runs the same replay.
        ClusterError, StoreError: the target or the lake failed; the same call continues.
    """
    definition = plan.definition
    if plan.state == "done":
        return _result(context, definition, sent=0, done=True)
    refuse(plan)
    context.lake.create_all([definition.source])
    if plan.state == "new":
        definition = Register(context).begin(definition)
    result = send(context, definition, leave=leave, stop=stop or threading.Event())
    if result.done:
        Register(context).end(
            definition, {"records": result.total, "filtered": result.filtered, "missing": result.missing}
        )
    return result


def send(context: Context, definition: Definition, *, leave: ReplayConsent, stop: threading.Event) -> ReplayResult:
    """Send the records of a registered definition that its ledger lacks.

    Raises:
        SafetyError: the ledger or a topic with sent records was lost.
        LaneFenced, ClusterError, StoreError: as `run_replay` does.
    """
    began = time.monotonic()
    flow = flow_of(definition, context.config, rate=rate_of(leave.rate) if leave.rate else (None, None))
    with context.board() as board:
        sender = republish.Republisher(
            context.lake,
            context.admin(flow.target),
            _settings(context, definition, flow),
            audit=context.audit(),
            tell=board.tell,
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
    result = _result(context, definition, sent=sender.records, done=not stop.is_set())
    log.info("replay.sent name=%s records=%s done=%s", definition.name, result.sent, result.done)
    return replace(result, took_s=round(time.monotonic() - began, 3))


def refuse(plan: ReplayPlan) -> None:
    """Raise if a plan has refusals.

    Raises:
        SafetyError: names every refusal, and the flags that override them.
    """
    if plan.refusals:
        flags = " ".join(dict.fromkeys(one.flag for one in plan.refusals if one.flag))
        remedies = "; ".join(dict.fromkeys(one.remedy for one in plan.refusals))
        raise SafetyError(
            "; ".join(one.why for one in plan.refusals),
            consequence="nothing was sent",
            remedy=f"{remedies}{f'; {flags} does it all the same' if flags else ''}",
            flow=plan.name,
        )


def require_free(context: Context, name: str) -> None:
    """Check that no flow of the settings has a replay's name. Raises UsageError: a flow has it."""
    if any(flow.name == name for flow in context.config.flows):
        raise UsageError(f"a flow of the settings is called {name}", remedy="give the replay another --name")


def gone_notes(lake: Lake, definition: Definition) -> Iterable[str]:
    """Yield a note for each requested range that left the relay and is not sent (law E)."""
    spans = {span.source: span for span in definition.spans}
    names = {topic.name for topic in definition.topics}
    lower = int(definition.asked.get("from_offset") or 0)
    for one in removed_from(lake, definition.source):
        if one.source.topic not in names or one.first_offset >= _end(one, spans, definition.asked):
            continue
        if one.last_offset >= lower:
            yield (
                f"{plural(one.records, 'record')} of {one.source} from offset {one.first_offset} to {one.last_offset} left the "
                f"relay at {one.removed_at:%Y-%m-%d %H:%M} UTC ({one.kind}): those that were asked for are not sent"
            )


def _end(one: Removed, spans: Mapping[SourcePartition, Span], asked: Mapping[str, Any]) -> int:
    if one.source in spans:
        return spans[one.source].end
    return int(asked.get("to_offset") or 2**62)


def refuse_other_words(before: Begun, words: Mapping[str, Any]) -> None:
    """Compare a request with the begun replay of the same name. Raises SafetyError: they differ."""
    if dict(before.definition.asked) != dict(words):
        differing = sorted(
            key.replace("_", "-")
            for key in {*before.definition.asked, *words}
            if before.definition.asked.get(key) != words.get(key)
        )
        raise SafetyError(
            f"{before.definition.name} was begun at {before.begun_at:%Y-%m-%d %H:%M} UTC with another {', '.join(differing)}",
            consequence="going on would mix two replays; nothing was sent",
            remedy="give this one another --name, or the same words as then (`mirrorlake replay --name` alone goes on)",
            flow=before.definition.name,
        )


def _refuse_other_rules(definition: Definition, flow: FlowConfig) -> None:
    if definition.rules != lent_rules(flow):
        raise SafetyError(
            f"the rules of {definition.through} have changed since {definition.name} was begun",
            consequence="one half of its records would have gone through other rules than the rest; nothing was sent",
            remedy="give the rules back, or give the replay another --name",
            flow=definition.name,
        )


def _look(
    context: Context, definition: Definition, flow: FlowConfig, *, begun: bool, leave: ReplayConsent
) -> TargetLook:
    return look_at_target(
        definition,
        flow,
        config=context.config,
        admin=context.admin(flow.target),
        lake=context.lake,
        now=context.now(),
        begun=begun,
        append=leave.append,
        accept_expiry=leave.accept_expiry,
    )


def _settings(context: Context, definition: Definition, flow: FlowConfig) -> RepublishSettings:
    settings = republish.sending_settings(context, flow)
    return replace(
        settings,
        view=view_of_replay(definition, settings.flow),
        relay_slice=build_relay_slice(definition),
        selection=definition.fingerprint,
    )


def _result(context: Context, definition: Definition, *, sent: int, done: bool) -> ReplayResult:
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
