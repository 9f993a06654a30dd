"""Rebuild: give another target the merged topics of one target in exactly the recorded order.

Law D beyond one source partition: each partition of the new target has the records of all flows in the order that the offset
map records for the old target. Law F: a rebuild that is killed resumes at the ledgers' ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, ClassVar

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import Lake, removed_from
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.offsets.merge_order import RecordedRange, in_recorded_order, ranges_to_send
from mirrorlake.offsets.offset_maps import OffsetMaps, load_offset_maps, load_recorded_maps
from mirrorlake.offsets.shared_partitions import related_flows, stable_ends
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.render import JsonDisplayable, Sheet, badge, by_fields, plural, table
from mirrorlake.republish import OrderedSender

log = logging.getLogger(__name__)

Sent = Mapping[str, Mapping[SourcePartition, int]]
"""The next upstream offset that each flow sends, by flow and source partition."""

# Settings that do not decide which records go to which remote topic and partition; all others must be the same.
_FREE = {"name", "target", "groups", "exclude_groups", "sync", "mm2", "delivery", "start", "lanes", "execution"}
_FREE |= {"chunk_records", "chunk_bytes", "producer", "trigger"}


def _certain_to(lake: Lake, flows: Iterable[FlowConfig], clusters: Context) -> dict[TopicPartition, int]:
    """Return the end of the certain order of each target partition that several source partitions feed."""
    ends: dict[TopicPartition, int] = {}
    for flow in flows:
        related, target = related_flows(lake, flow, clusters.config.flows), clusters.admin(flow.target)
        if remotes := related.remotes():
            found = stable_ends(target, remotes, related.flows)
            if not found and target.describe(remotes):
                raise SafetyError(
                    f"the order of records on {flow.target} is not certain: a transaction of {flow.name} or of another flow into its "
                    "topics is open, or one of these flows delivers at least once",
                    consequence="nothing was sent",
                    remedy=f"stop the flows into {flow.target}, wait a minute, and run the same command again",
                    flow=flow.name,
                )
            ends |= found
    return ends


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPartition:
    """One target partition: `records` of its recorded order, `waiting` of them in `stretches` still to be sent."""

    topic: str
    partition: int
    records: int
    waiting: int
    stretches: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RebuildPlan(JsonDisplayable):
    """The records that a rebuild would send; shown first, then applied (law G).

    `flows` are pairs of a flow and the flow whose order it repeats. `gone` names the records of the recorded order
    that left the relay since: they are not sent, and nothing replaces them.
    """

    like: str
    target: str
    flows: tuple[tuple[str, str], ...]
    partitions: tuple[RebuildPartition, ...]
    stretches: tuple[RecordedRange, ...] = ()
    gone: tuple[str, ...] = ()
    json_exclude: ClassVar[tuple[str, ...]] = ("stretches",)

    @property
    def waiting(self) -> int:
        """The number of records that would be sent."""
        return sum(partition.waiting for partition in self.partitions)

    def sheet(self) -> Sheet:
        """Show the records to send to each target partition, and which flow repeats which."""
        columns = ["topic", "partition", "records", "waiting", "stretches"]
        return Sheet(
            title=f"rebuild of {self.target} like {self.like}",
            badge=badge(f"{plural(self.waiting, 'record')} to send", "note") if self.waiting else badge("ok"),
            facts=(plural(len(self.partitions), "partition"),),
            parts=(
                *([table("", columns, self.partitions)] if self.partitions else []),
                *(f"{flow} repeats {reference}" for flow, reference in self.flows),
                *self.gone,
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as `--json` prints it."""
        return by_fields(self) | {"flows": [{"flow": flow, "like": reference} for flow, reference in self.flows]}


_CARRIED = """
    SELECT DISTINCT flow, source_topic, generation, source_partition, target_topic, target_partition, first_upstream,
        last_upstream, first_downstream, record_count
    FROM {runs}
"""


def counterparts(flows: Iterable[FlowConfig], *, reference: str, target: str) -> dict[str, FlowConfig]:
    """Return the flow into `reference` whose order each flow into `target` repeats.

    Raises:
        UsageError: no flow has a counterpart, or a flow has several.
    """
    flows = list(flows)
    found: dict[str, FlowConfig] = {}
    for flow in flows:
        if flow.target != target:
            continue
        alike = [
            other
            for other in flows
            if other.target == reference
            and all(getattr(flow, key) == getattr(other, key) for key in FlowConfig.model_fields if key not in _FREE)
        ]
        if len(alike) > 1:
            names = ", ".join(other.name for other in alike)
            raise UsageError(
                f"{flow.name} could repeat the order of {names}",
                remedy="give their topics or policies apart",
                flow=flow.name,
            )
        if alike:
            found[flow.name] = alike[0]
    if not found:
        raise UsageError(
            f"no flow into {target} has a counterpart into {reference}",
            remedy=f"add flows into {target} with the same source, topics, policy and placement as those into {reference}",
        )
    return found


