"""Plan and run replays: records of a relay once more, into any topic, exactly once.

    asking      what a person wants, in his own words
    survey      what of it the relay holds, down to the offsets
    target      what becomes of it there, and what speaks against it
    register    written down before the first record goes
    run         one pass of the one sender, over this part of the relay (`republish.Extract`)

Law F (repeatable): killed at any instruction and run again with the same name, a replay goes on and ends with each record once.
Law G: `plan` changes nothing. The source is neither read nor written: it need not be there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mirrorlake import republish
from mirrorlake.config import rate as rate_of
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.errors import LedgerLost, RemoteTopicLost, SafetyError, TopicDenied, UsageError
from mirrorlake.kafka import ClusterAdmin, Groups, RecordReader
from mirrorlake.lake import Audit, KnownTopic, Lake, newest_topics, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.removed import Removed
from mirrorlake.model.replay import Definition, Span, TopicThen, chain
from mirrorlake.progress import Board
from mirrorlake.render import plural
from mirrorlake.replay.asking import NOTHING_ALLOWED, Asked, Leave, flow_name
from mirrorlake.replay.flows import HERE, NEVER_EXPIRES, extract_of, flow_of, view_of_replay
from mirrorlake.replay.plan import ReplayPlan, ReplayResult
from mirrorlake.replay.register import Begun, Register
from mirrorlake.replay.survey import Held, files_in, look_at_relay, size_of, spans_of
from mirrorlake.replay.target import TargetLook, look_at_target
from mirrorlake.rules import TIMES, Placer

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a replay needs of a mirror: its settings, its lake, its clusters, and how records are sent.

    `sending` gives what sending a flow's records takes, `watching` opens a board for the progress of a call.
    """

    config: MirrorConfig
    lake: Lake
    admin: Callable[[str], ClusterAdmin]
    groups: Callable[[str], Groups]
    reader: Callable[[str], RecordReader]
    audit: Audit
    sending: Callable[[FlowConfig], RepublishSettings]
    watching: Callable[[], AbstractContextManager[Board]]

    @property
    def register(self) -> Register:
        """The replays that were begun."""
        return Register(self.lake, self.audit)


def plan_replay(site: Site, asked: Asked, *, name: str | None = None, leave: Leave = NOTHING_ALLOWED) -> ReplayPlan:
    """Plan a replay; changes nothing. One that was begun under the name is planned on as it was begun.

    Raises:
        UsageError: the range is not in the relay, or something that is named does not exist.
        SafetyError: the name belongs to a replay of other records.
        TopicDenied: the topic may never leave its cluster.
        ClusterError, StoreError: the target or the lake failed.
    """
    rate_of(leave.rate) if leave.rate else None
    words = asked.words()
    flow = flow_name(name, [asked.topic], words)
    require_free(site, flow)
    before = site.register.find(flow)
    target, into = asked.place()
    if before is None:
        definition, held = _define(site, asked, flow, target=target, into=into, leave=leave)
    else:
        refuse_other_words(before, words)
        definition, held = before.definition, look_at_relay(site.lake, before.definition.source)
    return plan_of(site, definition, held, before, leave)


def plan_here(site: Site, asked: Asked) -> ReplayPlan:
    """Plan a replay into files or a frame; no cluster is asked.

    Raises:
        UsageError, TopicDenied: as `plan_replay` does.
        StoreError: the lake failed.
    """
    definition, held = _define(site, asked, flow_name(None, [asked.topic], asked.words()), target=HERE, into=None)
    files = files_in(held, definition.spans)
    return ReplayPlan(
        definition=definition,
        notes=tuple(gone_notes(site.lake, definition)),
        files=None if held.files is None else len({file.uri for file in files}),
        relay_bytes=None if held.files is None else size_of(files, definition.spans),
    )


def plan_again(site: Site, name: str, *, leave: Leave = NOTHING_ALLOWED) -> ReplayPlan:
    """Plan a replay that was begun, by its name alone.

    Raises:
        UsageError: none of this name was begun.
    """
    before = found(site, name)
    return plan_of(site, before.definition, look_at_relay(site.lake, before.definition.source), before, leave)


def found(site: Site, name: str) -> Begun:
    """Return a replay that was begun, by its name. Raises UsageError: there is none; lists those that are not done."""
    known = site.register.all()
    for one in (name, flow_name(name, [], {})):
        if one in known:
            return known[one]
    names = ", ".join(flow for flow, one in known.items() if one.done_at is None) or "none"
    raise UsageError(
        f"no replay '{name}' was begun",
        remedy=f"name --source, --topic and --into for a new one; begun and not done: {names}",
    )


def plan_of(site: Site, definition: Definition, held: Held, before: Begun | None, leave: Leave) -> ReplayPlan:
    """Return the plan of a definition: new, begun or done."""
    if before is not None and before.done_at is not None:
        return ReplayPlan(definition=definition, state="done", done_at=before.done_at)
    flow = flow_of(definition, site.config)
    _refuse_other_rules(definition, flow)
    seen = _look(site, definition, flow, begun=before is not None, leave=leave)
    files = files_in(held, definition.spans)
    return ReplayPlan(
        definition=definition,
        state="new" if before is None else "begun",
        changes=seen.changes,
        refusals=seen.refusals,
        notes=(*gone_notes(site.lake, definition), *seen.notes),
        files=None if held.files is None else len({file.uri for file in files}),
        relay_bytes=None if held.files is None else size_of(files, definition.spans),
    )


