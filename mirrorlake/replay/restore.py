"""Restore topics as of a time, with their groups, into a cluster that does not have them.

    restore = restore_topics(context, source="east", topics="orders, clicks.*", at="2026-11-22 03:30", into="scratch")
    restore.run()

A restore is a replay under the topics' own names (`mirrorlake.replay.replays`), up to the source's ends at that time. Before,
it creates the topics with their partitions, settings and ACLs of that time. After, it sets the groups' positions of that time
and compares all records. Every step may be killed and run again under the same name (law F). The source is not asked (law H).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from mirrorlake.config import when
from mirrorlake.config.schema import NameMatcher
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.groups import apply_groups
from mirrorlake.lake import KnownTopic
from mirrorlake.model.acls import AclFlow, translate
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.patterns import PatternError, TopicPattern, parse_patterns
from mirrorlake.model.plan import Change
from mirrorlake.model.replay import RESTORE, Definition
from mirrorlake.model.verify import VerifyReport
from mirrorlake.procedure import Operation, Step
from mirrorlake.render import plural
from mirrorlake.replay.as_of import SourceAsOf, read_source_as_of, read_topics_as_of
from mirrorlake.replay.define import RelayExtent, limits_in, require_relay, spans_of, topics_then, with_hops
from mirrorlake.replay.flows import NEVER_EXPIRES, flow_of
from mirrorlake.replay.groups import plan_groups_then
from mirrorlake.replay.plan import Planned, ReplayPlan, RestorePlan, RestoreReport
from mirrorlake.replay.proof import runs_of
from mirrorlake.replay.replay import compare
from mirrorlake.replay.replays import find_begun, plan_begun, plan_of
from mirrorlake.replay.request import NO_CONSENT, ReplayConsent, flow_name, plain_word
from mirrorlake.replay.run import SendingProcedure, gone_since
from mirrorlake.topics import carry_out

# A pattern of these characters only is a name; a name without a topic is a mistake.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Restore(Planned[RestorePlan]):
    """A planned restore: `mirror.restore(...)`. Nothing changes before `run`."""

    def run(self, *, stop: threading.Event | None = None) -> RestoreReport:
        """Create the topics, send their records, set the groups and compare; after a kill, another call continues (law F).

        Raises:
            SafetyError: the plan is refused; nothing was changed.
            ClusterError, StoreError: the target or the lake failed; run it again.
        """
        return RestoreRun(self._context, self.plan, leave=self._leave, stop=stop or threading.Event()).run()


def restore_topics(
    context: Context,
    *,
    source: str,
    topics: str | Iterable[str],
    at: str | datetime,
    into: str,
    name: str | None = None,
    leave: ReplayConsent = NO_CONSENT,
    groups: bool = True,
    acls: bool = True,
) -> Restore:
    """Plan to restore topics and groups of a source as of a time (see `Mirror.restore`); changes nothing."""
    texts = [topics] if isinstance(topics, str) else list(topics)
    written, now = plain_word(at), context.now()
    words = {"source": source, "topics": texts, "at": written, "into": into}
    context.config.cluster(into)
    held = require_relay(context, source)
    flow = flow_name(name, ["topics"], words, prefix=RESTORE)
    before = find_begun(context, flow, words)
    moment = when(written, now=now) if before is None else _moment_of(before.definition)
    chosen = _chosen(context, source, texts, moment)
    known = read_source_as_of(context.lake, source, chosen, held.ends, at=moment)
    if before is None:
        definition = _define(context, flow, words, known, held, at=moment, now=now, into=into, leave=leave)
        records = plan_of(context, definition, held, leave=leave)
    else:
        records = plan_begun(context, before, leave)
    return Restore(context, _plan(context, records, known, groups=groups, acls=acls), leave=leave)


def _moment_of(definition: Definition) -> datetime:
    return datetime.fromtimestamp((definition.at_ms or 0) / 1000, tz=timezone.utc)


def _chosen(context: Context, source: str, texts: list[str], at: datetime) -> dict[str, KnownTopic]:
    known = read_topics_as_of(context.lake, source, at)
    try:
        pattern = parse_patterns(texts, required=True)
        matcher = NameMatcher(pattern)
    except PatternError as error:
        raise UsageError(error.problem, consequence="nothing was restored", remedy=error.remedy) from None
    names = matcher.select(known)
    plain = [one for one in pattern.expressions if set(one) <= _PLAIN]
    missing = sorted(set(plain) - set(names))
    if missing or not names:
        shown = ", ".join(sorted(known)[:10]) or "none"
        raise UsageError(
            f"{', '.join(missing) or ', '.join(texts)} was not known of {source} at {at:%Y-%m-%d %H:%M:%S} UTC",
            consequence="nothing was restored",
            remedy=f"known then: {shown}{', ...' if len(known) > 10 else ''}; `mirrorlake history --at {at.isoformat()}`",
        )
    return {name: known[name] for name in names}


def _define(
    context: Context,
    name: str,
    words: Mapping[str, Any],
    known: SourceAsOf,
    held: RelayExtent,
    *,
    at: datetime,
    now: datetime,
    into: str,
    leave: ReplayConsent,
) -> Definition:
    def window(one: SourcePartition) -> tuple[int, int | None] | None:
        is_known = one.partition < known.topics[one.topic].partitions
        return (known.earliest.get(one, 0), known.ends.get(one)) if is_known else None

    source = words["source"]
    spans = spans_of(context.lake, source, held.of(known.topics), limits_in(known.topics, window))
    definition = Definition(
        name=name,
        asked=words,
        source=source,
        target=into,
        into=None,
        topics=topics_then(known.topics.values()),
        spans=tuple(spans),
        overrides=NEVER_EXPIRES if leave.hold_retention else {},
        planned_at_ms=int(now.timestamp() * 1000),
        at_ms=int(at.timestamp() * 1000),
    )
    flow = flow_of(definition, context.config)
    stuck = [topic for topic in known.topics if not flow.carries(topic)]
    if stuck:
        raise UsageError(
            f"{', '.join(stuck)} may not leave {source}, or is internal",
            consequence="nothing was restored",
            remedy="leave it out of --topics",
        )
    return with_hops(definition, context.config)


def _plan(context: Context, records: ReplayPlan, known: SourceAsOf, *, groups: bool, acls: bool) -> RestorePlan:
    definition = records.definition
    notes: list[str] = []
    made: tuple[Change, ...] = ()
    if acls and records.state != "done":
        made, notes = _acls(context, definition, known)
    lives = {(span.topic, span.generation) for span in definition.spans}
    stood = [one for one in known.groups if (one.source.topic, one.source.generation) in lives]
    if groups:
        notes += [
            f"group {one.group} is not set: it stood at {one.source}@{one.position}, and the relay holds no record of that "
            "life of the topic"
            for one in known.groups
            if one not in stood
        ]
    if groups and not known.groups:
        notes.append(f"no group position of {definition.source} was recorded up to then (`sampling`, `sync.groups`)")
    return RestorePlan(
        records=records,
        at=_moment_of(definition),
        acls=made,
        groups=tuple(stood) if groups else (),
        notes=tuple(notes),
    )


def _acls(context: Context, definition: Definition, known: SourceAsOf) -> tuple[tuple[Change, ...], list[str]]:
    names = {topic.name for topic in definition.topics}
    flow = flow_of(definition, context.config)
    found = translate(
        known.acls,
        AclFlow(
            topics=flow.topics,
            groups=TopicPattern((".*",)),
            carries=names.__contains__,
            takes_group=lambda _: True,
            remote=lambda topic: topic,
            remote_prefix=lambda prefix: prefix,
            existing=names,
            writes="keep",
            group_acls=True,
        ),
    )
    if not found.wanted:
        return (), [
            f"no ACL of {definition.source} for these topics was recorded up to then (`sync.acls` records them)"
        ]
    there = context.admin(definition.target).acls.list()
    if there is None:
        return (), [f"{definition.target} has no authorizer: {plural(len(found.wanted), 'ACL')} of then are not made"]
    missing = sorted({*found.wanted} - {*there})
    reason = "it was there then"
    return tuple(
        acl.change("create", where=definition.target, reason=reason, flow=definition.name) for acl in missing
    ), []


class RestoreRun(SendingProcedure[RestoreReport]):
    """One restore: create the topics, send their records, set the groups, and compare."""

    def __init__(self, context: Context, plan: RestorePlan, *, leave: ReplayConsent, stop: threading.Event) -> None:
        super().__init__(context, plan.records, leave=leave, stop=stop)
        self._shown = plan
        self._moved = GroupPlan(plan.name, ())
        self._proof: VerifyReport | None = None

    def _steps(self) -> Sequence[Step]:
        return (
            Step("topics", self._create_topics),
            Step("send", self._send, is_needed=lambda _: bool(self._definition.spans)),
            Step("groups", self._move_groups, is_needed=lambda _: bool(self._shown.groups)),
            Step("compare", self._compare),
        )

    def _create_topics(self, _: Operation) -> None:
        context, target = self._context, self._definition.target
        changes = [*self._records.changes, *self._shown.acls]
        carry_out(changes, admins={target: context.admin(target)}, audit=context.audit(), command="restore")

    def _move_groups(self, _: Operation) -> None:
        name, target, lake = self._definition.name, self._definition.target, self._context.lake
        clients, admin = self._context.groups(target), self._context.admin(target)
        plan = plan_groups_then(name, self._shown.groups, runs_of(lake, name), target=clients, admin=admin)
        self._moved = apply_groups(plan, target=clients)

    def _compare(self, _: Operation) -> None:
        self._proof = compare(self._context, self._definition)

    def _outcome(self) -> RestoreReport:
        begun = self._register.find(self._records.name)
        outcome = {} if begun is None or begun.outcome is None else begun.outcome
        return self._make_report(verified=int(outcome.get("verified", 0)), done=True)

    def _report(self, _: Operation) -> RestoreReport:
        found: dict[str, Any] = {
            "sent": self._sent,
            "took_s": self._took_s,
            "gone": gone_since(self._context.lake, self._definition),
        }
        if self._proof is None:
            return self._make_report(done=False, **found)
        return self._make_report(
            **found,
            verified=self._proof.verified,
            left_target=self._proof.not_compared,
            differences=self._proof.differences,
            moved=len(self._moved.moves),
            held=tuple(map(str, self._moved.held)),
        )

    def _make_report(self, **found: Any) -> RestoreReport:
        plan, definition = self._shown, self._definition
        topics, records = len(definition.topics), definition.records
        return RestoreReport(name=plan.name, at=plan.at, topics=topics, records=records, **found)

    def _is_over(self, report: RestoreReport) -> bool:
        return report.equal and not report.held

    def _stored(self, report: RestoreReport) -> Any:
        return {"records": report.records, "verified": report.verified}
