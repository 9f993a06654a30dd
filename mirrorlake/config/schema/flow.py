"""Settings of one flow, with its selection of topics and their names on the target."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    field_validator,
    model_validator,
)

from mirrorlake.config import values
from mirrorlake.config.base import (
    Count,
    Exclusion,
    Execution,
    Flag,
    Interval,
    Options,
    Selection,
    Settings,
    Size,
    at_least,
    masked,
)
from mirrorlake.config.client.options import check_producer
from mirrorlake.config.faults import SettingsFault, fault_error, finding_error, raise_any
from mirrorlake.config.schema.placement import Placement, read_placement
from mirrorlake.config.schema.rules import RuleConfig, check_names, named
from mirrorlake.config.schema.selection import NameMatcher, TopicMatcher
from mirrorlake.config.schema.sync import SyncConfig
from mirrorlake.model.flow import ledger_topic
from mirrorlake.model.loops.collisions import merges_sources
from mirrorlake.model.mm2 import Mm2Names
from mirrorlake.model.patterns import (
    DEFAULT_EXCLUDE_GROUPS,
    DEFAULT_EXCLUDE_TOPICS,
    TopicPattern,
    shape_of,
)
from mirrorlake.model.policy import ReplicationPolicy, TemplatePolicy, is_cycle

_REDRIVE = ".redrive"
# The name becomes that of a folder: it must not be a path or look like an option of a command.
_FLOW_NAME = re.compile(r"(?=.{1,200}$)[A-Za-z0-9_](?:[A-Za-z0-9._-]|->)*")


class Mm2Config(Settings):
    """MirrorMaker 2's own topics, written on the target in its formats for the clients that read them."""

    heartbeats: Flag = Field(default=False, description="write heartbeats")
    checkpoints: Flag = Field(default=False, description="write checkpoints of the translated groups")
    offset_syncs: Flag = Field(default=False, description="write offset syncs")
    heartbeat_interval: Interval = Field(default=timedelta(seconds=1), description="time between two heartbeats")
    offset_sync_interval: Interval = Field(
        default=timedelta(seconds=5), description="time between two checks for new offset syncs"
    )
    offset_lag_max: Count = Field(default=100, description="records between two offset syncs")
    separator_in_internal: Flag = Field(default=True, description="whether their names contain a custom separator")


_Objective = Annotated[Interval, at_least(timedelta(seconds=1), "no mirror can meet this", 'write "30s"')]


class ObjectivesConfig(Settings):
    """Objectives of a flow (docs/objectives.md); without objectives nothing is judged."""

    rpo: _Objective | None = Field(
        default=None, description="the most that may be lost with the source, as the age of its oldest record"
    )
    rto: _Objective | None = Field(default=None, description="the longest time that a failover may take")


