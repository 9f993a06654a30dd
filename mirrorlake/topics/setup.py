"""Plan and apply the relay tables, ledgers, remote topics and ACLs of the settings (law G: shown first)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from typing import Any

from mirrorlake.config import find_unmirrored
from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError, ClusterUnreachable, TopicConflict
from mirrorlake.kafka import ClusterAdmin, mm2_topics
from mirrorlake.kafka.lane import ledger_spec
from mirrorlake.lake import Audit, Lake, list_carried_topics
from mirrorlake.model.patterns import shape_of
from mirrorlake.model.plan import Change, Note, Plan, TopicSpec, made_by, topic_changes
from mirrorlake.model.remotes import LostTopic
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.topics.acl_ownership import INTENDED
from mirrorlake.topics.acl_plan import TargetAcls, acl_plan, clusters_own, read_target
from mirrorlake.topics.edits import SETTINGS
from mirrorlake.topics.filled_topics import FilledTopics
from mirrorlake.topics.remote_topics import in_requests
from mirrorlake.topics.rules_plan import rule_changes, rule_notes
from mirrorlake.topics.topic_plan import (
    Admins,
    Sources,
    filled_conflicts,
    led_by_others,
    look,
    name_conflicts,
    rivals_of,
    topic_plan,
)


def make_plan(
    flows: Iterable[FlowConfig],
    *,
    all_flows: Iterable[FlowConfig],
    sources: Sources,
    admins: Admins,
    lake: Lake,
    audit: Audit,
    held: Callable[[FlowConfig], Iterable[LostTopic]],
    renamed: Callable[[FlowConfig], Iterable[Note]],
    filled_of: Callable[[FlowConfig], FilledTopics],
    tell: ProgressCallback = ignore_progress,
) -> Plan:
    """Plan the changes that the flows need; reads the clusters and the lake, and changes nothing.

    `all_flows` are all flows of the settings: two may write to one target. `held` finds a flow's lost remote topics, `renamed`
    those that its changed policy leaves, `filled_of` its check for topics that others filled. `tell` gets the count of compared topics.
    """
    flows, all_flows = list(flows), list(all_flows)
    changes = [
        Change(where="lake", kind="table", name=location, action="create", after="table", reason="missing in the lake")
        for location in lake.missing(sorted({flow.source for flow in flows}))
    ]
    notes: list[Note] = []
    source_acls = cache(lambda alias: sources[alias].acls.list())
    targets: dict[str, TargetAcls] = {}
    planned = {flow.source for flow in flows}

    def known(other: FlowConfig) -> Iterable[str]:
        # A source that this plan does not concern may be unreachable: its recorded topics suffice.
        return names(other.source) if other.source in planned else list_carried_topics(lake, other)

    names = cache(lambda alias: sources[alias].topic_names())
    for flow in flows:
        doing = f"compare topics of {flow.name}"
        tell(doing, 0, None, "topics")
        ends = look(flow, sources, admins, tell=partial(tell, doing, unit="topics"))
        changes += _ledger_changes(flow, admins[flow.target])
        changes += _mm2_changes(flow, admins[flow.target])
        led = led_by_others(flow, all_flows, names=known)
        changes += topic_plan(flow, ends, audit, waiting=held(flow), beside=all_flows, led=led).changes
        changes += rule_changes(flow, audit)
        notes += find_unmirrored(flow, ends.source_names)
        notes += [*rule_notes(flow, ends.source), *renamed(flow)]
        notes += _group_notes(flow, all_flows)
        others = [(other, known(other)) for other in rivals_of(flow, all_flows)]
        changes += name_conflicts(flow, ends, others=others)
        changes += filled_conflicts(flow, ends, filled_of(flow))
        if flow.sync.acls:
            if flow.target not in targets:
                targets[flow.target] = read_target(admins[flow.target], audit)
            found = acl_plan(
                flow,
                ends,
                source=clusters_own(source_acls(flow.source), flow, all_flows, audit),
                target=targets[flow.target],
                known=list_carried_topics(lake, flow),
                all_flows=all_flows,
            )
            changes += found.changes
            notes += found.notes
    return Plan(tuple(made_once(changes)), tuple(dict.fromkeys(notes)))


def made_once(changes: Iterable[Change]) -> list[Change]:
    """Merge the creations of a shared topic: the first flow's settings, the largest partition count."""
    found: dict[Any, Change] = {}
    for number, change in enumerate(changes):
        is_made = (change.kind, change.action) == ("topic", "create")
        key = (change.where, change.name) if is_made else number
        if (first := found.setdefault(key, change)) is not change:
            partitions = max(first.after["partitions"], change.after["partitions"])
            found[key] = replace(first, after={**first.after, "partitions": partitions})
    return list(found.values())


def _group_notes(flow: FlowConfig, all_flows: Iterable[FlowConfig]) -> list[Note]:
    why = refused(flow, all_flows)
    notes = [Note(where=flow.target, kind="groups", name=flow.name, reason=why)] if why and flow.sync.groups else []
    for name in filter(None, (shape_of(expression).meant for expression in flow.groups.expressions)):
        if not flow.group_selection.matches(name):
            notes.append(Note(where=flow.name, kind="group", name=name, reason="exclude_groups excludes it"))
    return notes


