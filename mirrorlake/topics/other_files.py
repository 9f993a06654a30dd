"""Detect flows of other settings files that filled a flow's remote topics or would bring its records back.

One settings file is checked when it is read (`model/loops`). Only the ledgers on the clusters show the flows of other files,
whose lakes may be on other stores.

    x ──identity: orders──> a      the first file
    b ──identity: orders──> a      this file: orders on a holds records that are not the flow's    `refuse_filled`
    a ──identity: orders──> x      this file: x->a would bring them back, and so on                `refuse_round_trips`
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError, NotAuthorized
from mirrorlake.kafka import ClusterAdmin, RecordReader, TopicState, list_partitions, mm2_topics
from mirrorlake.lake import CLUSTER_PROPERTY, Audit, Lake, newest_topics
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import FlowOrigin
from mirrorlake.model.loops.routes import TopicPlace, arrival
from mirrorlake.model.remotes import base_id, is_different_topic, known_id
from mirrorlake.topics.ledger_flows import KNOWN_S, LedgerFlow, LedgerFlows

log = logging.getLogger(__name__)

# The records of an unreachable source are in the relay and are still sent. It is not asked again for each topic.
_SOURCE_WITHIN_S, _AWAY_FOR_S = 5.0, 60.0


class TopicRefusal(NamedTuple):
    """Why a flow does not write a remote topic, and the remedy."""

    cause: str
    remedy: str


class _Step(NamedTuple):
    """A flow that brings the records of one topic to another; `origin` is None for a flow of this settings file."""

    name: str
    start: TopicPlace
    adds_hops: bool
    origin: FlowOrigin | None
    ledger: str


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
        has_brokers: Callable[[str], bool],
    ) -> None:
        self._flow = flow
        self._flows = flows
        self._lake = lake
        self._audit = audit
        self._ledgers = ledgers
        self._admin = admin
        self._reader = reader
        self._has_brokers = has_brokers
        self._steps: dict[str, tuple[float, dict[str, list[_Step]]]] = {}

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
        filled = {name: why for name, why in found.items() if not mine & set(sources[name])}
        return filled | self.refuse_round_trips(sources)

    def _own_topics(self) -> set[str]:
        own = self._ledgers.of(self._flow.target, self._flow.ledger_topic)
        return {*own.sent, *own.remotes} if own else set()

    # -- topics that others filled --------------------------------------------------------------------------------

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

    # -- round trips ----------------------------------------------------------------------------------------------

    def refuse_round_trips(self, sources: Mapping[str, Iterable[str]]) -> dict[str, TopicRefusal]:
        """Return the remote topics that lead back to their source topics over flows of other files.

        Law F: the same rule as within one file; allowed if every flow of the trip writes provenance headers. A source gets 5 s
        to answer.
        """
        found: dict[str, TopicRefusal] = {}
        for remote, topics in sources.items():
            for topic in topics:
                start, goal = TopicPlace(self._flow.source, topic), TopicPlace(self._flow.target, remote)
                trip = _way_back(start, goal, self._steps_into)
                if trip and not self._tells_apart(trip):
                    found[remote] = self._round_trip_refusal(topic, trip)
        return found

    def _steps_into(self, alias: str) -> dict[str, list[_Step]]:
        """Return the flows into each topic of a cluster: of this file and of the ledgers there."""
        until, found = self._steps.get(alias, (0.0, {}))
        if time.monotonic() >= until:
            others, known_s = self._foreign_into(alias)
            found = self._steps_of(alias, others)
            self._steps[alias] = time.monotonic() + known_s, found
        return found

    def _steps_of(self, alias: str, others: Iterable[LedgerFlow]) -> dict[str, list[_Step]]:
        found: dict[str, list[_Step]] = {}
        for each in self._flows:
            names = newest_topics(self._lake, each.source, "source", missing_ok=True) if each.target == alias else ()
            for name in names:
                if (end := arrival(each, name)) is not None:
                    start = TopicPlace(each.source, name)
                    found.setdefault(end.topic, []).append(
                        _Step(each.name, start, each.adds_hops, None, each.ledger_topic)
                    )
        for one in others:
            source = self._alias_of(one.origin.cluster_id) if one.origin else None
            if one.origin is None or source is None:
                continue
            for topic, remote in one.remotes.items():
                step = _Step(one.name, TopicPlace(source, topic), one.origin.adds_hops, one.origin, one.ledger)
                found.setdefault(remote.name, []).append(step)
        return found

    def _foreign_into(self, alias: str) -> tuple[list[LedgerFlow], float]:
        """Return the flows of other files into a cluster, and the seconds that this answer is valid."""
        if not self._has_brokers(alias):
            return [], _AWAY_FOR_S
        names = _ledgers_of(flow for flow in self._flows if flow.target == alias)
        try:
            return within(_SOURCE_WITHIN_S, lambda: self._ledgers.into(alias, but=names)), KNOWN_S
        except (MirrorlakeError, TimeoutError) as error:
            log.warning("loops.not_looked flow=%s cluster=%s why=%s", self._flow.name, alias, error)
            return [], _AWAY_FOR_S

    def _alias_of(self, cluster_id: str) -> str | None:
        """Return the alias of a cluster in this file, or None."""
        if not cluster_id:
            return None
        if self._admin.cluster_id() == cluster_id:
            return self._flow.target
        for alias in dict.fromkeys(each.source for each in self._flows):
            location = self._lake.relay_location(alias)
            known = self._lake.properties(location) if self._lake.exists(location) else {}
            if known.get(CLUSTER_PROPERTY) == cluster_id:
                return alias
        return None

    def _tells_apart(self, trip: Sequence[_Step]) -> bool:
        """Return whether every flow of the trip writes provenance headers with the same aliases."""
        ends = [step.start.alias for step in trip[1:]] + [self._flow.source]
        return self._flow.adds_hops and all(
            step.adds_hops
            and (step.origin is None or (step.origin.source, step.origin.target) == (step.start.alias, end))
            for step, end in zip(trip, ends, strict=True)
        )

    def _round_trip_refusal(self, topic: str, trip: Sequence[_Step]) -> TopicRefusal:
        flow = self._flow
        names = ", ".join((flow.name, *(step.name for step in trip), flow.name))
        other = next(step for step in trip if step.origin)
        return TopicRefusal(
            f"records of {topic} could be mirrored in an endless loop: {names}; {other.name} belongs to another settings file (ledger "
            f"{other.ledger})",
            "use policy: default on these flows, or different topics, or provenance: true on all of them and the same "
            f"aliases in all files; if {other.name} is gone for good, delete the topic {other.ledger}",
        )


def _way_back(
    start: TopicPlace, goal: TopicPlace, steps_into: Callable[[str], Mapping[str, Sequence[_Step]]]
) -> tuple[_Step, ...]:
    """Return the flows that bring records from the goal to the start, or () if none of them is of another file."""
    ways: list[tuple[TopicPlace, tuple[_Step, ...]]] = [(start, ())]
    seen = {start}
    for place, way in ways:
        for step in steps_into(place.alias).get(place.topic, ()):
            trip = (step, *way)
            if step.start == goal and any(one.origin for one in trip):
                return trip
            if step.start not in seen and step.start.alias != goal.alias:
                seen.add(step.start)
                ways.append((step.start, trip))
    return ()


def within(seconds: float, call: Callable[[], list[LedgerFlow]]) -> list[LedgerFlow]:
    """Return the result of a call; a call that takes longer continues in its thread.

    Raises:
        TimeoutError: the call took longer.
    """
    answers: queue.SimpleQueue[tuple[list[LedgerFlow], Exception | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((call(), None))
        except Exception as error:
            answers.put(([], error))

    threading.Thread(target=ask, name="read ledgers", daemon=True).start()
    try:
        answer, problem = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if problem is not None:
        raise problem
    return answer


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