def run_replay(
    site: Site, plan: ReplayPlan, *, leave: Leave = NOTHING_ALLOWED, stop: threading.Event | None = None
) -> ReplayResult:
    """Send what a plan holds; `stop` ends it between two transactions, and the same call goes on there.

    Raises:
        SafetyError: the plan is refused; nothing was sent.
        LaneFenced: another process runs the same replay.
        ClusterError, StoreError: the target or the lake failed; the same call goes on.
    """
    definition = plan.definition
    if plan.state == "done":
        return _result(site, definition, sent=0, done=True)
    refuse(plan)
    site.lake.create_all([definition.source])
    if plan.state == "new":
        site.register.begin(definition)
    result = send(site, definition, leave=leave, stop=stop or threading.Event())
    if result.done:
        site.register.end(definition, {"records": result.total, "filtered": result.filtered, "missing": result.missing})
    return result


def send(site: Site, definition: Definition, *, leave: Leave, stop: threading.Event) -> ReplayResult:
    """Send what a definition holds and its ledger does not; it is written down already.

    Raises:
        SafetyError: the ledger or a topic that records were sent to was lost.
        LaneFenced, ClusterError, StoreError: as `run_replay` does.
    """
    began = time.monotonic()
    flow = flow_of(definition, site.config, rate=rate_of(leave.rate) if leave.rate else (None, None))
    with site.watching() as board:
        sender = republish.Republisher(
            site.lake, site.admin(flow.target), _settings(site, definition, flow), audit=site.audit, tell=board.tell
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
    result = _result(site, definition, sent=sender.records, done=not stop.is_set())
    log.info("replay.sent name=%s records=%s done=%s", definition.name, result.sent, result.done)
    return replace(result, took_s=round(time.monotonic() - began, 3))


def refuse(plan: ReplayPlan) -> None:
    """Raise where something speaks against a plan.

    Raises:
        SafetyError: names all of it, and the flags that do it all the same.
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


def require_free(site: Site, name: str) -> None:
    """Check that no flow of the settings has the name of a replay. Raises UsageError: one has."""
    if any(flow.name == name for flow in site.config.flows):
        raise UsageError(f"a flow of the settings is called {name}", remedy="give the replay another --name")


def require_relay(site: Site, alias: str) -> Held:
    """Return what the relay of a cluster holds. Raises UsageError: there is no such cluster, or nothing was landed of it."""
    site.config.cluster(alias)
    held = Held(ends={}, files=())
    if site.lake.exists(site.lake.relay_location(alias)):
        held = look_at_relay(site.lake, alias)
    if not held.ends:
        raise UsageError(
            f"the relay holds nothing of {alias}",
            consequence="nothing was sent",
            remedy=f"mirrorlake land --source {alias} --once, or name a cluster that was landed",
        )
    return held


def gone_notes(lake: Lake, definition: Definition) -> Iterable[str]:
    """Say what has left the relay inside of what was asked for (law E): it is not sent, and nothing is passed over in silence."""
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


def _define(
    site: Site, asked: Asked, name: str, *, target: str, into: str | None, leave: Leave = NOTHING_ALLOWED
) -> tuple[Definition, Held]:
    config, now = site.config, site.audit.now()
    held = require_relay(site, asked.source)
    if asked.through:
        config.flow(asked.through)
    start, end = asked.times(now=now)
    since, until = (None if at is None else int(at.timestamp() * 1000) for at in (start, end))
    topic = _topic(site, asked, held)
    spans = spans_of(site.lake, asked.source, held, _limits(asked, topic), since_ms=since, until_ms=until)
    if not spans:
        raise _outside(asked, held)
    asked.rules()
    newest = max(span.newest_ms for span in spans if span.newest_ms is not None)
    now_ms = int(now.timestamp() * 1000)
    definition = Definition(
        name=name,
        asked=asked.words(),
        source=asked.source,
        target=target,
        into=into,
        topics=(TopicThen(name=topic.name, partitions=topic.partitions, configs=dict(topic.configs)),),
        spans=tuple(spans),
        since_ms=since,
        until_ms=until,
        predicates=asked.predicates(),
        through=asked.through,
        shift_ms=now_ms - newest if asked.timestamps == "shifted" else 0,
        fixed_ms=now_ms if asked.timestamps == "now" else None,
        overrides=NEVER_EXPIRES if leave.hold_retention else {},
        planned_at_ms=now_ms,
    )
    if target != HERE:
        config.cluster(target)
    # Whatever mirrors the topic both ways must know that its records come from here.
    hops = any(each.adds_hops and each.carries(into or asked.topic) for each in config.flows_from(target))
    definition = replace(definition, hops=hops)
    flow = flow_of(definition, config)
    if flow.denies(asked.topic):
        raise TopicDenied(
            f"{asked.topic} may never leave {asked.source} (clusters.{asked.source}.never_leave)",
            consequence="nothing was sent",
            remedy="choose another topic",
            flow=name,
            topic=asked.topic,
        )
    if not flow.carries(asked.topic):
        raise UsageError(
            f"{asked.topic} is an internal topic", consequence="nothing was sent", remedy="name another one"
        )
    return replace(definition, rules=_rules(flow)), held


def _topic(site: Site, asked: Asked, held: Held) -> KnownTopic:
    """Return the source topic, in the life that is asked for."""
    mine = [source for source in held.ends if source.topic == asked.topic]
    if not mine:
        shown = ", ".join(held.topics[:10]) + (", ..." if len(held.topics) > 10 else "")
        raise UsageError(
            f"the relay of {asked.source} holds nothing of a topic '{asked.topic}'", remedy=f"it holds: {shown}"
        )
    lives = sorted({source.generation for source in mine})
    known = newest_topics(site.lake, asked.source, "source").get(asked.topic, KnownTopic(name=asked.topic))
    if known.generation not in lives and not known.cuts:
        # Created again, and nothing of the new life was landed yet.
        known = replace(known, generation=lives[-1])
    if asked.generation is not None:
        if asked.generation not in lives:
            raise UsageError(
                f"the relay holds no generation {asked.generation} of {asked.topic}",
                remedy=f"it holds: {', '.join(map(str, lives))}",
            )
        known = replace(known, generation=asked.generation, cuts=())
    return replace(known, partitions=max(known.partitions, *(source.partition + 1 for source in mine)))


def _limits(asked: Asked, topic: KnownTopic) -> Callable[[SourcePartition], tuple[int, int | None] | None]:
    def limit(source: SourcePartition) -> tuple[int, int | None] | None:
        if source.topic != topic.name or (asked.partitions and source.partition not in asked.partitions):
            return None
        cuts = [(cut.generation, cut.first_offset) for cut in topic.cuts if cut.partition == source.partition]
        lives = chain(cuts, topic.generation)
        if source.generation not in lives:
            return None
        first, end = lives[source.generation]
        ends = [each for each in (end, asked.to_offset) if each is not None]
        return max(first, asked.from_offset or 0), min(ends, default=None)

    return limit


def _outside(asked: Asked, held: Held) -> UsageError:
    ends = sorted((source, first, last) for source, (first, last) in held.ends.items() if source.topic == asked.topic)
    shown = ", ".join(f"{source} from {first} to {last}" for source, first, last in ends[:8])
    return UsageError(
        f"the relay of {asked.source} holds no record of {asked.topic} in this range",
        consequence="nothing was sent",
        remedy=f"the relay holds {shown}{', ...' if len(ends) > 8 else ''}; `mirrorlake browse` shows their times",
    )


def refuse_other_words(before: Begun, words: Mapping[str, Any]) -> None:
    """Compare what is asked with what was begun under the same name. Raises SafetyError: it is something else."""
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


def _rules(flow: FlowConfig) -> str:
    """Return the fingerprints of what another flow lends: rules in their order, and placement."""
    rules = [f"{rule.name}={rule.version}" for rule in flow.rules]
    return " ".join([*rules, Placer(flow.placement).version]).strip()


def _refuse_other_rules(definition: Definition, flow: FlowConfig) -> None:
    if definition.rules != _rules(flow):
        raise SafetyError(
            f"the rules of {definition.through} have changed since {definition.name} was begun",
            consequence="one half of its records would have gone through other rules than the rest; nothing was sent",
            remedy="give the rules back, or give the replay another --name",
            flow=definition.name,
        )


def _look(site: Site, definition: Definition, flow: FlowConfig, *, begun: bool, leave: Leave) -> TargetLook:
    return look_at_target(
        definition,
        flow,
        config=site.config,
        admin=site.admin(flow.target),
        lake=site.lake,
        now=site.audit.now(),
        begun=begun,
        append=leave.append,
        accept_expiry=leave.accept_expiry,
    )


def _settings(site: Site, definition: Definition, flow: FlowConfig) -> RepublishSettings:
    settings = site.sending(flow)
    return replace(
        settings,
        view=view_of_replay(definition, settings.flow),
        extract=extract_of(definition),
        selection=definition.fingerprint,
    )


def _result(site: Site, definition: Definition, *, sent: int, done: bool) -> ReplayResult:
    rows = site.lake.ask(_COUNTS, flow=definition.name)
    predicates = {name for name, _ in definition.predicates}

    def of(what: str, chosen: Callable[[Any], bool] = lambda _: True) -> int:
        return sum(int(row.records) for row in rows if row.what == what and chosen(row))

    return ReplayResult(
        name=definition.name,
        sent=sent,
        records=definition.records,
        total=of("sent"),
        # What lies in a span beside the time that was asked for is no part of the range.
        filtered=of("filtered", lambda row: row.rule != TIMES),
        unjudged=of("filtered", lambda row: row.rule in predicates and row.reason),
        quarantined=of("quarantined"),
        done=done,
    )