def refused(flow: FlowConfig, all_flows: Iterable[FlowConfig]) -> str:
    """Return why the groups of a flow cannot be synced, or "". `all_flows` are all flows of the settings.

    Law A: positions that cannot be determined are refused, not guessed.
    """
    if not flow.adds_hops:
        return ""
    mesh = [flow, *(each for each in all_flows if each.adds_hops and each.name != flow.name)]
    moved = sorted(each.name for each in mesh if each.placement.kind != "keep")
    doubling = sorted(each.name for each in mesh if each.target == flow.target and each.delivery != "exactly_once")
    if moved:
        return f"{', '.join(moved)} places records in other partitions, where {flow.target}'s own records cannot be recognized"
    if doubling:
        return (
            f"{', '.join(doubling)} delivers at least once, so {flow.target}'s own records cannot be told from copies"
        )
    return ""


def _ledger_changes(flow: FlowConfig, target: ClusterAdmin) -> list[Change]:
    actual = target.describe([flow.ledger_topic]).get(flow.ledger_topic)
    spec = ledger_spec(flow.ledger_topic, flow.lanes, flow.replication_factor)
    held = None if actual is None else TopicSpec(name=actual.name, partitions=actual.partitions, configs=spec.configs)
    return topic_changes(where=flow.target, wanted=spec, actual=held, flow=flow.name)


def _mm2_changes(flow: FlowConfig, target: ClusterAdmin) -> list[Change]:
    wanted = mm2_topics(flow)
    actual = target.describe(spec.name for spec in wanted)
    return [
        change
        for spec in wanted
        if spec.name not in actual
        for change in topic_changes(where=flow.target, wanted=spec, actual=None, flow=flow.name)
    ]


def apply_plan(
    plan: Plan,
    *,
    sources: Iterable[str],
    admins: Admins,
    lake: Lake,
    now: Callable[[], datetime],
    tell: ProgressCallback = ignore_progress,
) -> None:
    """Apply a plan in its order and record each change in `audit`; applied twice it changes nothing (law G).

    Raises:
        TopicConflict: the plan holds a conflict; nothing was changed.
        ClusterError: a cluster refused a change, or does not answer; the changes recorded in `audit` remain.
    """
    if plan.conflicts:
        first = plan.conflicts[0]
        raise TopicConflict(
            f"the plan holds a conflict: {first}",
            consequence="nothing was changed",
            remedy="exclude the topic from the flow or give it another name; if partitions are missing, set sync.partitions: true, "
            "grow it yourself or change placement; if it holds records of others, set existing: append",
            topic=first.name,
        )
    tables = sum(change.where == "lake" for change in plan.changes)
    if tables:
        tell("create lake tables", 0, tables, "tables")
    sources = list(sources)
    lake.create_all(sources)
    if tables:
        tell("create lake tables", tables, tables, "tables")
    audit = Audit(lake, now=now)
    audit.record([change for change in plan.changes if change.where == "lake"], command="apply", plan=plan)
    carry_out(
        [change for change in plan.changes if change.where not in ("lake", SETTINGS) and change.action != "held"],
        admins=admins,
        audit=audit,
        plan=plan,
        tell=tell,
    )


def carry_out(
    changes: Sequence[Change],
    *,
    admins: Admins,
    audit: Audit,
    plan: Plan | None = None,
    command: str = "apply",
    tell: ProgressCallback = ignore_progress,
) -> None:
    """Apply changes of clusters and record each in `audit`; the first refusal is raised after all others.

    Topics come first, many in a request. An ACL is recorded before it is created: its owner must be known after a crash, too
    (`topics/acl_ownership.py`).
    """
    new = [change for change in changes if change.kind == "acl" and change.action == "create"]
    audit.record([replace(change, action=INTENDED) for change in new], command=command, plan=plan)
    done, refused = list[Change](), list[ClusterError]()
    asked, carried = Counter(map(_kind, changes)), Counter[str]()

    def note(change: Change) -> None:
        kind = _kind(change)
        done.append(change)
        carried[kind] += 1
        tell(f"change {kind}", carried[kind], asked[kind], kind.split()[0])

    # A plan written by hand may create a topic twice: the first creation counts.
    topics: dict[str, dict[str, Change]] = {}
    for change in changes:
        if (change.kind, change.action) == ("topic", "create"):
            topics.setdefault(change.where, {}).setdefault(change.name, change)
    try:
        for alias, made in topics.items():
            for request in in_requests(map(made_by, made.values())):
                denied = admins[alias].create_all(request)
                there = [made[spec.name] for spec in request if spec.name not in denied]
                for change in there:
                    note(change)
                refused += denied.values()
                admins[alias].wait_for(there)
        for change in changes:
            if topics.get(change.where, {}).get(change.name) is not change:
                try:
                    admins[change.where].apply(change)
                except ClusterUnreachable:
                    raise
                except ClusterError as error:
                    refused.append(error)
                else:
                    note(change)
        # The next reader, a plan above all, sees these changes.
        for alias in dict.fromkeys(change.where for change in done):
            admins[alias].wait_for([change for change in done if change.where == alias])
    finally:
        audit.record(done, command=command, plan=plan)
    if refused:
        raise refused[0]


def _kind(change: Change) -> str:
    return f"{change.kind}s on {change.where}"
