"""Plan replays: send records of a relay into any topic, exactly once.

    request     the request, as a person writes it
    survey      the exact offsets of it in the relay
    target      the topics there, and refusals
    register    recorded before the first record is sent
    run         the procedure: one pass of the republisher over this slice of the relay (`republish.RelaySlice`)

Law F (repeatable): a replay killed at any instruction and run again with the same name ends with each record once.
Law G: `plan` changes nothing. The source is neither read nor written: it may be unreachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mirrorlake.context import Context
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import Lake, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.removed import Removed
from mirrorlake.model.replay import Definition, TimedRange
from mirrorlake.render import plural
from mirrorlake.replay.define import define, lent_rules
from mirrorlake.replay.flows import flow_of
from mirrorlake.replay.plan import ReplayPlan
from mirrorlake.replay.register import Begun, Register
from mirrorlake.replay.request import NO_CONSENT, ReplayConsent, ReplayRequest, flow_name
from mirrorlake.replay.target import look_at_target


def plan_replay(
    context: Context, asked: ReplayRequest, *, name: str | None = None, leave: ReplayConsent = NO_CONSENT
) -> ReplayPlan:
    """Plan a replay; changes nothing. A replay begun under the name continues with its own definition."""
    words = asked.words()
    flow = flow_name(name, asked.topic, words)
    before = find_begun(context, flow, words)
    target, into = asked.place()
    if before is not None:
        return plan_begun(context, before, leave)
    definition = define(context, asked, flow, target=target, into=into, leave=leave)
    return plan_of(context, definition, leave=leave)


def found(context: Context, name: str) -> Begun:
    """Return a begun replay by its name. Raises UsageError: none was begun; lists the unfinished replays."""
    known = Register(context).all()
    for one in (name, flow_name(name, "", {})):
        if one in known:
            return known[one]
    names = ", ".join(flow for flow, one in known.items() if one.done_at is None) or "none"
    raise UsageError(
        f"no replay '{name}' was begun",
        remedy=f"name --source, --topic and --into for a new one; begun and not done: {names}",
    )


def find_begun(context: Context, name: str, words: Mapping[str, Any]) -> Begun | None:
    """Return the replay that was begun under a name, by a request in the same words; None if none was begun.

    Raises:
        UsageError: a flow of the settings has the name.
        SafetyError: it was begun by another request.
    """
    if any(flow.name == name for flow in context.config.flows):
        raise UsageError(f"a flow of the settings is called {name}", remedy="give the replay another --name")
    before = Register(context).find(name)
    asked = {} if before is None else before.definition.asked
    if before is None or dict(asked) == dict(words):
        return before
    differing = sorted(key.replace("_", "-") for key in {*asked, *words} if asked.get(key) != words.get(key))
    raise SafetyError(
        f"{name} was begun at {before.begun_at:%Y-%m-%d %H:%M} UTC with another {', '.join(differing)}",
        consequence="going on would mix two replays; nothing was sent",
        remedy="give this one another --name, or the same words as then (`mirrorlake replay --name` alone goes on)",
        flow=name,
    )


def plan_begun(context: Context, before: Begun, leave: ReplayConsent = NO_CONSENT) -> ReplayPlan:
    if before.done_at is not None:
        return ReplayPlan(definition=before.definition, state="done", done_at=before.done_at)
    return plan_of(context, before.definition, leave=leave, is_begun=True)


def plan_of(
    context: Context,
    definition: Definition,
    *,
    leave: ReplayConsent,
    is_begun: bool = False,
) -> ReplayPlan:
    flow = flow_of(definition, context.config)
    if definition.rules != lent_rules(flow):
        raise SafetyError(
            f"the rules of {definition.through} have changed since {definition.name} was begun",
            consequence="one half of its records would have gone through other rules than the rest; nothing was sent",
            remedy="give the rules back, or give the replay another --name",
            flow=definition.name,
        )
    seen = look_at_target(context, definition, flow, begun=is_begun, leave=leave)
    return ReplayPlan(
        definition=definition,
        state="begun" if is_begun else "new",
        changes=seen.changes,
        refusals=seen.refusals,
        notes=(*gone_notes(context.lake, definition), *seen.notes),
    )


def gone_notes(lake: Lake, definition: Definition) -> Iterable[str]:
    """Yield a note for each requested range that left the relay and is not sent (law E)."""
    spans = {span.source: span for span in definition.spans}
    lower = int(definition.asked.get("from_offset") or 0)
    for one in removed_from(lake, definition.source):
        if one.source.topic != definition.topic.name or one.first_offset >= _end(one, spans, definition.asked):
            continue
        if one.last_offset >= lower:
            yield (
                f"{plural(one.records, 'record')} of {one.source} from offset {one.first_offset} to {one.last_offset} left the "
                f"relay at {one.removed_at:%Y-%m-%d %H:%M} UTC ({one.kind}): those that were asked for are not sent"
            )


def _end(one: Removed, spans: Mapping[SourcePartition, TimedRange], asked: Mapping[str, Any]) -> int:
    if one.source in spans:
        return spans[one.source].end
    return int(asked.get("to_offset") or 2**62)
