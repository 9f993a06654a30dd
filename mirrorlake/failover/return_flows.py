"""The return flows of a failback: they send records written on the target since the failover to the old source."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import takewhile
from operator import gt, itemgetter
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.failover.failback_report import not_failed_back
from mirrorlake.failover.operation_context import FREEZE, OperationContext, failed_over, present_topics
from mirrorlake.kafka import ClusterAdmin, TopicState, list_partitions
from mirrorlake.lake import Lake, landed_positions, micros
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.remotes import is_different_topic, known_id
from mirrorlake.offsets import load_offset_maps, with_redrives
from mirrorlake.procedure import Operation, Refusal


def local_topics(lake: Lake, flow: FlowConfig, flows: Iterable[FlowConfig]) -> list[str]:
    """List the topics that applications of a failed-over flow use on its target: the flow's, under their own names.

    A remote topic of one of `flows` is left out, because its records came from another cluster.
    """
    filled = {
        each.remote_topic(topic) for each in flows if each.target == flow.target for topic in present_topics(lake, each)
    }
    return [topic for topic in present_topics(lake, flow) if topic not in filled]


def target_ends(target: ClusterAdmin, topics: Collection[str]) -> list[dict[str, Any]]:
    """Read the end offsets and ids of topics on the target of a failover, as stored in the journal.

    A missing topic is left out. A topic that the principal may not describe has no position; failback then judges its records
    by timestamp.
    """
    refused: dict[str, MirrorlakeError] = {}
    states = target.describe(topics, refused=refused)
    ends = target.last_stable_offsets(list_partitions(states))
    known = [
        {"topic": tp.topic, "topic_id": known_id(states[tp.topic].topic_id), "partition": tp.partition, "position": end}
        for tp, end in sorted(ends.items())
    ]
    return known + [{"topic": name, "position": None} for name in sorted(refused)]


class ReturnFlows:
    """Send records from a flow's target back to its source, except those of the topics in `leave`."""

    def __init__(self, work: OperationContext, leave: Collection[str] = ()) -> None:
        self._work = work
        self._flow = work.flow
        self._leave = frozenset(leave)
        self.flows = tuple(
            each for each in work.context.config.flows_to(work.flow.source) if each.source == work.flow.target
        )

    @cached_property
    def _frozen_ends(self) -> dict[TopicPartition, int]:
        """The ends of local topics on the target when the flow was frozen; records before them stay there.

        A topic that was created again since has none. If no end was read, timestamps decide.
        """
        over = failed_over(self._work.journal.operations())
        step = None if over is None else over.step(FREEZE)
        if over is None or step is None:
            return {}
        target, rows = self._work.context.admin(self._flow.target), step.after["target_ends"]
        states = target.describe({row["topic"] for row in rows})
        ends = {
            TopicPartition(row["topic"], row["partition"]): int(row["position"])
            for row in rows
            if row["position"] is not None
            and row["topic"] in states
            and not is_different_topic(row["topic_id"], known_id(states[row["topic"]].topic_id))
        }
        unread = {
            row["topic"]: states[row["topic"]] for row in rows if row["position"] is None and row["topic"] in states
        }
        return ends | target.offsets_for_time(list_partitions(unread), micros(over.began_at) // 1000)

    @cached_property
    def _names(self) -> list[str]:
        """The target topics that applications write to after a failover: remote ones, and local ones of the same name."""
        flow = self._flow
        remotes = {flow.remote_topic(topic): topic for topic in self._work.topics(flow)}
        return sorted({*remotes, *(remotes.values() if flow.policy.kind == "default" else ())})

    def refusals(self, over: Operation) -> list[Refusal]:
        """Return why records written on the target since cannot be sent back, or why others would be sent, too."""
        flow = self._flow
        left = (
            name for name in self._names if name not in self._leave and not any(e.carries(name) for e in self.flows)
        )
        if written := self._written_since(left):
            ways = [f"leave them there: {' '.join(f'--leave {name}' for name in written)}"]
            if not self.flows and (flow.policy.kind == "identity" or {*written} & {*self._local_topics}):
                ways.append(
                    f"or add these lines to `flows`, and run `mirrorlake apply`: {self._suggest_settings(over)}"
                )
            why = f"{', '.join(written)} on {flow.target} was written to since, and no flow takes that to {flow.source}"
            return [Refusal(f"{why}; {'; '.join(ways)}")]
        if not self.flows or not flow.adds_hops or (over.steps[0].after or {}).get("adds_hops"):
            return []
        # Records that the flow sent before the settings had a return flow carry no provenance header.
        target, mapped = self._work.context.admin(flow.target), self._mapped_ends()
        late = []
        for each in self.flows:
            begins = each.start.timestamp_ms
            starts = target.log_start_offsets(mapped) if begins is None else target.offsets_for_time(mapped, begins)
            late += [
                f"{each.name} begins at {tp}@{starts[tp]}" for tp, end in sorted(mapped.items()) if starts[tp] < end
            ]
        why = f"records of {flow.name} would be sent back to {flow.source}, where they are"
        remedy = f"give it the start {self._suggest_settings(over)}"
        return [Refusal(f"{why}: {'; '.join(late[:5])}; {remedy}")] if late else []

    def send_back(self, over: Operation) -> dict[str, int]:
        """Send records written since a failover to the source, and count them by flow."""
        work, came = self._work, {}
        for each in self.flows:
            work.land_up_to(each, work.ends(each))
            held = landed_positions(work.lake, each.source).reached
            work.ensure_all_sent(each)
            if unsent := work.unsent(each, work.sent(each), held):
                raise not_failed_back(
                    self._flow, [Refusal(f"{each.name} could not send all of {source}") for source, _ in unsent[:5]]
                )
            maps = load_offset_maps(work.context, [each])
            [row] = maps.ask(_SINCE, flow=each.name, since=micros(over.began_at))
            came[each.name] = int(row.records or 0)
        return came

    def _written_since(self, names: Iterable[str]) -> list[str]:
        """List the target topics with a record past the flow's own that neither a flow nor an erasure wrote."""
        flow, target = self._flow, self._work.context.admin(self._flow.target)
        states = target.describe(names)
        if not states:
            return []
        places = list_partitions(states)
        starts, ends = self._frozen_ends | self._mapped_ends(), target.last_stable_offsets(places)
        # Read after the ends, so that it has everything that flows sent before them.
        sent = self._sent_by_flows(states)
        found = set()
        with self._work.context.reader(flow.target) as reader:
            for tp in places:
                if tp.topic not in found and starts.get(tp, 0) < ends[tp]:
                    records = reader.read(tp.topic, tp.partition, starts.get(tp, 0))
                    offsets = takewhile(partial(gt, ends[tp]), (record.offset for record in records))
                    if any(not _contains(sent.get(tp, []), offset) for offset in offsets):
                        found.add(tp.topic)
        return sorted(found)

    def _sent_by_flows(self, states: Mapping[str, TopicState]) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Read the downstream offsets that flows and re-drives wrote, as ascending `(first, end)`."""
        context = self._work.context
        flows = with_redrives(context, context.config.flows_to(self._flow.target))
        found: dict[TopicPartition, list[tuple[int, int]]] = {}
        for row in load_offset_maps(context, flows).ask(_WRITTEN, names=sorted(states)):
            place = TopicPartition(row.topic, row.partition)
            found.setdefault(place, []).append((int(row.first), int(row.first) + int(row.records)))
        return {place: sorted(spans) for place, spans in found.items()}

    def _mapped_ends(self) -> dict[TopicPartition, int]:
        maps = load_offset_maps(self._work.context, [self._flow])
        return {
            TopicPartition(row.topic, row.partition): int(row.end) for row in maps.ask(_MAPPED, flow=self._flow.name)
        }

    @property
    def _local_topics(self) -> list[str]:
        return local_topics(self._work.lake, self._flow, self._work.context.config.flows)

    def _suggest_settings(self, over: Operation) -> str:
        flow = self._flow
        # Under the default policy the flow's patterns may match topics of the target that are not the flow's.
        topics = (
            [name.replace(".", r"\.") for name in self._local_topics]
            if flow.policy.kind == "default"
            else flow.topics.expressions
        )
        # Earlier records stay on the target.
        since = over.began_at.isoformat(timespec="seconds")
        return (
            f"- {{source: {flow.target}, target: {flow.source}, topics: {json.dumps(topics)}, "
            f"policy: {json.dumps(flow.policy.plain())}, start: {{timestamp: '{since}'}}}}"
        )


_SINCE = """
    SELECT sum(record_count) AS records FROM {runs} WHERE flow = :flow AND unix_micros(committed_at) >= :since
"""
_WRITTEN = """
    SELECT target_topic AS topic, target_partition AS partition, first_downstream AS first, record_count AS records
    FROM {runs} WHERE array_contains(:names, target_topic)
"""
_MAPPED = """
    SELECT target_topic AS topic, target_partition AS partition, max(first_downstream + record_count) AS `end`
    FROM {runs} WHERE flow = :flow GROUP BY target_topic, target_partition
"""


def _contains(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    at = bisect_right(spans, offset, key=itemgetter(0)) - 1
    return at >= 0 and offset < spans[at][1]
