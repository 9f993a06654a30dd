"""Pause, resume and apply settings for a mirror that may run in another process.

This module asks no cluster, so a pause works while one is down. Running mirrors poll every few seconds
(`mirror/control_watch.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.config import identity, plain
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake import Control
from mirrorlake.model.control import APPLY, BEGIN, KNOWN_FLOW, PAUSE, RESUME, STREAM, ControlState, Pause, Subject
from mirrorlake.model.parked import Parked, landing, table_stream, whole_stream
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.model.plan import Plan
from mirrorlake.topics.edits import SETTINGS, edits

_IN_FORCE = Subject(kind=SETTINGS)
# The settings that decide which records a flow reads.
_READS = ("source", "target", "topics", "exclude_topics", "policy", "start", "execution")


def subject_of(
    config: MirrorConfig,
    *,
    cluster: str | None = None,
    flow: str | None = None,
    topic: str | None = None,
    table: str | None = None,
) -> Subject:
    named = [one for one in (cluster, flow, table) if one is not None]
    if len(named) != 1 or (topic is not None and flow is None):
        raise UsageError(
            "name a cluster, a flow, a topic and its flow, or a typed table",
            remedy="name --cluster C, --flow F, --topic T --flow F, or --table T",
        )
    if table is not None:
        if not any(entry.may_make(table) for entry in config.tables):
            raise UsageError(
                f"no entry of `tables:` makes a table '{table}'",
                remedy="mirrorlake tables lists the tables",
                table=table,
            )
        return Subject(kind="table", name=table)
    if cluster is not None:
        config.cluster(cluster)
        return Subject(kind="cluster", name=cluster)
    settings = config.flow(flow or "")
    if topic is None:
        return Subject(kind="flow", name=settings.name)
    if not settings.carries(topic):
        raise UsageError(
            f"{settings.name} does not carry a topic '{topic}'",
            remedy=f"name a source topic that its selection takes: {settings.topics}",
            flow=settings.name,
            topic=topic,
        )
    return Subject(kind="topic", name=topic, flow=settings.name)


def pause(control: Control, subject: Subject, *, reason: str = "") -> Pause:
    """Pause the subject, and return the pause; an existing pause does not change."""
    held = control.state().pauses.get(subject)
    if held is None:
        control.append(PAUSE, subject, reason=reason)
        held = control.state().pauses[subject]
    return held


def resume(control: Control, subject: Subject, *, reason: str = "") -> Pause | None:
    """End a pause, and return it; None if there was none."""
    held = control.state().pauses.get(subject)
    if held is not None:
        control.append(RESUME, subject, reason=reason)
    return held


def resume_parked(config: MirrorConfig, control: Control, subject: Subject, *, reason: str = "") -> tuple[Parked, ...]:
    """Resume the parked streams of a cluster or a flow, and return them; running mirrors start them again.

    A new start of a flow retries its waiting topics.
    """
    covered = set() if subject.kind in ("topic", "table") else {subject.name}
    if subject.kind == "table":
        covered = {table_stream(subject.name)}
    if subject.kind == "cluster":
        covered |= {landing(subject.name), *(flow.name for flow in config.flows_to(subject.name))}
    found = tuple(parked for name, parked in control.state().parked.items() if whole_stream(name) in covered)
    for name in dict.fromkeys(whole_stream(parked.stream) for parked in found):
        control.append(RESUME, Subject(kind=STREAM, name=name), reason=reason)
    return found


def settings_plan(config: MirrorConfig, control: Control, *, flow: str | None = None) -> Plan:
    """Compare the settings, or one flow and its clusters, with those in force; before any are, only typed tables are new."""
    applied = control.state().applied
    in_force = {} if applied is None else applied.value
    content = _merged(in_force, config, flow)
    first = {**content, "tables": ()} if flow is None else content
    return Plan(tuple(edits(in_force or first, content)))


def put_in_force(config: MirrorConfig, control: Control, *, flow: str | None = None) -> bool:
    """Put the settings in force, and return whether they changed; running mirrors adopt them."""
    applied = control.state().applied
    content = _merged(applied.value if applied else {}, config, flow)
    if applied is not None and identity(applied.value) == identity(content):
        return False
    control.append(APPLY, _IN_FORCE, value=content)
    return True


def record_flow(config: MirrorConfig, control: Control, flow: str) -> None:
    """Record a flow in the lake, once for each change, for maintenance that runs with another settings file."""
    content = plain(config)["flows"][flow]
    if control.state().known_flows.get(flow) != content:
        control.append(BEGIN, Subject(kind=KNOWN_FLOW, name=flow), value=content)


def flows_of_other_files(config: MirrorConfig, state: ControlState) -> list[FlowConfig]:
    """Return the flows that the lake records and this settings file does not have, except retired ones.

    Law E: records that they have not sent stay in the relay. The lake does not record the topics that their own file denies,
    so a flow counts as carrying all that it selects.
    """
    names = {flow.name for flow in config.flows}
    return [_restored(name, content) for name, content in sorted(state.known_flows.items()) if name not in names]


def _restored(name: str, content: Mapping[str, Any]) -> FlowConfig:
    """Return a recorded flow with the settings that decide its records; unreadable content counts as every topic."""
    known = {key: content[key] for key in _READS if key in content}
    try:
        flow = FlowConfig.model_validate({**known, "name": name})
    except ValueError:
        # Another release may have written content that this one refuses.
        ends = {key: str(content.get(key, "")) for key in ("source", "target")}
        flow = FlowConfig.model_validate({**ends, "name": name, "topics": [".*"], "exclude_topics": []})
    return flow.bound_to(TopicPattern(()), adds_hops=False)


def _merged(in_force: Mapping[str, Any], config: MirrorConfig, flow: str | None) -> dict[str, Any]:
    """Return the content of the settings; with `flow`, the settings in force with this flow's present content.

    What belongs to no flow, such as `sampling`, stays as it is in force; the first settings bring theirs.
    """
    content = plain(config)
    if flow is None:
        return content
    settings = config.flow(flow)
    ends = {alias: content["clusters"][alias] for alias in (settings.source, settings.target)}
    return {
        **(in_force or content),
        "lake": content["lake"],
        "clusters": {**in_force.get("clusters", {}), **ends},
        "flows": {**in_force.get("flows", {}), settings.name: content["flows"][settings.name]},
    }
