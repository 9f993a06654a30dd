"""Checks of a flow: its ledger, its consumer groups, and other mirrors beside it."""

from __future__ import annotations

from collections.abc import Iterator

from mirrorlake.doctor.check_context import CheckContext, FlowCheckContext, value
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, warning
from mirrorlake.doctor.registry import check
from mirrorlake.errors import NotAuthorized
from mirrorlake.kafka.lane import ledger_spec
from mirrorlake.model.owner import said_owner
from mirrorlake.render import format_duration, plural
from mirrorlake.topics import refused

_KEPT = ("cleanup.policy", "retention.ms", "retention.bytes")


@check("ledger.settings", layer="flow", per="flow", fix="kafka-configs sets the ledger's settings as the finding says")
def _ledger_settings(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Nobody gave the flow's ledger a retention: a ledger without its last records has forgotten what was sent."""
    if at.ledger is None:
        yield fine(at.flow.name, "there is no ledger yet")
        return
    wanted, held = ledger_spec(at.ledger.name, 1).configs, at.target.topic_metadata.settings([at.ledger.name])
    told = held.get(at.ledger.name, {})
    changed = {name: value(told, name) for name in _KEPT if name in told and value(told, name) != wanted[name]}
    if changed:
        fix = ",".join(f"{name}={wanted[name]}" for name in changed)
        yield failure(
            at.ledger.name,
            f"has {', '.join(f'{name}={held}' for name, held in changed.items())} on {at.flow.target}",
            f"kafka-configs --bootstrap-server … --alter --topic {at.ledger.name} --add-config {fix}",
        )
    else:
        yield fine(at.flow.name, "the ledger keeps all its records")


@check("ledger.state", layer="flow", per="flow", fix="mirrorlake republish --flow F --restore-ledger")
def _ledger_state(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """The flow's ledger can be read, and knows no less than its copy in the lake; who owns the lanes, and since when."""
    rows = at.inputs.lake.query_rows(_COPIED, flow=at.flow.name, missing_ok=True)
    copied = {row.lane: row.seq for row in rows}
    restore = f"mirrorlake republish --flow '{at.flow.name}' --restore-ledger"
    if at.ledger is None:
        if copied:
            yield failure(at.flow.name, f"its ledger is gone from {at.flow.target}, and the lake holds a copy", restore)
        else:
            yield fine(at.flow.name, "there is no ledger yet")
        return
    records = at.last_records
    short = {lane: seq for lane, seq in copied.items() if (one := records.get(lane)) is None or one.seq < seq}
    for lane, seq in short.items():
        one = records.get(lane)
        ends = "holds no record" if one is None else f"ends at {one.seq}"
        yield failure(at.flow.name, f"lane {lane} of its ledger {ends}, and its copy in the lake at {seq}", restore)
    newest = max((one for one in records.values() if one), key=lambda one: one.committed_at_ms, default=None)
    if newest is None:
        yield fine(at.flow.name, "the ledger is empty")
    elif not short:
        age = format_duration(max(0.0, at.inputs.now_ms - newest.committed_at_ms))
        owner = said_owner(newest.claim.owner)
        yield fine(at.flow.name, f"{plural(newest.claim.lanes, 'lane')} of {owner}, newest record {age} ago")


@check(
    "groups.held-back", layer="flow", finds="warning", fix="sync: {groups: false}, or placement and delivery by default"
)
def _groups_held_back(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Consumer groups of every flow can be kept in step (law A): where clusters mirror each other, some settings make it guesswork."""
    for flow in inputs.config.flows:
        why = refused(flow, inputs.config.flows) if flow.sync.groups else ""
        if why:
            fix = f"set sync: {{groups: false}} on {flow.name}, or leave placement and delivery as they are by default"
            yield warning(flow.name, f"groups are held back: {why}", fix)
        else:
            yield fine(flow.name, "groups are kept in step" if flow.sync.groups else "`sync.groups` is off")


@check("mm2.beside", layer="flow", per="flow", fix="stop MirrorMaker 2; mirrorlake takeover goes on where it ended")
def _mm2_beside(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No MirrorMaker 2 mirrors the same pair: with the same names of topics every record would arrive twice."""
    group = f"{at.flow.source}-mm2"
    try:
        members = at.target.members(group)
    except NotAuthorized:
        # Only this check needs the permission.
        yield fine(at.flow.name, f"not looked at: group {group} may not be described")
        return
    if members:
        yield failure(
            at.flow.name,
            f"group {group} of MirrorMaker 2 has {plural(members, 'worker')} on {at.flow.target}",
            f"stop it, then mirrorlake takeover --flow '{at.flow.name}'",
        )
    else:
        yield fine(at.flow.name, f"nobody works as {group}")


@check(
    "flow.filled",
    layer="flow",
    per="flow",
    fix="another policy, or existing: append",
)
def _filled(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No remote topic holds records of others: nothing is sent to one that does."""
    remotes = {state.name: state for state in at.remotes.values()}
    sources: dict[str, list[str]] = {}
    for name in at.topics:
        sources.setdefault(at.flow.remote_topic(name), []).append(name)
    found = at.inputs.context.filled_topics(at.flow).refuse(remotes, sources)
    for remote, why in sorted(found.items()):
        yield failure(remote, f"{at.flow.name} does not send to it: {why.cause}", why.remedy)
    if not found:
        yield fine(at.flow.name, "no remote topic holds records of others")


_COPIED = "SELECT lane, max(ledger_seq) AS seq FROM {offset_map} WHERE flow = :flow GROUP BY lane"
