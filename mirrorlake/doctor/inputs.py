"""The answers of clusters and lake that several checks need; each is asked for once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import ClusterAdmin, TopicSetting, TopicState
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.republish import read_last_records
from mirrorlake.status import FlowStatus, Monitor
from mirrorlake.topics import LakeTopics, TopicSource

Settings = Mapping[str, Mapping[str, TopicSetting]]


class Inputs:
    """The inputs of the checks of one mirror: its settings, and which of its clusters answer."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.config = context.config
        self.lake = context.lake
        self.now_ms = context.now().timestamp() * 1000
        self._brokers: dict[str, int | Exception] = {}

    @property
    def clusters(self) -> list[str]:
        """The aliases that a flow uses, sorted."""
        return sorted({*self.config.sources, *self.config.targets})

    def admin(self, alias: str) -> ClusterAdmin:
        return self.context.admin(alias)

    def brokers(self, alias: str) -> int:
        """Return how many brokers answer; one that is away raises the same error again, and costs one time-out."""
        if alias not in self._brokers:
            try:
                self._brokers[alias] = self.admin(alias).broker_count()
            except Exception as error:
                self._brokers[alias] = error
        if isinstance(found := self._brokers[alias], Exception):
            raise found
        return found

    def answers(self, alias: str) -> bool:
        """Return whether a cluster answers; a lake cluster, into which applications publish, always does."""
        with suppress(Exception):
            return self.config.cluster(alias).is_lake or self.brokers(alias) > 0
        return False

    def broker_setting(self, alias: str, name: str) -> int | None:
        """Return a setting of the brokers, a number; None if it may not be read."""
        found = self.admin(alias).broker_configs().get(name)
        return None if found is None else int(found)

    @cached_property
    def flows(self) -> list[FlowInputs]:
        """The flows whose source and target both answer."""
        flows = self.config.flows
        return [FlowInputs(self, flow) for flow in flows if self.answers(flow.source) and self.answers(flow.target)]

    @cached_property
    def statuses(self) -> Mapping[str, FlowStatus]:
        """The state of the flows whose clusters both answer; of one that is away nobody is asked again."""
        status = self.context.shared(Monitor).status
        if len(self.flows) == len(self.config.flows):
            return status(None)
        return {at.flow.name: status(at.flow.name)[at.flow.name] for at in self.flows}

    def has_relay(self, alias: str) -> bool:
        """Return whether a relay is there; `lake.tables` reports a lake that does not tell."""
        with suppress(Exception):
            return self.lake.exists(self.lake.relay_location(alias))
        return False


@dataclass(frozen=True)
class FlowInputs:
    """The inputs that the checks of one flow share: its topics on both sides, with their settings, and its ledger."""

    inputs: Inputs
    flow: FlowConfig

    @cached_property
    def source(self) -> TopicSource:
        return self.inputs.context.source(self.flow.source)

    @property
    def target(self) -> ClusterAdmin:
        return self.inputs.admin(self.flow.target)

    @cached_property
    def names(self) -> list[str]:
        """The names of all topics of the source."""
        return self.source.topic_names()

    @cached_property
    def topics(self) -> Mapping[str, TopicState]:
        return self.source.describe(name for name in self.names if self.flow.carries(name))

    @cached_property
    def settings(self) -> Settings:
        """The settings in force of the source's topics; without those that may not be read."""
        source = self.source
        asked = source if isinstance(source, LakeTopics) else self.inputs.admin(self.flow.source).topic_metadata
        return asked.settings(self.topics)

    @cached_property
    def remotes(self) -> Mapping[str, TopicState]:
        """The remote topics that exist, by the source topic's name."""
        names = {name: self.flow.remote_topic(name) for name in self.topics}
        found = self.target.describe(names.values())
        return {name: found[remote] for name, remote in names.items() if remote in found}

    @cached_property
    def remote_settings(self) -> Settings:
        """The settings in force of the remote topics, by remote name; without those that may not be read."""
        return self.target.topic_metadata.settings({state.name for state in self.remotes.values()})

    @cached_property
    def ledger(self) -> TopicState | None:
        return self.target.describe([self.flow.ledger_topic]).get(self.flow.ledger_topic)

    @property
    def written(self) -> set[str]:
        """The names of the topics that the flow writes: the remote topics, and its ledger."""
        return {state.name for state in (*self.remotes.values(), self.ledger) if state is not None}

    @cached_property
    def last_records(self) -> Mapping[int, LedgerRecord | None]:
        """The last record of each lane of the ledger."""
        return read_last_records(self.inputs.context, self.flow)


def value(settings: Mapping[str, TopicSetting], name: str, default: str = "") -> str:
    """Return a topic's setting in force; the default if the broker does not report it."""
    return settings[name].value if name in settings else default
