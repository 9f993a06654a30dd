"""Detect flows of other settings files that filled a flow's remote topics.

One settings file is checked when it is read (`model/loops`). Only the ledgers on the clusters show the flows of other files,
whose lakes may be on other stores.

    x ──identity: orders──> a      the first file
    b ──identity: orders──> a      this file: orders on a holds records that are not the flow's
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import NotAuthorized
from mirrorlake.kafka import ClusterAdmin, RecordReader, TopicState, list_partitions, mm2_topics
from mirrorlake.lake import Audit, Lake, newest_topics
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.loops.routes import arrival
from mirrorlake.model.remotes import base_id, is_different_topic, known_id
from mirrorlake.topics.ledger_flows import LedgerFlow, LedgerFlows


class TopicRefusal(NamedTuple):
    """Why a flow does not write a remote topic, and the remedy."""

    cause: str
    remedy: str


class OtherFiles:
    """Check one flow against the flows of other settings files, by the ledgers on its clusters.

    Args:
        flow: the flow.
        flows: all flows of the settings.
        lake: holds the topics of sources, and the ids of their clusters.
        audit: holds the topics that mirrorlake made.
        ledgers: reads the ledgers on clusters.
        admin: the admin of the target.
    """

    def __init__(
        self,
        flow: FlowConfig,
        *,
        flows: Sequence[FlowConfig],
        lake: Lake,
        audit: Audit,
        ledgers: LedgerFlows,
        admin: ClusterAdmin,
        reader: Callable[[str], RecordReader],
    ) -> None:
        self._flow = flow
        self._flows = flows
        self._lake = lake
        self._audit = audit
        self._ledgers = ledgers
        self._admin = admin
        self._reader = reader

    def refuse(
        self, remotes: Mapping[str, TopicState], sources: Mapping[str, Iterable[str]]
    ) -> dict[str, TopicRefusal]:
        """Return why remote topics are refused, for `plan` and `doctor`; `sources` maps each to its source topics.

        Raises:
            ClusterError: the target does not answer.
        """
        mine = self._own_topics()
        found = self.refuse_filled({name: one for name, one in remotes.items() if not mine & set(sources[name])})
        if found:
            # A running flow may have sent its first records since the ledger was read.
            mine = self._own_topics()
        return {name: why for name, why in found.items() if not mine & set(sources[name])}

    def _own_topics(self) -> set[str]:
        own = self._ledgers.of(self._flow.target, self._flow.ledger_topic)
        return {*own.sent, *own.remotes} if own else set()

    def refuse_filled(self, remotes: Mapping[str, TopicState]) -> dict[str, TopicRefusal]:
        """Return the remote topics that hold records of others. By its ledger, the flow has sent nothing to any of these topics.

        Raises:
            ClusterError: the target does not answer.
        """
        flow = self._flow
        # The flow's own heartbeats go to the same topic as those of its source.
        emitted = {spec.name for spec in mm2_topics(flow)}
        remotes = {name: state for name, state in remotes.items() if name not in emitted}
        if flow.existing == "append" or not remotes:
            return {}
        places = {place: remotes[place.topic] for place in list_partitions(remotes)}
        spans = self._admin.topic_metadata.offset_ranges(places)
        holding: dict[str, dict[TopicPartition, int]] = {}
        for place, (first, end) in spans.items():
            if first < end:
                holding.setdefault(place.topic, {})[place] = first
        for name in self._shared() if holding else ():
            holding.pop(name, None)
        if not holding:
            return {}
        writers = self._ledgers.into(flow.target, but=_ledgers_of((flow, *self._partners())))
        found: dict[str, TopicRefusal] = {}
        for name, firsts in holding.items():
            fillers = [one for one in writers if _wrote(one, remotes[name])]
            if flow.adds_hops:
                # Headers distinguish the flow's records from those of producers and of other flows that add hops.
                fillers = [one for one in fillers if one.origin is None or not one.origin.adds_hops]
            is_foreign = bool(fillers) or not (flow.adds_hops or self._may_be_own(name, firsts))
            if is_foreign and not self._is_mapped(name):
                found[name] = self._filled_refusal(name, fillers)
        return found

    def _shared(self) -> set[str]:
        """Return the remote topics that several flows of this file write by their templates."""
        flow, found = self._flow, set[str]()
        for each in () if flow.adds_hops else self._partners():
            names = newest_topics(self._lake, each.source, "source", missing_ok=True)
            found |= {end.topic for name in names if (end := arrival(each, name)) is not None}
        return found

    def _partners(self) -> list[FlowConfig]:
        """Return the other flows of this file that may share a remote topic with the flow."""
        flow = self._flow
        return [
            one for one in self._flows if one.target == flow.target and one.name != flow.name and flow.may_share(one)
        ]

    def _may_be_own(self, remote: str, firsts: Mapping[TopicPartition, int]) -> bool:
        """Return whether no record is visible, or a kill between first batch and ledger record may explain the records."""
        if self._flow.delivery == "at_least_once":
            entries = self._audit.entries(self._flow.target, "topic")
            if any(entry.action == "create" and entry.object == remote for entry in entries):
                return True
        with suppress(NotAuthorized), self._reader(self._flow.target) as reader:
            # An aborted transaction leaves offsets and no visible record.
            return not any(
                next(reader.read(place.topic, place.partition, first), None) for place, first in firsts.items()
            )
        return False

    def _is_mapped(self, remote: str) -> bool:
        flow = self._flow
        return bool(
            self._lake.query_rows(_MAPPED, flow=flow.name, again=flow.redrive_name, remote=remote, missing_ok=True)
        )

    def _filled_refusal(self, remote: str, writers: Sequence[LedgerFlow]) -> TopicRefusal:
        flow = self._flow
        append = f"`existing: append` on {flow.name} sends after what is there"
        if not writers:
            return TopicRefusal(
                f"{remote} on {flow.target} holds records, and no ledger there says that {flow.name} sent them",
                f"if MirrorMaker 2 filled it for {flow.name}: mirrorlake takeover; else give the topic another name with "
                f"`policy`, or {append}",
            )
        names = ", ".join(dict.fromkeys(f"{one.name} ({_from(one)}ledger {one.ledger})" for one in writers))
        first = writers[0].name
        return TopicRefusal(
            f"{remote} on {flow.target} was filled by {names}, not by {flow.name}",
            f"if {flow.name} is {first} under a new name: give it the old name back, and it continues there; if "
            f"{first} still runs: exclude the topic, or choose another policy; if it is gone for good: mirrorlake retire --flow "
            f"'{first}', and {append}, records of {first} included",
        )


def _ledgers_of(flows: Iterable[FlowConfig]) -> set[str]:
    """Return the ledger topics of flows and their redrives."""
    return {ledger for flow in flows for ledger in (flow.ledger_topic, flow.redrive().ledger_topic)}


def _wrote(flow: LedgerFlow, state: TopicState) -> bool:
    """Return whether a ledger names this incarnation of a topic."""
    found = known_id(state.topic_id)
    return any(
        one.name == state.name and not is_different_topic(base_id(one.topic_id), found) for one in flow.remotes.values()
    )


def _from(flow: LedgerFlow) -> str:
    return "" if flow.origin is None else f"from cluster {flow.origin.cluster_id or flow.origin.source}, "


_MAPPED = """
    SELECT 1 AS one FROM {offset_map} WHERE flow IN (:flow, :again) AND target_topic = :remote LIMIT 1
"""
