"""The way home: the flows of the settings that bring records written on the target since the failover to the old source."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import takewhile
from operator import gt, itemgetter

from mirrorlake.config.schema import FlowConfig
from mirrorlake.failover.desk import Desk
from mirrorlake.failover.failback_report import not_failed_back
from mirrorlake.failover.journal import Operation
from mirrorlake.kafka import TopicState
from mirrorlake.lake import landed_positions, micros, tombstones_on
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.remotes import is_other, known_id
from mirrorlake.offsets import known_maps


def made_way_home(flow: FlowConfig) -> FlowConfig | None:
    """Make the flow that takes home what applications write on a flow's target; None where only a person can say how.

    It has the name that it would have in the settings: whoever writes it there later goes on where it stands. Under the default
    policy names tell what came from where; under others a topic on the target holds both.
    """
    if flow.policy.kind != "default":
        return None
    return FlowConfig.model_validate(
        {
            "source": flow.target,
            "target": flow.source,
            "topics": list(flow.topics.expressions),
            "exclude_topics": list(flow.exclude_topics.expressions),
            "groups": list(flow.groups.expressions),
            "exclude_groups": list(flow.exclude_groups.expressions),
            "policy": flow.policy.plain(),
        }
    )


class WayHome:
    """Bring records from a flow's target to its source; those of the topics in `leave` stay where they are."""

    def __init__(self, desk: Desk, leave: Collection[str] = ()) -> None:
        self._desk = desk
        self._flow = desk.flow
        self._leave = frozenset(leave)

    @cached_property
    def flows(self) -> tuple[FlowConfig, ...]:
        """The flows that lead from the target to the source; one that was made for this only where it has something to bring."""
        flow, made = self._flow, self._desk.made
        found = [each for each in self._desk.clusters.config.flows_to(flow.source) if each.source == flow.target]
        return tuple(
            each
            for each in found
            if each.name != made or self._written_since(name for name in self._names if each.carries(name))
        )

    @property
    def made(self) -> FlowConfig | None:
        """The flow that was made for this, where it has something to bring."""
        return next((each for each in self.flows if each.name == self._desk.made), None)

    @cached_property
    def _names(self) -> list[str]:
        """The topics on the target that applications write to after a failover: remote ones, and local ones of the same name."""
        flow = self._flow
        remotes = {flow.remote_topic(topic): topic for topic in self._desk.topics(flow)}
        return sorted({*remotes, *(remotes.values() if flow.policy.kind == "default" else ())})

    def refusals(self, over: Operation) -> list[str]:
        """Say why the records written on the target since cannot go home, or why others would go with them."""
        flow = self._flow
        left = (
            name for name in self._names if name not in self._leave and not any(e.carries(name) for e in self.flows)
        )
        if written := self._written_since(left):
            ways = [f"leave them there: {' '.join(f'--leave {name}' for name in written)}"]
            if flow.policy.kind == "identity" and not self.flows:
                ways.append(f"or add these lines to `flows`, and run `mirrorlake apply`: {self._lines(over)}")
            return [
                f"{', '.join(written)} on {flow.target} was written to since, and no flow takes that to {flow.source}; "
                + "; ".join(ways)
            ]
        if not self.flows or not flow.adds_hops or (over.steps[0].after or {}).get("adds_hops"):
            return []
        # Records that the flow brought before the settings had a way back carry no header that says where they have been.
        target, mapped = self._desk.clusters.admin(flow.target), self._mapped_ends()
        late = []
        for each in self.flows:
            begins = each.start.timestamp_ms
            starts = target.earliest(mapped) if begins is None else target.at_time(mapped, begins)
            late += [
                f"{each.name} begins at {tp}@{starts[tp]}" for tp, end in sorted(mapped.items()) if starts[tp] < end
            ]
        why = f"records of {flow.name} would be sent back to {flow.source}, where they are"
        return [f"{why}: {'; '.join(late[:5])}; give it the start {self._lines(over)}"] if late else []

    def bring(self, over: Operation) -> dict[str, int]:
        """Send to the source what was written since a failover, and count its records by flow.

        Raises:
            FailoverRefused: not all of it could be sent.
        """
        desk, came = self._desk, {}
        for each in self.flows:
            desk.land_to(each, desk.ends(each))
            held = landed_positions(desk.lake, each.source).reached
            desk.send_to_end(each)
            if unsent := desk.unsent(each, desk.sent(each), held):
                raise not_failed_back(
                    self._flow, [f"{each.name} could not send all of {source}" for source, _ in unsent[:5]]
                )
            maps = known_maps(desk.lake, [each], desk.clusters)
            [row] = maps.ask(_SINCE, flow=each.name, since=micros(over.began_at))
            came[each.name] = int(row.records or 0)
        return came

    def _written_since(self, names: Iterable[str]) -> list[str]:
        """List the topics on the target that hold a record past the flow's own that no flow sent there, nor an erasure."""
        flow, target = self._flow, self._desk.clusters.admin(self._flow.target)
        states = target.describe(names)
        if not states:
            return []
        places = [TopicPartition(name, p) for name, state in states.items() for p in range(state.partitions)]
        starts, ends = self._mapped_ends(), target.latest(places)
        # Read after the ends: whatever a flow sent before them is in it.
        sent = self._sent_by_flows(states)
        found = set()
        with self._desk.reader(flow.target) as reader:
            for tp in places:
                if tp.topic not in found and starts.get(tp, 0) < ends[tp]:
                    records = reader.read(tp.topic, tp.partition, starts.get(tp, 0))
                    offsets = takewhile(partial(gt, ends[tp]), (record.offset for record in records))
                    if any(not _holds(sent.get(tp, []), offset) for offset in offsets):
                        found.add(tp.topic)
        return sorted(found)

    def _sent_by_flows(self, states: Mapping[str, TopicState]) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Read which downstream offsets flows wrote, re-drives among them, and erasures; as `(first, end)`, ascending."""
        flow, lake, clusters = self._flow, self._desk.lake, self._desk.clusters
        flows = [*clusters.config.flows_to(flow.target)]
        again = {each.redrive().ledger_topic: each.redrive() for each in flows}
        flows += [again[topic] for topic in clusters.admin(flow.target).describe(again)]
        found: dict[TopicPartition, list[tuple[int, int]]] = {}
        for row in known_maps(lake, flows, clusters).ask(_WRITTEN, names=sorted(states)):
            place = TopicPartition(row.topic, row.partition)
            found.setdefault(place, []).append((int(row.first), int(row.first) + int(row.records)))
        for one in tombstones_on(lake, flow.target):
            state = states.get(one.partition.topic)
            if state is None or is_other(one.topic_id, known_id(state.topic_id)):
                continue
            found.setdefault(one.partition, []).extend((first, first + length) for first, length in one.ranges)
        return {place: sorted(spans) for place, spans in found.items()}

    def _mapped_ends(self) -> dict[TopicPartition, int]:
        """Read up to where the flow itself has written each target partition."""
        maps = known_maps(self._desk.lake, [self._flow], self._desk.clusters)
        return {
            TopicPartition(row.topic, row.partition): int(row.end) for row in maps.ask(_MAPPED, flow=self._flow.name)
        }

    def _lines(self, over: Operation) -> str:
        flow = self._flow
        entry = f"{{source: {flow.target}, target: {flow.source}, topics: {list(flow.topics.expressions)}"
        if flow.policy.kind == "identity":
            # What the flow brought before carries no header that says where it has been.
            entry += f", policy: identity, start: {{timestamp: {over.began_at.isoformat(timespec='seconds')}}}"
        return f"- {entry}}}"


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


def _holds(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    at = bisect_right(spans, offset, key=itemgetter(0)) - 1
    return at >= 0 and offset < spans[at][1]
