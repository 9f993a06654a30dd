"""Compose the flow of a replay from the settings; it is never a part of them."""

from __future__ import annotations

import re
from itertools import starmap
from typing import TYPE_CHECKING, Any

from mirrorlake import republish
from mirrorlake.config.schema import FlowConfig, MirrorConfig, keeping
from mirrorlake.lake import KnownTopic
from mirrorlake.model.replay import Definition
from mirrorlake.rules import BetweenTimes, HopAdded, Placer, Restamped, View, make_flow_view

if TYPE_CHECKING:
    from mirrorlake.republish import RelaySlice

NEVER_EXPIRES = {"retention.ms": "-1", "retention.bytes": "-1"}


def flow_of(definition: Definition, config: MirrorConfig) -> FlowConfig:
    """Return the flow of a replay, bound to the denials of the settings.

    A flow of the settings to the same target, if any, gives its lanes, producer and chunk sizes.
    """
    through = config.flow(definition.through) if definition.through else None
    like = next((each for each in config.flows_to(definition.target)), None)
    content: dict[str, Any] = {
        "name": definition.name,
        "source": definition.source,
        "target": definition.target,
        "topics": [re.escape(definition.topic.name)],
        "exclude_topics": [],
        "policy": {"template": definition.into},
        "provenance": False,
        "sync": {
            "groups": False,
            "partitions": False,
            "configs_override": {".*": dict(definition.overrides)} if definition.overrides else {},
        },
        "rules": (*starmap(keeping, definition.predicates), *(through.rules if through else ())),
    }
    if through is not None:
        content |= {"placement": through.placement, "unsendable": through.unsendable}
    if like is not None:
        content |= {
            "lanes": like.lanes,
            "producer": dict(like.producer),
            "replication_factor": like.replication_factor,
            "chunk_records": like.chunk_records,
            "chunk_bytes": f"{like.chunk_bytes} B",
        }
    if any(each.execution == "streaming" for each in config.flows_from(definition.source)):
        content["execution"] = "streaming"
    flow = FlowConfig.model_validate(content)
    if through is not None:
        flow.note_origin(through.file, through.place)
    return config.bind(flow)


def view_of_replay(definition: Definition, flow: FlowConfig) -> View | None:
    """Return the view of a replay's records, or None if they are sent unchanged."""
    times: tuple[View, ...] = ()
    if definition.since_ms is not None or definition.until_ms is not None:
        times = (BetweenTimes(since_ms=definition.since_ms, until_ms=definition.until_ms),)
    stages: list[Restamped | HopAdded | Placer] = []
    if definition.shift_ms or definition.fixed_ms is not None:
        stages.append(Restamped(shift_ms=definition.shift_ms, fixed_ms=definition.fixed_ms))
    if definition.hops:
        stages.append(HopAdded(alias=definition.source))
    if flow.placement.kind != "keep":
        stages.append(Placer(flow.placement))
    return make_flow_view(flow, before=times, stages=tuple(stages))


def build_relay_slice(definition: Definition) -> RelaySlice:
    topic = definition.topic
    known = KnownTopic(name=topic.name, generation=1, partitions=topic.partitions, configs=topic.configs)
    return republish.RelaySlice(
        ranges={span.source: (span.first, span.end) for span in definition.spans}, topics={topic.name: known}
    )