def make_rebuild_plan(lake: Lake, clusters: Context, *, reference: str, target: str, recorded: bool) -> RebuildPlan:
    """Plan the rebuild that gives `target` the recorded order of `reference`, without changing anything.

    `recorded` takes the order from the lake alone, for a lost `reference`.

    Raises:
        UsageError: no flow has a counterpart, or a flow spreads source partitions over several target partitions.
        SafetyError: the target has more than the beginning of the recorded order, or that order is not certain yet.
    """
    flows = counterparts(clusters.config.flows, reference=reference, target=target)
    references = list(flows.values())
    lake.create_all({flow.source for flow in references})
    # Before the maps, which then include every commit below these ends.
    certain = {} if recorded else _certain_to(lake, references, clusters)
    maps = load_recorded_maps(lake, references) if recorded else load_offset_maps(lake, references, clusters)
    sent = load_offset_maps(lake, [clusters.config.flow(name) for name in flows], clusters).positions
    reached = {(flow, source): position for flow in flows for source, position in sent[flow].items()}
    try:
        ordered = in_recorded_order(_recorded_stretches(maps, flows, certain))
    except ValueError as problem:
        raise UsageError(
            f"the order of records on {reference} cannot be repeated: {problem}",
            consequence="nothing was sent",
            remedy=f"`mirrorlake republish` gives {target} the same records with the order of each key, without a rebuild",
        ) from None
    try:
        left = ranges_to_send(ordered, reached)
        _refuse_ahead(flows, maps, sent, left)
    except ValueError as problem:
        raise SafetyError(
            f"{target} does not hold the first records in the order of {reference}: {problem}",
            consequence="the missing records would come too late; nothing was sent",
            remedy=f"empty the remote topics on {target} and give its flows new names in the settings, then rebuild before "
            "they run",
        ) from None
    by_target: dict[TopicPartition, list[RecordedRange]] = {}
    for one in ordered:
        by_target.setdefault(one.target, []).append(one)
    waiting = set(left)
    return RebuildPlan(
        like=reference,
        target=target,
        flows=tuple(sorted((flow, reference.name) for flow, reference in flows.items())),
        partitions=tuple(
            RebuildPartition(
                topic=tp.topic,
                partition=tp.partition,
                records=sum(one.count for one in mine),
                waiting=sum(one.count for one in mine if one in waiting),
                stretches=sum(one in waiting for one in mine),
            )
            for tp, mine in sorted(by_target.items())
        ),
        stretches=tuple(left),
        gone=tuple(_gone(lake, flows, left)),
    )


def _recorded_stretches(
    maps: OffsetMaps, flows: Mapping[str, FlowConfig], certain: Mapping[TopicPartition, int]
) -> Iterator[RecordedRange]:
    """Yield the ranges that each flow repeats of its counterpart, below the `certain` ends of target partitions."""
    names = {reference.name: flow for flow, reference in flows.items()}
    for row in maps.ask(_CARRIED):
        target = TopicPartition(row.target_topic, row.target_partition)
        # A range is one transaction's, so it is certain as a whole or not at all.
        if row.flow in names and row.first_downstream < certain.get(target, row.first_downstream + 1):
            yield RecordedRange(
                flow=names[row.flow],
                source=SourcePartition(row.source_topic, row.generation, row.source_partition),
                target=target,
                first_upstream=row.first_upstream,
                last_upstream=row.last_upstream,
                first_downstream=row.first_downstream,
                count=row.record_count,
            )


def _gone(lake: Lake, flows: Mapping[str, FlowConfig], left: Iterable[RecordedRange]) -> Iterator[str]:
    """Describe the records of the ranges that have left the relay (law E)."""
    first: dict[tuple[str, SourcePartition], int] = {}
    for one in left:
        place = flows[one.flow].source, one.source
        first[place] = min(one.first_upstream, first.get(place, one.first_upstream))
    for alias in sorted({alias for alias, _ in first}):
        for act in removed_from(lake, alias):
            if (alias, act.source) in first and act.last_offset >= first[alias, act.source]:
                what = f"{plural(act.records, 'record')} of {alias} {act.source} from {act.first_offset} to {act.last_offset}"
                yield f"{what} left the relay ({act.kind}) and cannot be sent"


def _refuse_ahead(flows: Mapping[str, FlowConfig], maps: OffsetMaps, sent: Sent, left: Iterable[RecordedRange]) -> None:
    """Raise if a flow sent records that its counterpart has not, into a partition that still lacks earlier ones."""
    lacking = {one.target for one in left}
    for flow, reference in flows.items():
        for source, position in sent[flow].items():
            recorded = maps.positions[reference.name].get(source, 0)
            places = {
                TopicPartition(reference.remote_topic(source.topic), p)
                for p in reference.placement.targets(source.topic, source.partition)
            }
            if position > recorded and places & lacking:
                raise ValueError(f"{flow} has sent {source} up to {position}, {reference.name} up to {recorded}")


def apply_rebuild(
    plan: RebuildPlan,
    open_flow: Callable[[str], OrderedSender],
    *,
    stop: threading.Event | None = None,
    tell: ProgressCallback = ignore_progress,
) -> int:
    """Send the plan's records in its order, and return their number.

    The ledgers skip records that were sent meanwhile. `open_flow` claims a flow. `stop` ends the rebuild after the
    current range; the same call resumes after it.

    Raises:
        LaneFenced: a republisher of one of the flows was started.
        ClusterError, StoreError: the target or the lake failed.
    """
    sent, phase = 0, f"rebuild {plan.target}"
    tell(phase, 0, plan.waiting)
    with ExitStack() as stack:
        held = {
            flow: stack.enter_context(closing(open_flow(flow))) for flow in sorted({one.flow for one in plan.stretches})
        }
        for one in plan.stretches:
            if stop is not None and stop.is_set():
                break
            sent += held[one.flow].send_up_to(one.source, one.last_upstream)
            tell(phase, sent, plan.waiting)
    log.info("rebuild.sent target=%s like=%s records=%s", plan.target, plan.like, sent)
    return sent
