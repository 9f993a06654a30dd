"""Restore topics as of a time, with their groups, into a cluster that does not have them.

    restore = restore_topics(context, source="east", topics="orders, clicks.*", at="2026-11-22 03:30", into="scratch")
    restore.run()

A restore is a replay under the topics' own names (`mirrorlake.replay.replays`), up to the source's ends at that time. Before,
it creates the topics with their partitions, settings and ACLs of that time. After, it sets the groups' positions of that time
and compares all records. Every step may be killed and run again under the same name (law F). The source is not asked (law H).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
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
from mirrorlake.model.replay import RESTORE, Definition, TopicThen, chain
from mirrorlake.render import plural
from mirrorlake.replay.as_of import SourceAsOf, read_source_as_of, read_topics_as_of
from mirrorlake.replay.define import require_relay
from mirrorlake.replay.flows import NEVER_EXPIRES, flow_of
from mirrorlake.replay.groups import plan_groups_then
from mirrorlake.replay.planned import Planned
from mirrorlake.replay.proof import runs_of
from mirrorlake.replay.register import Begun, Register
from mirrorlake.replay.replay import compare
from mirrorlake.replay.replays import (
    plan_of,
    refuse,
    refuse_other_words,
    require_free,
    send,
)
from mirrorlake.replay.request import NO_CONSENT, ReplayConsent, flow_name, plain_word
from mirrorlake.replay.restored import RestorePlan, RestoreReport
from mirrorlake.replay.survey import RelayExtent, spans_of
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
        return _run(self._context, self.plan, leave=self._leave, stop=stop or threading.Event())


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
    """Plan to restore topics and groups of a source as of a time into a cluster; changes nothing.

    Args:
        context: the context of the mirror.
        source: the alias of the cluster whose relay is read.
        topics: names or regular expressions, as in a flow.
        at: the time; text may be `-2h`, `now`, or a time without a zone in UTC.
        into: the alias of the target, which has none of these topics, or empty ones.
        name: the name of the restore; None derives it from the request.
        leave: the risks that are accepted beforehand.
        groups: whether consumer groups are set to their positions of that time.
        acls: whether ACLs are created.

    Raises:
        UsageError: no topic was known at that time, or a named cluster or topic does not exist.
        SafetyError: the name belongs to another restore.
        ClusterError, StoreError: the target or the lake failed.
    """
    texts = [topics] if isinstance(topics, str) else list(topics)
    written = plain_word(at)
    words = {"source": source, "topics": texts, "at": written, "into": into}
    now = context.now()
    context.config.cluster(into)
    held = require_relay(context, source)
    flow = flow_name(name, ["topics"], words, prefix=RESTORE)
    require_free(context, flow)
    before = Register(context).find(flow)
    if before is None:
        moment = when(written, now=now)
        chosen = _chosen(context, source, texts, moment)
        known = read_source_as_of(context.lake, source, chosen, held.ends, at=moment)
        definition = _define(context, flow, words, known, held, at=moment, now=now, into=into, leave=leave)
    else:
        refuse_other_words(before, words)
        definition = before.definition
        moment = datetime.fromtimestamp((definition.at_ms or 0) / 1000, tz=timezone.utc)
        chosen = _chosen(context, source, texts, moment)
        known = read_source_as_of(context.lake, source, chosen, held.ends, at=moment)
    return Restore(
        context, _plan(context, definition, known, held, before, leave, groups=groups, acls=acls), leave=leave
    )


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
    spans = spans_of(context.lake, words["source"], held.of(known.topics), _limits(known))
    definition = Definition(
        name=name,
        asked=words,
        source=words["source"],
        target=into,
        into=None,
        topics=tuple(
            TopicThen(name=topic.name, partitions=topic.partitions, configs=dict(topic.configs))
            for topic in known.topics.values()
        ),
        spans=tuple(spans),
        overrides=NEVER_EXPIRES if leave.hold_retention else {},
        planned_at_ms=int(now.timestamp() * 1000),
        at_ms=int(at.timestamp() * 1000),
    )
    flow = flow_of(definition, context.config)
    stuck = [topic for topic in known.topics if not flow.carries(topic)]
    if stuck:
        raise UsageError(
            f"{', '.join(stuck)} may not leave {words['source']}, or is internal",
            consequence="nothing was restored",
            remedy="leave it out of --topics",
        )
    hops = any(
        each.adds_hops and each.carries(topic) for each in context.config.flows_from(into) for topic in known.topics
    )
    return replace(definition, hops=hops)


def _limits(known: SourceAsOf) -> Callable[[SourcePartition], tuple[int, int | None] | None]:
    def limit(source: SourcePartition) -> tuple[int, int | None] | None:
        topic = known.topics.get(source.topic)
        if topic is None or source.partition >= topic.partitions:
            return None
        lives = chain(
            [(cut.generation, cut.first_offset) for cut in topic.truncations if cut.partition == source.partition],
            topic.generation,
        )
        if source.generation not in lives:
            return None
        first, end = lives[source.generation]
        ends = [each for each in (end, known.ends.get(source)) if each is not None]
        return max(first, known.earliest.get(source, 0)), min(ends, default=None)

    return limit


def _plan(
    context: Context,
    definition: Definition,
    known: SourceAsOf,
    held: RelayExtent,
    before: Begun | None,
    leave: ReplayConsent,
    *,
    groups: bool,
    acls: bool,
) -> RestorePlan:
    records = plan_of(context, definition, held, before, leave)
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
        at=datetime.fromtimestamp((definition.at_ms or 0) / 1000, tz=timezone.utc),
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


def _run(context: Context, plan: RestorePlan, *, leave: ReplayConsent, stop: threading.Event) -> RestoreReport:
    definition, began = plan.records.definition, time.monotonic()
    report = RestoreReport(
        name=plan.name, at=plan.at, topics=len(definition.topics), records=definition.records, done=False
    )
    if plan.records.state == "done":
        outcome = (found.outcome if (found := Register(context).find(plan.name)) else None) or {}
        return replace(report, verified=int(outcome.get("verified", 0)), done=True)
    refuse(plan.records)
    target = definition.target
    context.lake.create_all([definition.source])
    if plan.records.state == "new":
        definition = Register(context).begin(definition)
    carry_out(
        [*plan.records.changes, *plan.acls],
        admins={target: context.admin(target)},
        audit=context.audit(),
        command="restore",
    )
    if definition.spans:
        sent = send(context, definition, leave=leave, stop=stop)
        report = replace(report, sent=sent.sent, gone=sent.gone)
        if stop.is_set():
            return replace(report, took_s=round(time.monotonic() - began, 3))
    moved = _move_groups(context, plan)
    proof = compare(context, definition)
    report = replace(
        report,
        verified=proof.verified,
        left_target=proof.not_compared,
        differences=proof.differences,
        moved=len(moved.moves),
        held=tuple(str(one) for one in moved.held),
        done=True,
        took_s=round(time.monotonic() - began, 3),
    )
    if report.equal and not report.held:
        Register(context).end(definition, {"records": report.records, "verified": report.verified})
    return report


def _move_groups(context: Context, plan: RestorePlan) -> GroupPlan:
    if not plan.groups:
        return GroupPlan(plan.name, ())
    target = plan.records.definition.target
    clients = context.groups(target)
    planned = plan_groups_then(
        plan.name, plan.groups, runs_of(context.lake, plan.name), target=clients, admin=context.admin(target)
    )
    return apply_groups(planned, target=clients)
