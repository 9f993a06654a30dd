"""The settings as typed, frozen values (DESIGN 6). Unknown keys are errors; `conf/example.yml` shows every key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from mirrorlake.config import secrets, values
from mirrorlake.config.base import Count, Exclusion, Interval, Options, Settings, Size, masked
from mirrorlake.config.checks import End, check_denied, check_ends, check_routes
from mirrorlake.config.client.options import check_client
from mirrorlake.config.faults import SettingsFault, closest, fault_error, raise_any
from mirrorlake.config.schema.flow import FlowConfig, Mm2Config
from mirrorlake.config.schema.lake_cluster import LakeTopicConfig, topics_by_name
from mirrorlake.config.schema.maintenance import MaintenanceConfig
from mirrorlake.config.schema.metrics import MetricsConfig
from mirrorlake.config.schema.retention import RetentionConfig, by_pattern, retention_of
from mirrorlake.config.schema.route import denied_from
from mirrorlake.config.schema.sampling import SamplingConfig
from mirrorlake.config.schema.storage import StorageConfig
from mirrorlake.config.schema.sync import SyncConfig
from mirrorlake.config.schema.tracking import TrackingConfig
from mirrorlake.config.schema.verify import VerifyConfig
from mirrorlake.errors import ConfigError, Fault, UsageError
from mirrorlake.model.patterns import TopicPattern, subscribe_pattern
from mirrorlake.model.policy import DEFAULT_SEPARATOR

__all__ = [
    "ClusterConfig",
    "FlowConfig",
    "LakeConfig",
    "LakeTopicConfig",
    "LandConfig",
    "MaintenanceConfig",
    "MetricsConfig",
    "MirrorConfig",
    "Mm2Config",
    "SamplingConfig",
    "SyncConfig",
    "VerifyConfig",
]


class LakeConfig(Settings):
    """Where the relay lives: a path, or a catalog and schema with a place for checkpoint locations."""

    root: str | None = Field(
        default=None, description="any path Spark can write; a relative one stands beside this file"
    )
    catalog: str | None = Field(default=None, description="a Unity Catalog catalog, instead of root")
    schema_name: str | None = Field(default=None, alias="schema", description="the schema in the catalog")
    checkpoints: str | None = Field(default=None, description="a volume path for checkpoint locations, with catalog")
    storage: StorageConfig | None = Field(
        default=None, description="how an object store of root is reached without Spark: {region: ...}"
    )

    @model_validator(mode="after")
    def _one_place(self) -> LakeConfig:
        findings = []
        named = {"catalog": self.catalog, "schema": self.schema_name, "checkpoints": self.checkpoints}
        given = [key for key, value in named.items() if value]
        if self.root and given:
            findings = [SettingsFault((key,), f"'{key}' beside 'root'", "keep either root or catalog") for key in given]
        elif not self.root and not given:
            findings = [
                SettingsFault((), "no place for the relay", "add `root:` or `catalog:`, `schema:` and `checkpoints:`")
            ]
        elif not self.root:
            missing = [key for key, value in named.items() if not value]
            findings = [SettingsFault((), f"'{key}' is missing", f"add `{key}:` beside {given[0]}") for key in missing]
        if self.storage is not None and not secrets.has_reference(self.root or ""):
            findings += self.storage.faults_of(self.root or "")
        raise_any(findings)
        return self

    def store(self) -> tuple[str, dict[str, str]] | None:
        """Return the address of the object store that `storage` tells how to reach, and its settings by name.

        Raises:
            ConfigError: a reference cannot be resolved, or resolves to something that is not on an object store.
        """
        root = self.location()
        if self.storage is None or root is None:
            return None
        for fault in self.storage.faults_of(root):
            raise ConfigError([Fault(self.file, f"{self.place}.storage", fault.problem, fault.remedy)])
        given = self.storage.values_of(root.partition(":")[0])
        return root, {key: self.resolved(value, f"storage.{key}") for key, value in given.items()}

    def location(self) -> str | None:
        """Return the root, absolute: a relative one stands beside the settings file; None on a catalog.

        Example:
            >>> mirror.config.lake.location()  # doctest: +SKIP
            '/home/me/project/lake'
        """
        if self.root is None:
            return None
        root = self.resolved(self.root, "root")
        return root.rstrip("/") if ":/" in root else self.beside_file(root)

    def folder(self) -> Path | None:
        """Return the root where it is a folder of this machine."""
        root = self.location()
        return None if root is None or _is_elsewhere(root) else Path(root)

    def namespace(self) -> tuple[str, str] | None:
        """Return (catalog, schema) with references resolved; None on a path."""
        if self.catalog is None or self.schema_name is None:
            return None
        return self.resolved(self.catalog, "catalog"), self.resolved(self.schema_name, "schema")

    def checkpoint_location(self) -> str:
        """Return the folder for checkpoint locations: `<root>/checkpoints`, or what `checkpoints` says."""
        if self.checkpoints is not None:
            place = self.resolved(self.checkpoints, "checkpoints")
            return place if ":/" in place else self.beside_file(place)
        return f"{self.location()}/checkpoints"


def _is_elsewhere(root: str) -> bool:
    # Databricks mounts object stores below these; a sqlite file cannot be locked there.
    return ":/" in root or root.startswith(("/Volumes/", "/dbfs/", "/Workspace/"))


class LandConfig(Settings):
    """How the topics of one source cluster are landed."""

    on_gap: Literal["halt", "record"] = Field(
        default="halt", description="what to do when source records were lost (law E)"
    )
    max_records_per_batch: Count = Field(default=2_000_000, description="records a batch may hold")
    max_bytes_per_batch: Size | None = Field(default=None, description="bytes a batch may hold")
    trigger: Interval = Field(default=timedelta(0), description="time between the starts of two batches")
    live: bool = Field(default=True, description="always on, land by a long-lived task where the lake is a folder")


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

    `client` holds Java or librdkafka names, one spelling serves both clients.
    """

    kind: Literal["kafka", "lake"] = Field(default="kafka", description="kafka, or lake: applications publish into it")
    bootstrap_servers: Annotated[tuple[str, ...], BeforeValidator(_addresses)] = Field(
        default=None, validate_default=True, description="host:port of one or more brokers"
    )
    client: Options = Field(default_factory=dict, description="client options: TLS, SASL, timeouts")
    never_leave: Exclusion = Field(default=TopicPattern(), description="topics that no flow may take from this cluster")
    land: LandConfig = Field(default_factory=LandConfig, description="how its topics are landed")
    retention: Annotated[dict[str, RetentionConfig], BeforeValidator(by_pattern)] = Field(
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
            why, remedy = "means nothing on a lake cluster, which has no brokers", "leave it out"
            if self.retention:
                problem = "'retention' is not kept on a lake cluster: its relay's history tells what was published"
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
        """Return whether applications publish into it, and no broker stands behind it."""
        return self.kind == "lake"

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic of a lake cluster has by these settings."""
        own = self.topics[topic].partitions if topic in self.topics else None
        return own or self.partitions

    @field_validator("client")
    @classmethod
    def _known_options(cls, client: dict[str, str]) -> dict[str, str]:
        raise_any(check_client(client))
        return client

    @property
    def alias(self) -> str:
        """Return the name this cluster has in the settings; empty outside of any."""
        return self.place.removeprefix("clusters.")

    def retention_of(self, topic: str) -> RetentionConfig | None:
        """Find the retention of a topic in its relay: the first pattern that matches counts; None keeps it for ever."""
        return retention_of(self.retention, topic)

    def servers(self) -> str:
        """Return `host:port,…` with references resolved.

        Raises:
            ConfigError: a reference cannot be resolved, or resolves to something else than addresses.
        """
        found = ",".join(self.resolved(address, "bootstrap_servers") for address in self.bootstrap_servers)
        if not values.are_addresses(found):
            problem = "the reference resolves to something that is not a list of host:port"
            raise ConfigError([Fault(self.file, f"{self.place}.bootstrap_servers", problem, 'set it to "host:9092"')])
        return found

    def __repr_args__(self) -> Any:
        yield from masked(super().__repr_args__(), "client")


class MirrorConfig(Settings):
    """The whole settings file.

    Example:
        >>> from mirrorlake.config.loading import loads
        >>> config = loads('''
        ... lake: {root: ./lake}
        ... clusters: {east: {bootstrap_servers: "east:9092"}, central: {bootstrap_servers: "central:9092"}}
        ... flows: [{source: east, target: central, topics: "orders, clicks.*"}]
        ... ''')
        >>> config.flow("east->central").remote_topic("orders")
        'east.orders'
    """

    lake: LakeConfig = Field(description="where the relay lives")
    clusters: Annotated[dict[str, ClusterConfig], BeforeValidator(values.filled)] = Field(
        description="alias: {bootstrap_servers: ...}"
    )
    flows: Annotated[tuple[FlowConfig, ...], BeforeValidator(values.filled)] = Field(
        description="a list of {source, target, topics}"
    )
    maintenance: MaintenanceConfig = Field(default_factory=MaintenanceConfig, description="how the lake is kept small")
    metrics: MetricsConfig = Field(default_factory=MetricsConfig, description="figures for Prometheus")
    sampling: SamplingConfig = Field(default_factory=SamplingConfig, description="positions over time")

    verify: VerifyConfig = Field(default_factory=VerifyConfig, description="proving while running")

    tracking: TrackingConfig = Field(default_factory=TrackingConfig, description="where runs are logged")

    _path: Path | None = PrivateAttr(default=None)
    _text: str = PrivateAttr(default="")

    @field_validator("flows")
    @classmethod
    def _flows_know_the_file(cls, flows: tuple[FlowConfig, ...], info: ValidationInfo) -> tuple[FlowConfig, ...]:
        clusters: Mapping[str, ClusterConfig] = info.data.get("clusters", {})
        # What is wrong with ends is said beside all other faults; the flows of such a file deny everything.
        if not clusters or check_ends(_ends(flows), clusters):
            return flows
        bound = bound_flows(flows, clusters)
        tracing = check_routes(list(enumerate(bound)))[0].provenance
        return bound_flows(flows, clusters, tracing=tracing) if tracing else bound

    @model_validator(mode="after")
    def _fits_together(self) -> MirrorConfig:
        findings = check_ends(_ends(self.flows), self.clusters, lakes=self.lake_clusters)
        if not findings:
            placed = list(enumerate(self.flows))
            findings = check_denied(placed) + check_routes(placed)[1]
        is_placed = self.tracking.uri is not None or not (self.lake.root is None or _is_elsewhere(self.lake.root))
        if self.tracking.enabled is True and not is_placed:
            no_place = "the lake is not a folder of this machine, so there is no place for a sqlite file"
            findings.append(
                SettingsFault(("tracking", "uri"), no_place, "write the tracking URI of a server, or databricks")
            )
        if self.lake.storage is not None:
            findings += [
                SettingsFault(
                    ("clusters", alias, "retention"),
                    "'retention' is kept only where the lake is a folder",
                    "leave it out: on an object store nothing leaves a relay",
                )
                for alias, cluster in self.clusters.items()
                if cluster.retention
            ]
        raise_any(findings)
        self.read_from(None)
        return self

    def bind(self, flow: FlowConfig) -> FlowConfig:
        """Bind a flow to the denials of this file, although it need not be in it, for a replay or a drill."""
        return flow.bound_to(self.never_leave(flow.source), adds_hops=flow.adds_hops)

    def with_flow(self, flow: FlowConfig) -> MirrorConfig | None:
        """Make the same settings with one flow more, for the time of one command.

        None where the file could not hold it, or where its other flows would have to do otherwise beside it: whoever runs them
        knows nothing of it.
        """
        flows = (*self.flows, flow)
        tracing = {each.name for each in self.flows if each.adds_hops}
        placed = list(enumerate(bound_flows(flows, self.clusters, tracing=tracing)))
        survey, faults = check_routes(placed)
        is_known = any(each.name == flow.name for each in self.flows)
        if is_known or faults or check_denied(placed) or set(survey.provenance) != tracing:
            return None
        made = self.model_copy(update={"flows": tuple(each for _, each in placed)})
        made.read_from(self._path, self._text)
        return made

    def never_leave(self, alias: str) -> TopicPattern:
        """Return the topics that may not leave a cluster, those among them that came from a cluster that denies them."""
        return never_leave(alias, self.clusters, self.flows)

    def read_from(self, path: Path | None, text: str = "") -> None:
        """Tell every part which file and place it came from, for errors at the edge."""
        self._path, self._text = path, text
        folder = None if path is None else path.absolute().parent
        parts: list[tuple[str, Settings]] = [("lake", self.lake), ("sampling", self.sampling)]
        parts += [("tracking", self.tracking)]
        parts += [(f"clusters.{alias}", cluster) for alias, cluster in self.clusters.items()]
        parts += [(f"flows[{index}]", flow) for index, flow in enumerate(self.flows)]
        for place, part in parts:
            part.note_origin(str(path or "settings"), place, folder)

    @property
    def path(self) -> Path | None:
        """Return the file these settings were read from, if any."""
        return self._path

    @property
    def text(self) -> str:
        """Return the YAML these settings were read from, which may hold secrets; empty where they were not."""
        return self._text

    @property
    def lake_clusters(self) -> tuple[str, ...]:
        """Return the aliases of the clusters that applications publish into, sorted."""
        return tuple(sorted(alias for alias, cluster in self.clusters.items() if cluster.is_lake))

    def lake_cluster(self, alias: str | None) -> str:
        """Return the alias if it is a lake cluster's; None stands for the only one.

        Raises:
            UsageError: it is not, or None could be several; lists the lake clusters.
        """
        known = self.lake_clusters
        if alias in known or (alias is None and len(known) == 1):
            return alias or known[0]
        problem = f"'{alias}' is not a lake cluster" if alias else f"there are {len(known) or 'no'} lake clusters"
        remedy = f"name one of: {', '.join(known)}" if known else "add a cluster with `kind: lake` to the settings"
        raise UsageError(problem, consequence="nothing was published", remedy=remedy)

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the aliases that are a source of some flow, sorted."""
        return tuple(sorted({flow.source for flow in self.flows}))

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the aliases that are a target of some flow, sorted."""
        return tuple(sorted({flow.target for flow in self.flows}))

    def flow(self, name: str) -> FlowConfig:
        """Return the flow of this name. Raises UsageError: there is none; lists the names."""
        for flow in self.flows:
            if flow.name == name:
                return flow
        names = [flow.name for flow in self.flows]
        raise UsageError(f"there is no flow '{name}'", remedy=_one_of(name, names), flow=name)

    def cluster(self, alias: str) -> ClusterConfig:
        """Return the cluster of this alias. Raises UsageError: there is none; lists the aliases."""
        if alias not in self.clusters:
            raise UsageError(f"there is no cluster '{alias}'", remedy=_one_of(alias, self.clusters), alias=alias)
        return self.clusters[alias]

    def flows_from(self, alias: str) -> tuple[FlowConfig, ...]:
        """Return the flows whose source is this cluster."""
        return tuple(flow for flow in self.flows if flow.source == alias)

    def flows_to(self, alias: str) -> tuple[FlowConfig, ...]:
        """Return the flows whose target is this cluster."""
        return tuple(flow for flow in self.flows if flow.target == alias)

    def subscribe_pattern(self, alias: str) -> str:
        """Build the pattern that Spark subscribes to on this source: every topic that some flow selects and that may leave."""
        denied = self.never_leave(alias).expressions
        return subscribe_pattern(
            *(
                (flow.topics, TopicPattern((*flow.exclude_topics.expressions, *denied)))
                for flow in self.flows_from(alias)
            )
        )


def _one_of(word: str, known: Iterable[str]) -> str:
    names = list(known)
    return f"{closest(word, names)}name one of: {', '.join(names)}"


def _ends(flows: Iterable[FlowConfig]) -> list[End]:
    return [End(index, flow.name, flow.source, flow.target) for index, flow in enumerate(flows)]


def bound_flows(
    flows: Iterable[FlowConfig], clusters: Mapping[str, ClusterConfig], *, tracing: Collection[str] = ()
) -> tuple[FlowConfig, ...]:
    """Make the flows of a file with what the file says of each: the denials, and whether it is one of the `tracing`."""
    flows = tuple(flows)
    return tuple(
        flow.bound_to(never_leave(flow.source, clusters, flows), adds_hops=flow.name in tracing) for flow in flows
    )


def never_leave(alias: str, clusters: Mapping[str, ClusterConfig], flows: Iterable[FlowConfig]) -> TopicPattern:
    """Collect the topics that may not leave a cluster from all clusters' denials and the separators of these flows."""
    denied = {each: cluster.never_leave for each, cluster in clusters.items() if cluster.never_leave}
    separators = {flow.policy.separator for flow in flows if flow.policy.template is None}
    return denied_from(alias, denied, {DEFAULT_SEPARATOR, *separators})
