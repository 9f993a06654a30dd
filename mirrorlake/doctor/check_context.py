"""Inputs of the checks: settings, and the answers of clusters and lake, each read once, failures included."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import ClusterAdmin, TopicSetting, TopicState
from mirrorlake.lag import Monitor, PositionSnapshot
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.topics import LakeTopics

T = TypeVar("T")


@dataclass(slots=True)
class _Once:
    """Cache answers by question; a failed question fails again at once, without its time-out."""

    known: dict[Hashable, tuple[Any, Exception | None]] = field(default_factory=dict)

    def __call__(self, question: Hashable, ask: Callable[[], T]) -> T:
        if question not in self.known:
            try:
                self.known[question] = ask(), None
            except Exception as error:
                self.known[question] = None, error
        answer, problem = self.known[question]
        if problem is not None:
            raise problem
        return cast(T, answer)


class CheckContext:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.config = context.config
        self.lake = context.lake
        self.now = context.now()
        self.once = _Once()

    @property
    def now_ms(self) -> float:
        return self.now.timestamp() * 1000

    @property
    def clusters(self) -> list[str]:
        """The aliases that a flow uses, sorted."""
        return sorted({*self.config.sources, *self.config.targets})

    def is_lake(self, alias: str) -> bool:
        """Return whether a cluster is a lake cluster, which has no brokers: applications publish into it."""
        return self.config.cluster(alias).is_lake

    def admin(self, alias: str) -> ClusterAdmin:
        return self.context.admin(alias)

    def brokers(self, alias: str) -> int:
        return self.once(("brokers", alias), lambda: self.admin(alias).broker_count())

    def answers(self, alias: str) -> bool:
        """Return whether a cluster answers; a lake cluster always does."""
        if self.is_lake(alias):
            return True
        try:
            return self.brokers(alias) > 0
        except Exception:
            return False

    def broker_configs(self, alias: str) -> Mapping[str, str | None]:
        """Return the settings of one broker; {} if they may not be read."""
        return self.once(("configs", alias), lambda: self.admin(alias).broker_configs())

    def has_relay(self, alias: str) -> bool:
        location = self.lake.relay_location(alias)
        return self.once(("relay", alias), lambda: self.lake.exists(location))

    def relay_properties(self, alias: str) -> Mapping[str, str]:
        """Return the properties of a relay; {} if it does not exist."""
        if not self.has_relay(alias):
            return {}
        location = self.lake.relay_location(alias)
        return self.once(("properties", alias), lambda: self.lake.properties(location))

    def landed(self, alias: str) -> Mapping[str, int]:
        """Return the oldest timestamp of the landed records of each topic, in milliseconds since 1970."""

        def ask() -> dict[str, int]:
            if not self.has_relay(alias):
                return {}
            return {row.topic: row.oldest for row in self.lake.query_rows(_LANDED, relay=alias)}

        return self.once(("landed", alias), ask)

    def positions(self, alias: str) -> PositionSnapshot:
        """Return all positions of the flows from a source to targets that answer, without those of groups."""
        flows = [flow for flow in self.config.flows_from(alias) if self.answers(flow.target)]
        return self.once(("positions", alias), lambda: self.context.shared(Monitor).sampler(flows).read_positions())

    def flow(self, flow: FlowConfig) -> FlowCheckContext:
        return self.once(("flow", flow.name), lambda: FlowCheckContext(self, flow))


class FlowCheckContext:
    """The inputs that the checks of one flow share: its topics on both sides, with their settings."""

    def __init__(self, inputs: CheckContext, flow: FlowConfig) -> None:
        self.inputs = inputs
        self.flow = flow
        self.source = inputs.context.source(flow.source)
        self.target = inputs.admin(flow.target)

    @property
    def all_names(self) -> list[str]:
        return self.inputs.once(("names", self.flow.source), self.source.topic_names)

    @property
    def topics(self) -> Mapping[str, TopicState]:
        def ask() -> dict[str, TopicState]:
            return self.source.describe(name for name in self.all_names if self.flow.carries(name))

        return self.inputs.once(("topics", self.flow.name), ask)

    @property
    def settings(self) -> Mapping[str, Mapping[str, TopicSetting]]:
        """The settings in force of the source's topics, if they may be read."""

        def ask() -> Mapping[str, Mapping[str, TopicSetting]]:
            looks = (
                self.source
                if isinstance(self.source, LakeTopics)
                else self.inputs.admin(self.flow.source).topic_metadata
            )
            return looks.settings(self.topics)

        return self.inputs.once(("source settings", self.flow.name), ask)

    @property
    def remotes(self) -> Mapping[str, TopicState]:
        """The remote topics that exist, by the source topic's name."""

        def ask() -> dict[str, TopicState]:
            names = {name: self.flow.remote_topic(name) for name in self.topics}
            found = self.target.describe(names.values())
            return {name: found[remote] for name, remote in names.items() if remote in found}

        return self.inputs.once(("remotes", self.flow.name), ask)

    @property
    def remote_settings(self) -> Mapping[str, Mapping[str, TopicSetting]]:
        """The settings in force of the remote topics, by remote name, if they may be read."""

        def ask() -> Mapping[str, Mapping[str, TopicSetting]]:
            return self.target.topic_metadata.settings({state.name for state in self.remotes.values()})

        return self.inputs.once(("remote settings", self.flow.name), ask)

    @property
    def last_records(self) -> Mapping[int, LedgerRecord | None]:
        snapshot = self.inputs.positions(self.flow.source)
        snapshot.require(("flow", self.flow.name))
        return snapshot.lanes[self.flow.name]

    @property
    def ledger(self) -> TopicState | None:
        topic = self.flow.ledger_topic
        return self.inputs.once(("ledger", self.flow.name), lambda: self.target.describe([topic]).get(topic))


def value(settings: Mapping[str, TopicSetting], name: str, default: str = "") -> str:
    """Return a topic's setting in force; the default if the broker does not report it."""
    return settings[name].value if name in settings else default


_LANDED = "SELECT topic, min(unix_millis(timestamp)) AS oldest FROM {relay} GROUP BY topic"
