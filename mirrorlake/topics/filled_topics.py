"""Refuse remote topics that somebody else filled: another flow, MirrorMaker 2 or a producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError, NotAuthorized
from mirrorlake.kafka import ClusterAdmin, RecordReader, TopicState, list_partitions, mm2_topics
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.lake import Audit, Lake, newest_topics
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import merged_positions
from mirrorlake.model.loops.collisions import arrival


class TopicRefusal(NamedTuple):
    cause: str
    remedy: str


@dataclass(eq=False, repr=False)
class FilledTopics:
    """Check whether the remote topics of one flow hold records of others.

    A flow that writes provenance headers shares its topics with their producers: it is refused none.
    """

    flow: FlowConfig
    _: KW_ONLY
    flows: Sequence[FlowConfig]
    lake: Lake
    audit: Audit
    admin: ClusterAdmin
    reader: Callable[[str], RecordReader]
    ledger: Callable[[FlowConfig], LedgerReader]

    def refuse(
        self, remotes: Mapping[str, TopicState], sources: Mapping[str, Iterable[str]]
    ) -> dict[str, TopicRefusal]:
        """Return why remote topics are refused, for `plan` and `doctor`; `sources` maps each to its source topics."""
        mine = self._own_topics()
        found = self.refuse_unsent({name: one for name, one in remotes.items() if not mine & set(sources[name])})
        if found:
            # A running flow may have sent its first records since the ledger was read.
            mine = self._own_topics()
        return {name: why for name, why in found.items() if not mine & set(sources[name])}

    def _own_topics(self) -> set[str]:
        """Return the source topics that the flow has sent or claimed under its present policy, by its ledger."""
        ledger = self.flow.ledger_topic
        state = self.admin.describe([ledger]).get(ledger)
        found = set[str]()
        if state is not None:
            with suppress(ClusterError), self.ledger(self.flow) as reader:
                last = {lane: reader.last(lane) for lane in range(state.partitions)}
                sent = merged_positions(last, self.flow.remote_topic)
                found |= sent.remotes.keys() | {s.topic for s, at in sent.positions.items() if at}
        return found

    def refuse_unsent(self, remotes: Mapping[str, TopicState]) -> dict[str, TopicRefusal]:
        """Return the remote topics that hold records of others. By its ledger, the flow has sent nothing to any of these topics."""
        flow = self.flow
        # The flow's own heartbeats go to the same topic as those of its source.
        emitted = {spec.name for spec in mm2_topics(flow)}
        remotes = {name: state for name, state in remotes.items() if name not in emitted}
        if flow.existing == "append" or flow.adds_hops or not remotes:
            return {}
        places = {place: remotes[place.topic] for place in list_partitions(remotes)}
        spans = self.admin.topic_metadata.offset_ranges(places)
        holding: dict[str, dict[TopicPartition, int]] = {}
        for place, (first, end) in spans.items():
            if first < end:
                holding.setdefault(place.topic, {})[place] = first
        for name in self._shared() if holding else ():
            holding.pop(name, None)
        return {
            name: self._refusal(name)
            for name, firsts in holding.items()
            if not (self._may_be_own(name, firsts) or self._is_mapped(name))
        }

    def _shared(self) -> set[str]:
        """Return the remote topics that several flows of this file write by their templates."""
        flow, found = self.flow, set[str]()
        for each in self.flows:
            if each.target == flow.target and each.name != flow.name and flow.may_share(each):
                names = newest_topics(self.lake, each.source, "source", missing_ok=True)
                found |= {end.topic for name in names if (end := arrival(each, name)) is not None}
        return found

    def _may_be_own(self, remote: str, firsts: Mapping[TopicPartition, int]) -> bool:
        """Return whether no record is visible, or a kill between first batch and ledger record may explain the records."""
        if self.flow.delivery == "at_least_once":
            entries = self.audit.entries(self.flow.target, "topic")
            if any(entry.action == "create" and entry.object == remote for entry in entries):
                return True
        with suppress(NotAuthorized), self.reader(self.flow.target) as reader:
            # An aborted transaction leaves offsets and no visible record.
            return not any(
                next(reader.read(place.topic, place.partition, first), None) for place, first in firsts.items()
            )
        return False

    def _is_mapped(self, remote: str) -> bool:
        flow = self.flow
        return bool(self.lake.query(_MAPPED, flow=flow.name, again=flow.redrive_name, remote=remote, missing_ok=True))

    def _refusal(self, remote: str) -> TopicRefusal:
        flow = self.flow
        return TopicRefusal(
            f"{remote} on {flow.target} holds records, and its ledger does not say that {flow.name} sent them",
            f"if {flow.name} had another name: give it the old name back, and it continues there; if MirrorMaker 2 filled "
            f"{remote} for it: mirrorlake takeover; else exclude the topic or choose another `policy`, or `existing: append` "
            f"on {flow.name} sends after what is there",
        )


_MAPPED = """
    SELECT 1 AS one FROM {offset_map} WHERE flow IN (:flow, :again) AND kind = 'sent' AND target_topic = :remote LIMIT 1
"""
