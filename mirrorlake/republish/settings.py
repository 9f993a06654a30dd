"""The settings for republishing one flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka.lane import LaneSpec
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.remotes import LossChoice
from mirrorlake.rules import View
from mirrorlake.runtime import PeriodicTask
from mirrorlake.topics import FilledTopics, RemoteTopics

NO_ENDS: Mapping[TopicPartition, int] = {}


class FlowListener:
    """Listen to a flow; no method raises."""

    def committed(self, records: Sequence[LedgerRecord]) -> None: ...

    def polled(self) -> None:
        """Take a poll of the relay's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySlice:
    """A part of a relay that is sent once, as a replay does.

    `ranges` are the upstream offsets `[first, end)` of each source partition; others are not sent. `topics` are the source topics
    as their remote topics are created, whatever became of them since.
    """

    ranges: Mapping[SourcePartition, tuple[int, int]]
    topics: Mapping[str, KnownTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishSettings:
    """The settings for republishing one flow.

    `view` None sends the records unchanged. `all_flows` are those of the settings, of which several may write one remote topic.
    `selection` is the fingerprint of the settings that decide which topics the flow carries; with a slice, which records are sent.
    `relay_slice` is the only part of the relay to send, whoever filled its remote topics; None for all. `filled_topics` refuses
    remote topics that others filled; None takes every topic.
    """

    flow: FlowConfig
    producer_options: Mapping[str, Any] = field(repr=False)
    reader_options: Mapping[str, Any] = field(repr=False)
    view: View | None = None
    periodic_tasks: Sequence[PeriodicTask] = ()
    all_flows: Sequence[FlowConfig] = ()
    selection: str = ""
    paused: frozenset[str] = frozenset()
    choices: Sequence[LossChoice] = ()
    listener: FlowListener = field(default_factory=FlowListener)
    relay_slice: RelaySlice | None = None
    filled_topics: FilledTopics | None = None

    def lane_spec(
        self,
        claim: Claim,
        remotes: RemoteTopics,
        *,
        topics: Iterable[str] = (),
        seq: int | None = None,
        ends: Mapping[TopicPartition, int] = NO_ENDS,
    ) -> LaneSpec:
        flow = self.flow
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
            chunk_records=flow.chunk_records,
            chunk_bytes=flow.chunk_bytes,
            quarantines=flow.unsendable == "quarantine",
            remotes=sent_to,
            ends={place: end for place, end in ends.items() if place.topic in names},
            seq=seq,
            replication_factor=flow.replication_factor,
        )
