"""What republishing one flow needs to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka.lane import LaneSpec
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.rate import NO_LIMIT, Rate
from mirrorlake.model.remotes import Choice
from mirrorlake.rules import View
from mirrorlake.runtime import PeriodicTask
from mirrorlake.topics import OtherFiles, RemoteTopics

NO_ENDS: Mapping[TopicPartition, int] = {}


class FlowListener:
    """Hear what a flow does; no method raises."""

    def committed(self, records: Sequence[LedgerRecord]) -> None:
        """Hear what the target has confirmed."""

    def polled(self, batch_s: float | None) -> None:
        """Hear that the relay's log was looked at, and how long it took to send what was new; None where nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySlice:
    """A part of a relay that is sent and then done with, as a replay does it.

    Attributes:
        spans: the first upstream offset of each source partition, and the one after the last; others are not sent.
        topics: the source topics as their remote topics are to be made, whatever became of them since.
    """

    ranges: Mapping[SourcePartition, tuple[int, int]]
    topics: Mapping[str, KnownTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishSettings:
    """What republishing one flow needs to know; `view` is what it makes of records, `periodic_tasks` are done beside them.

    `all_flows` are those of the settings: two may meet on one target. `other_files` looks at what flows of other settings files
    wrote there; None takes every topic. `selection` is the fingerprint of what decides which topics the flow carries; those
    of `paused` wait in the relay. `choices` are what a person chose for remote topics that were lost. `listener` hears what
    it does. With a `relay_slice`, that part of the relay is sent and nothing else, whoever filled the topics; its `selection`
    is the fingerprint of all that decides what is sent.
    """

    flow: FlowConfig
    producer_options: Mapping[str, Any] = field(repr=False)
    reader_options: Mapping[str, Any] = field(repr=False)
    view: View | None = None
    periodic_tasks: Sequence[PeriodicTask] = ()
    all_flows: Sequence[FlowConfig] = ()
    selection: str = ""
    paused: frozenset[str] = frozenset()
    choices: Sequence[Choice] = ()
    listener: FlowListener = field(default_factory=FlowListener)
    relay_slice: RelaySlice | None = None
    other_files: OtherFiles | None = None

    def lane_spec(
        self,
        claim: Claim,
        remotes: RemoteTopics,
        *,
        topics: Iterable[str] = (),
        rate: Rate = NO_LIMIT,
        seq: int | None = None,
        ends: Mapping[TopicPartition, int] = NO_ENDS,
    ) -> LaneSpec:
        """Return the task of a lane that sends records of source topics whose remote topics are ready."""
        flow = self.flow
        chunk_records, chunk_bytes = rate.chunk(flow.chunk_records, flow.chunk_bytes)
        options = dict(self.producer_options)
        sent_to = remotes.of(topics)
        names = {one.name for one in sent_to.values()}
        options["batch.size"] = str(min(int(options.get("batch.size", "1000000")), remotes.batch_bytes()))
        return LaneSpec(
            claim=claim,
            target=flow.target,
            options=options,
            reader_options=dict(self.reader_options),
            exactly_once=flow.delivery == "exactly_once",
            chunk_records=chunk_records,
            chunk_bytes=chunk_bytes,
            quarantines=flow.unsendable == "quarantine",
            remotes=sent_to,
            ends={place: end for place, end in ends.items() if place.topic in names},
            rate=rate,
            seq=seq,
            replication_factor=flow.replication_factor,
        )

    def redriving(self) -> RepublishSettings:
        """Return the settings of the flow that sends quarantined records of this one again."""
        # It writes the remote topics of this flow on purpose.
        all_flows = [each for each in self.all_flows if each.name != self.flow.name]
        return replace(self, flow=self.flow.redrive(), periodic_tasks=(), all_flows=all_flows, other_files=None)