class FlowConfig(Settings):
    """One directed flow from a source to a target."""

    name: str = Field(default="", description="default: source->target")
    source: str = Field(description="the alias of the cluster to mirror from")
    target: str = Field(description="the alias of the cluster to mirror to")
    topics: Selection = Field(description="topics to mirror: names or regular expressions")
    exclude_topics: Exclusion = Field(default=DEFAULT_EXCLUDE_TOPICS, description="topics to leave out")
    policy: Annotated[
        values.PolicyChoice, BeforeValidator(values.policy), PlainSerializer(lambda choice: choice.plain())
    ] = Field(default=values.PolicyChoice(), description="how topics are named on the target")
    provenance: Annotated[Literal["auto", True, False], BeforeValidator(values.auto_or_flag)] = Field(
        default="auto", description="whether a header lists the clusters each record visited"
    )
    placement: Annotated[Placement, BeforeValidator(read_placement), PlainSerializer(lambda one: one.plain())] = Field(
        default=Placement(), description="which target partition a record goes to"
    )
    groups: Exclusion = Field(default=TopicPattern((".*",)), description="consumer groups to translate")
    exclude_groups: Exclusion = Field(default=DEFAULT_EXCLUDE_GROUPS, description="consumer groups to leave out")
    sync: SyncConfig = Field(default_factory=SyncConfig, description="what is synced besides records")
    mm2: Mm2Config = Field(default_factory=Mm2Config, description="MirrorMaker 2's topics on the target")
    rules: Annotated[tuple[RuleConfig, ...], BeforeValidator(named), AfterValidator(check_names)] = Field(
        default=(), description="what happens to records on their way"
    )
    objectives: ObjectivesConfig = Field(
        default_factory=ObjectivesConfig, description="how much may be lost, and for how long"
    )
    delivery: Literal["exactly_once", "at_least_once"] = Field(
        default="exactly_once", description="delivery on the target"
    )
    unsendable: Literal["halt", "quarantine"] = Field(
        default="halt", description="what to do with a record that cannot arrive unchanged"
    )
    existing: Literal["refuse", "append"] = Field(
        default="refuse", description="what to do with a remote topic that holds records of other writers"
    )
    start: Annotated[values.Start, BeforeValidator(values.start), PlainSerializer(lambda start: start.plain())] = Field(
        default=values.Start(), description="where a topic begins"
    )
    lanes: Annotated[Count, Field(le=64)] = Field(default=2, description="parallel producers on the target")
    execution: Execution = Field(default="live", description="live tasks, or Structured Streaming")
    chunk_records: Count = Field(default=100_000, description="records in one transaction at the most")
    chunk_bytes: Size = Field(
        default=64 * 2**20, description="bytes in one transaction at the most; a slow target gets fewer"
    )
    replication_factor: Count | None = Field(
        default=None, description="of the topics made on the target; default: the target's own"
    )
    producer: Options = Field(default_factory=dict, description="further producer options")
    trigger: Interval = Field(default=timedelta(0), description="time between the starts of two batches")

    # Set from the other parts of the file (`bound_to`). Without denials everything is denied.
    _never_leave: TopicPattern | None = PrivateAttr(default=None)
    _adds_hops: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _name_by_pair(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("name"):
            return {**data, "name": f"{data.get('source')}->{data.get('target')}"}
        return data

    @field_validator("name")
    @classmethod
    def _name_letters(cls, name: str) -> str:
        if not _FLOW_NAME.fullmatch(name):
            remedy = "use letters, digits, . _ - and ->, a letter, digit or _ in front, at most 200"
            raise fault_error(f"'{name}' is not a name for a flow", remedy)
        if name.endswith(_REDRIVE):
            raise fault_error(f"names that end in {_REDRIVE} are taken", "name the flow otherwise")
        return name

    @field_validator("producer")
    @classmethod
    def _known_options(cls, producer: dict[str, str]) -> dict[str, str]:
        raise_any(check_producer(producer))
        return producer

    @model_validator(mode="after")
    def _topics_keep_apart(self) -> FlowConfig:
        names = [shape_of(expression).meant for expression in self.topics.expressions]
        merges = self.policy.template is not None and TemplatePolicy(self.policy.template).merges_topics
        if merges and (len(names) > 1 or None in names):
            problem = (
                f"'{self.policy.template}' gives all topics of the flow the same name, and `topics` may select several"
            )
            remedy = "put {topic} into the template, or write a flow for each topic"
            raise finding_error(SettingsFault(("policy",), f"{problem}: their records would be mixed", remedy))
        return self

    @model_validator(mode="after")
    def _syncs_keep_partitions(self) -> FlowConfig:
        if self.mm2.offset_syncs and self.placement.kind != "keep":
            raise finding_error(
                SettingsFault(
                    ("mm2", "offset_syncs"),
                    "an offset sync of MirrorMaker 2 holds one partition number for both clusters, and `placement` changes it",
                    "leave offset_syncs out; `mirrorlake offsets` and `groups` translate exactly without it",
                )
            )
        return self

    @cached_property
    def selection(self) -> TopicMatcher:
        """The matcher for source topics; internal topics never match."""
        return TopicMatcher(self.topics, self.exclude_topics)

    @cached_property
    def group_selection(self) -> NameMatcher:
        """The matcher for consumer groups."""
        return NameMatcher(self.groups, self.exclude_groups)

    @cached_property
    def replication_policy(self) -> ReplicationPolicy:
        """The policy that names topics on the target."""
        return self.policy.build(self.source)

    @property
    def mm2_names(self) -> Mm2Names:
        """The names of MirrorMaker 2's own topics for this flow."""
        return Mm2Names(self.policy.separator, self.mm2.separator_in_internal)

    def remote_topic(self, topic: str) -> str:
        """Return the topic's name on the target, which Kafka need not accept."""
        return self.replication_policy.remote_topic(self.source, self.target, topic)

    def bound_to(self, never_leave: TopicPattern, *, adds_hops: bool) -> FlowConfig:
        """Return a copy of the flow with the denials and provenance of a file.

        Law: `never_leave` fails closed. A flow without known denials denies everything.
        """
        bound = self.model_copy()
        bound._never_leave, bound._adds_hops = never_leave, adds_hops  # noqa: SLF001  a copy that nobody has seen
        return bound

    @property
    def adds_hops(self) -> bool:
        """Whether the flow appends provenance headers (`model/loops/hops.py`)."""
        return self._adds_hops

    def may_share(self, other: FlowConfig) -> bool:
        """Return whether two flows may write one remote topic: both merge by template."""
        return merges_sources(self) and merges_sources(other)

    def denies(self, topic: str) -> bool:
        """Return whether the source's `never_leave` denies the topic, whatever the flow selects."""
        if self._never_leave is None:
            return True
        return bool(self._never_leave) and NameMatcher(self._never_leave).matches(topic)

    def carries(self, topic: str) -> bool:
        """Return whether the flow mirrors the topic: selected, not denied, not known to come from the target."""
        return (
            self.selection.matches(topic)
            and not self.denies(topic)
            and not is_cycle(self.replication_policy, topic, self.target)
        )

    @property
    def redrive_name(self) -> str:
        """The name of the flow's redrive, which has its own ledger."""
        return f"{self.name}{_REDRIVE}"

    def redrive(self) -> FlowConfig:
        """Return the redrive, which sends quarantined records again: one lane and its own ledger."""
        return self.model_copy(update={"name": self.redrive_name, "lanes": 1})

    @property
    def ledger_topic(self) -> str:
        """The name of the flow's ledger on the target."""
        return ledger_topic(self.name)

    def __repr_args__(self) -> Any:
        yield from masked(super().__repr_args__(), "producer")
