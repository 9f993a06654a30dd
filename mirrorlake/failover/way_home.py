"""The way home: the flows of the settings that bring records written on the target since the failover to the old source."""

from __future__ import annotations

from mirrorlake.config.schema import FlowConfig
from mirrorlake.failover.desk import Desk
from mirrorlake.failover.failback_report import not_failed_back
from mirrorlake.failover.journal import Operation
from mirrorlake.lake import landed_positions, micros
from mirrorlake.model.flow import TopicPartition
from mirrorlake.offsets import known_maps


class WayHome:
    """Bring records from a flow's target to its source."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._flow = desk.flow

    @property
    def flows(self) -> tuple[FlowConfig, ...]:
        """The flows of the settings that lead from the target to the source."""
        flow = self._flow
        return tuple(each for each in self._desk.clusters.config.flows_to(flow.source) if each.source == flow.target)

    def refusals(self, over: Operation) -> list[str]:
        """Say why the records written on the target since cannot go home, or why others would go with them."""
        flow = self._flow
        if not self.flows:
            written = ", ".join(self._written_since())
            lines = f"add these lines to `flows`, and run `mirrorlake apply`: {self._lines(over)}"
            return (
                [f"{written} on {flow.target} was written to since, and no flow leads to {flow.source}; {lines}"]
                if written
                else []
            )
        if not flow.adds_hops or (over.steps[0].after or {}).get("adds_hops"):
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

    def _written_since(self) -> list[str]:
        """List the topics on the target that applications wrote to since the failover."""
        flow, target = self._flow, self._desk.clusters.admin(self._flow.target)
        remotes = {flow.remote_topic(topic): topic for topic in self._desk.topics(flow)}
        mapped = self._mapped_ends()
        found = []
        with self._desk.reader(flow.target) as reader:
            for name in sorted({*remotes, *(remotes.values() if flow.policy.kind == "default" else ())}):
                for state in target.describe([name]).values():
                    starts = {p: mapped.get(TopicPartition(name, p), 0) for p in range(state.partitions)}
                    if any(next(iter(reader.read(name, p, start)), None) for p, start in starts.items()):
                        found.append(name)
        return found

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
_MAPPED = """
    SELECT target_topic AS topic, target_partition AS partition, max(first_downstream + record_count) AS `end`
    FROM {runs} WHERE flow = :flow GROUP BY target_topic, target_partition
"""
