"""Settings of one cluster and of landing its topics."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from mirrorlake.config import values
from mirrorlake.config.base import (
    Count,
    Exclusion,
    Execution,
    Interval,
    Options,
    Settings,
    Size,
    masked,
)
from mirrorlake.config.client.options import check_client
from mirrorlake.config.faults import SettingsFault, fault_error, raise_any
from mirrorlake.config.schema.lake_cluster import LakeTopicConfig, topics_by_name
from mirrorlake.config.schema.registry import RegistryConfig
from mirrorlake.config.schema.retention import RetentionConfig
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.errors import ConfigError, Fault
from mirrorlake.model.patterns import TopicPattern, parse_patterns


class LandConfig(Settings):
    """Settings of landing the topics of one source cluster."""

    on_gap: Literal["halt", "record"] = Field(
        default="halt", description="what to do when source records were lost (law E)"
    )
    max_records_per_batch: Count = Field(default=2_000_000, description="records a batch may hold")
    max_bytes_per_batch: Size | None = Field(default=None, description="bytes a batch may hold")
    trigger: Interval = Field(default=timedelta(0), description="time between the starts of two batches")
    execution: Execution = Field(default="live", description="live tasks, or Structured Streaming")
    tasks: Count | Literal["auto"] = Field(
        default=1, description="live tasks that share the partitions; auto: as many as its traffic wants, on a cluster"
    )


def _addresses(value: Any, info: ValidationInfo) -> tuple[str, ...]:
    kind = info.data.get("kind")
    if kind == "kafka" and value is None:
        raise fault_error(
            "'bootstrap_servers' is missing", "add `bootstrap_servers:` (host:port of one or more brokers)"
        )
    if kind == "lake" and value:
        raise fault_error("a lake cluster has no brokers", "leave it out, or write `kind: kafka`")
    return values.addresses(value) if value or kind == "kafka" else ()


class ClusterConfig(Settings):
    """One cluster: Kafka's brokers, or a lake cluster, which applications publish into (`kind: lake`).

    `client` has Java or librdkafka names; one spelling serves both clients.
    """

    kind: Literal["kafka", "lake"] = Field(default="kafka", description="kafka, or lake: applications publish into it")
    bootstrap_servers: Annotated[tuple[str, ...], BeforeValidator(_addresses)] = Field(
        default=None, validate_default=True, description="host:port of one or more brokers"
    )
    client: Options = Field(default_factory=dict, description="client options: TLS, SASL, timeouts")
    registry: RegistryConfig | None = Field(
        default=None, description="the schema registry of its topics: {url: ..., client: {...}}"
    )
    never_leave: Exclusion = Field(default=TopicPattern(), description="topics that no flow may take from this cluster")
    land: LandConfig = Field(default_factory=LandConfig, description="how its topics are landed")
    retention: Annotated[
        dict[str, RetentionConfig], BeforeValidator(lambda value: values.by_pattern(value, '{"clicks.*": {age: 90d}}'))
    ] = Field(
        default_factory=dict, description="{topic pattern: {age: 90d}}: what may leave its relay; default: nothing"
    )
    partitions: Count = Field(default=1, description="partition count of a lake cluster's topics")
    topics: Annotated[dict[str, LakeTopicConfig], BeforeValidator(topics_by_name)] = Field(
        default_factory=dict, description="a lake cluster's topics: {name: {partitions: 6, configs: {...}}}"
    )

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> ClusterConfig:
        if self.is_lake:
            other = {"client": bool(self.client), "land": self.land != LandConfig()}
            why, remedy = "has no effect on a lake cluster, which has no brokers", "leave it out"
            if self.retention:
                problem = "'retention' is not possible on a lake cluster: its relay's history shows what was published"
                raise_any([SettingsFault(("retention",), problem, "leave it out: its relay keeps all records")])
        else:
            other = {"partitions": self.partitions != 1, "topics": bool(self.topics)}
            why, remedy = (
                "is for lake clusters: a Kafka cluster has its own topics",
                "leave it out, or write `kind: lake`",
            )
        findings = [SettingsFault((key,), f"'{key}' {why}", remedy) for key, given in other.items() if given]
        raise_any(findings)
        return self

    @property
    def is_lake(self) -> bool:
        """Whether applications publish into it, without a broker."""
        return self.kind == "lake"

    def partitions_of(self, topic: str) -> int:
        """Return the partition count of a lake cluster's topic by these settings."""
        own = self.topics[topic].partitions if topic in self.topics else None
        return own or self.partitions

    @field_validator("client")
    @classmethod
    def _known_options(cls, client: dict[str, str]) -> dict[str, str]:
        raise_any(check_client(client))
        return client

    @property
    def alias(self) -> str:
        """The cluster's alias in the settings, or "" outside of settings."""
        return self.place.removeprefix("clusters.")

    def retention_of(self, topic: str) -> RetentionConfig | None:
        """Return the retention of a topic in its relay by the first matching pattern; None is unlimited."""
        found = (one for pattern, one in self.retention.items() if NameMatcher(parse_patterns(pattern)).matches(topic))
        return next(found, None)

    def servers(self) -> str:
        """Return `host:port,…` with references resolved.

        Raises:
            ConfigError: a reference cannot be resolved, or does not resolve to addresses.
        """
        found = ",".join(self.resolved(address, "bootstrap_servers") for address in self.bootstrap_servers)
        if not values.are_addresses(found):
            problem = "the reference resolves to something that is not a list of host:port"
            raise ConfigError([Fault(self.file, f"{self.place}.bootstrap_servers", problem, 'set it to "host:9092"')])
        return found

    def __repr_args__(self) -> Any:
        yield from masked(super().__repr_args__(), "client")
