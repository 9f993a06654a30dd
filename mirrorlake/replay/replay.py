"""Plan replays: send records of a relay into any topic, exactly once.

    request     the request, as a person writes it
    define      the exact offsets of it in the relay
    target      the topics there, and refusals
    register    recorded before the first record is sent
    run         one pass of the republisher over this slice of the relay (`republish.RelaySlice`)

Law F (repeatable): a replay killed at any instruction and run again with the same name ends with each record once.
Law G: `plan` changes nothing. The source is neither read nor written: it may be unreachable.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import Lake, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.removed import Removed
from mirrorlake.model.replay import REPLAY, Definition, TimedRange
from mirrorlake.model.verify import VerifyReport, VerifyReports
from mirrorlake.render import Displayable, Sheet, plural
from mirrorlake.replay.define import define, lent_rules
from mirrorlake.replay.flows import flow_of, view_of_replay
from mirrorlake.replay.plan import ReplayPlan, ReplayResult
from mirrorlake.replay.register import Begun, Register
from mirrorlake.replay.request import NO_CONSENT, ReplayConsent, ReplayRequest, flow_name, plain_word
from mirrorlake.replay.run import run_replay
from mirrorlake.replay.target import look_at_target
from mirrorlake.verify import verify_ranges


class Replay(Displayable):
    """A planned replay: `mirror.replay(...)`; it shows itself as its plan. Nothing is sent before `run`.

    Example:
        >>> again = mirror.replay(source="east", topic="orders", start="-2h", into="central:orders.replayed")  # doctest: +SKIP
        >>> again.plan.records  # doctest: +SKIP
        41200
        >>> again.run()  # doctest: +SKIP
    """

    def __init__(self, context: Context, plan: ReplayPlan) -> None:
        self._context = context
        self.plan = plan

    @property
    def name(self) -> str:
        """The name of its flow."""
        return self.plan.name

    def sheet(self) -> Sheet:
        """Show the plan."""
        return self.plan.sheet()

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as `--json` prints it."""
        return self.plan.as_dict()

    def run(self, *, stop: threading.Event | None = None) -> ReplayResult:
        """Send the records, each once; after a kill, another call continues (law F).

        Args:
            stop: set it to return between two transactions; a later call continues.

        Raises:
            SafetyError: the plan is refused; nothing was sent.
            ClusterError, StoreError: the target or the lake failed; run it again.
        """
        return run_replay(self._context, self.plan, stop=stop or threading.Event())

    def verify(self) -> VerifyReport:
        """Compare each sent record with the relay: bytes, headers, timestamps, order.

        Raises:
            ClusterError, StoreError: the target or the lake failed.
        """
        return compare(self._context, self.plan.definition)


def make_replay(
    context: Context,
    *,
    name: str | None,
    leave: ReplayConsent,
    source: str | None,
    topic: str | None,
    into: str,
    **asked: Any,
) -> Replay:
    """Plan a replay (see `Mirror.replay`)."""
    if source is None and topic is None and name is not None and not into:
        return Replay(context, plan_begun(context, find_replay(context, name), leave))
    if source is None or topic is None:
        raise UsageError(
            "a replay needs a source and a topic",
            remedy="mirrorlake replay --source east --topic orders --into central:orders.replayed; one that was begun "
            "goes on with --name alone",
        )
    given = {key: plain_word(value) for key, value in asked.items()}
    wanted = ReplayRequest(source=source, topic=topic, into=into, **given)
    return Replay(context, plan_replay(context, wanted, name=name, leave=leave))


def is_replay(config: MirrorConfig, name: str) -> bool:
    return name.startswith(REPLAY) and all(flow.name != name for flow in config.flows)


def find_flow(context: Context, name: str) -> FlowConfig:
    if not is_replay(context.config, name):
        return context.config.flow(name)
    return flow_of(find_replay(context, name).definition, context.config)


def verify_replay(context: Context, name: str) -> VerifyReports:
    """Compare the records that a replay sent with the relay."""
    return VerifyReports([compare(context, find_replay(context, name).definition)])


def compare(context: Context, definition: Definition) -> VerifyReport:
    flow = flow_of(definition, context.config)
    ranges = {span.source: (span.first, span.end) for span in definition.spans}
    compared = 0
    with context.board() as board:

        def tell(records: int) -> None:
            nonlocal compared
            compared += records
            board.tell(f"verify {definition.name}", compared, definition.records)

        return verify_ranges(context, flow, view_of_replay(definition, flow), ranges, tell=tell)


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


def find_replay(context: Context, name: str) -> Begun:
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
