"""The settings as typed, frozen values. Unknown keys are errors; `conf/example.yml` shows every key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from mirrorlake.config import values
from mirrorlake.config.base import Settings
from mirrorlake.config.checks import check_aliases, check_denied, check_flows, check_routes
from mirrorlake.config.faults import Place, SettingsFault, closest, raise_any
from mirrorlake.config.schema.background import MaintenanceConfig, MetricsConfig, SamplingConfig, VerifyConfig
from mirrorlake.config.schema.cluster import ClusterConfig, LandConfig
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.lake import LakeConfig, is_elsewhere
from mirrorlake.config.schema.tables import IN_REGISTRY, TableConfig
from mirrorlake.config.schema.tracking import TrackingConfig
from mirrorlake.errors import UsageError
from mirrorlake.model.patterns import TopicPattern, subscribe_pattern
from mirrorlake.model.policy import DEFAULT_SEPARATOR
from mirrorlake.model.regex import tokens


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

    lake: LakeConfig = Field(description="the location of the lake")
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

    tables: tuple[TableConfig, ...] = Field(default=(), description="typed tables of topics' records")

    tracking: TrackingConfig = Field(default_factory=TrackingConfig, description="where runs are logged")

    _path: Path | None = PrivateAttr(default=None)
    _text: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _fits_together(self) -> MirrorConfig:
        """Check across the parts, and bind the flows to the denials and the provenance headers of the file."""
        flows = bound_flows(self.flows, self.clusters)
        routes, between = check_routes(flows)
        findings = check_aliases(self.clusters) + check_flows(flows, self.clusters, lakes=self.lake_clusters)
        findings += [*check_denied(flows), *between, *_live_on_catalog(self), *_table_faults(self)]
        is_placed = self.tracking.uri is not None or not (self.lake.root is None or is_elsewhere(self.lake.root))
        if self.tracking.enabled is True and not is_placed:
            no_place = "the lake is not a folder of this machine, so it cannot hold a sqlite file"
            remedy = "write the tracking URI of a server, or databricks"
            findings.append(SettingsFault(("tracking", "uri"), no_place, remedy))
        raise_any(findings)
        # The flows of other settings, which may share these objects, keep their own denials.
        self.__dict__["flows"] = bound_flows(flows, self.clusters, tracing=routes.provenance)
        self.read_from(None)
        return self

    def bind(self, flow: FlowConfig) -> FlowConfig:
        """Return a flow bound to the denials of this file; the file need not contain it (replay, drill)."""
        return flow.bound_to(self.never_leave(flow.source), adds_hops=flow.adds_hops)

    def without_registry(self, table: TableConfig, sources: Iterable[str]) -> list[str]:
        """Return the sources whose schema registry a typed table needs and nobody names."""
        if table.registry is not None or {table.values, table.keys}.isdisjoint(IN_REGISTRY):
            return []
        return [alias for alias in sources if alias in self.clusters and self.clusters[alias].registry is None]

    def never_leave(self, alias: str) -> TopicPattern:
        """Return the topics that may not leave a cluster, also those that came from a cluster that denies them."""
        return never_leave(alias, self.clusters, self.flows)

    def read_from(self, path: Path | None, text: str = "") -> None:
        """Record the file and path of every part, for later errors."""
        self._path, self._text = path, text
        folder = None if path is None else path.absolute().parent
        parts: dict[str, Settings | None] = {"lake": self.lake, "sampling": self.sampling, "tracking": self.tracking}
        parts |= {f"flows[{index}]": flow for index, flow in enumerate(self.flows)}
        with_registry: dict[str, ClusterConfig | TableConfig] = {
            **{f"clusters.{alias}": cluster for alias, cluster in self.clusters.items()},
            **{f"tables[{index}]": table for index, table in enumerate(self.tables)},
        }
        for place, owner in with_registry.items():
            parts |= {place: owner, f"{place}.registry": owner.registry}
        for place, part in parts.items():
            if part is not None:
                part.note_origin(str(path or "settings"), place, folder)

    @property
    def path(self) -> Path | None:
        """The file of these settings, or None."""
        return self._path

    @property
    def text(self) -> str:
        """The YAML of these settings, which may contain secrets; "" without one."""
        return self._text

    @property
    def lake_clusters(self) -> tuple[str, ...]:
        """The aliases of the lake clusters, sorted."""
        return tuple(sorted(alias for alias, cluster in self.clusters.items() if cluster.is_lake))

    def lake_cluster(self, alias: str | None) -> str:
        """Return the alias if it is a lake cluster's; None selects the only one.

        Raises:
            UsageError: it is not, or None is ambiguous; lists the lake clusters.
        """
        known = self.lake_clusters
        if alias in known or (alias is None and len(known) == 1):
            return alias or known[0]
        problem = f"'{alias}' is not a lake cluster" if alias else f"there are {len(known) or 'no'} lake clusters"
        remedy = f"name one of: {', '.join(known)}" if known else "add a cluster with `kind: lake` to the settings"
        raise UsageError(problem, consequence="nothing was published", remedy=remedy)

    @property
    def sources(self) -> tuple[str, ...]:
        """The aliases of the flows' sources, sorted."""
        return tuple(sorted({flow.source for flow in self.flows}))

    @property
    def targets(self) -> tuple[str, ...]:
        """The aliases of the flows' targets, sorted."""
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
        """Return Spark's subscribe pattern for this source: every topic that a flow selects and that may leave."""
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


def _live_on_catalog(config: MirrorConfig) -> list[SettingsFault]:
    """Return the faults of live tasks on a catalog: only Spark reads and writes its tables."""
    if config.lake.root is not None:
        return []
    parts: list[tuple[Place, LandConfig | FlowConfig]] = [
        (("clusters", alias, "land"), cluster.land) for alias, cluster in config.clusters.items()
    ]
    parts += [(("flows", index), flow) for index, flow in enumerate(config.flows)]
    problem = "live tasks read and write files, and the tables of a catalog are Spark's alone"
    return [
        SettingsFault((*place, "execution"), problem, "leave it out: on a catalog it is streaming")
        for place, part in parts
        if "execution" in part.model_fields_set and part.execution == "live"
    ]


def _table_faults(config: MirrorConfig) -> list[SettingsFault]:
    """Return the faults of typed tables: sources of no flow or without a registry, and two entries of one name."""
    unknown = [
        SettingsFault(
            ("tables", index, "sources", at), f"no flow has '{alias}' as its source", _one_of(alias, config.sources)
        )
        for index, one in enumerate(config.tables)
        for at, alias in enumerate(one.sources)
        if alias not in config.sources
    ]
    for index, one in enumerate(config.tables):
        unknown += [*_through_faults(config, index, one), *_format_faults(config, index, one)]
    names = [one.name.lower() for one in config.tables]
    return unknown + [
        SettingsFault(
            ("tables", index, "name"),
            f"a second table '{one.name}'",
            "give each entry a name of its own, or name the topics of both in one entry",
        )
        for index, one in enumerate(config.tables)
        if "{" not in one.name and names[index] in names[:index]
    ]


def _through_faults(config: MirrorConfig, index: int, table: TableConfig) -> list[SettingsFault]:
    """Return the faults of a table's rules: no such flow, or a source whose records would pass without rules."""
    names = [flow.name for flow in config.flows]
    unknown = [
        SettingsFault(("tables", index, "through"), f"there is no flow '{name}'", _one_of(name, names))
        for name in table.through
        if name not in names
    ]
    covered = {flow.source for flow in config.flows if flow.name in table.through}
    bare = [alias for alias in table.sources or config.sources if alias not in covered]
    if unknown or not table.through or not bare:
        return unknown
    problem = f"records of {', '.join(bare)} would be rows without rules"
    remedy = "name a flow from each source there, or the covered ones under `sources:`"
    return [SettingsFault(("tables", index, "through"), problem, remedy)]


def _format_faults(config: MirrorConfig, index: int, table: TableConfig) -> list[SettingsFault]:
    """Return the faults of formats whose schemas no registry has.

    Of an entry for all sources one registry is enough: its topics may be those of that source only.
    """
    bare = config.without_registry(table, table.sources or config.sources)
    if not bare or (not table.sources and len(bare) < len(config.sources)):
        return []
    problem = f"these records name schemas, and no schema registry of {', '.join(bare)} is known"
    remedy = f"write `registry: {{url: ...}}` beside it, or in clusters.{bare[0]}"
    keys = [key for key in ("values", "keys") if getattr(table, key) in IN_REGISTRY]
    return [SettingsFault(("tables", index, key), problem, remedy) for key in keys]


def bound_flows(
    flows: Iterable[FlowConfig], clusters: Mapping[str, ClusterConfig], *, tracing: Collection[str] = ()
) -> tuple[FlowConfig, ...]:
    """Return the flows bound to the denials of a file; flows in `tracing` write provenance headers."""
    flows = tuple(flows)
    return tuple(
        flow.bound_to(never_leave(flow.source, clusters, flows), adds_hops=flow.name in tracing) for flow in flows
    )


def never_leave(alias: str, clusters: Mapping[str, ClusterConfig], flows: Iterable[FlowConfig]) -> TopicPattern:
    """Return the topics that may not leave a cluster, from all clusters' denials and the flows' separators."""
    denied = {each: cluster.never_leave for each, cluster in clusters.items() if cluster.never_leave}
    separators = {flow.policy.separator for flow in flows if flow.policy.template is None}
    return denied_from(alias, denied, {DEFAULT_SEPARATOR, *separators})


def denied_from(alias: str, never_leave: Mapping[str, TopicPattern], separators: Iterable[str]) -> TopicPattern:
    r"""Return the topics that may not leave a cluster: its own denials, and topics from a cluster that denies them.

    A topic's origin is its prefix under the default policy, whatever policy the next flow has, so that no policy lifts a
    denial. `east.pii` stays on central if east denies `pii`.

    Example:
        >>> denied_from("central", {"east": TopicPattern(("pii",))}, ["."]).expressions
        ('(?:.*\\.)?east\\.(?:pii)',)
    """
    found = list(never_leave.get(alias, TopicPattern()).expressions)
    for origin, pattern in sorted(never_leave.items()):
        for separator in sorted(set(separators)):
            parted = separator.replace(".", r"\.")
            for expression in pattern.expressions:
                # `^pii$` means the whole name, and its anchors would never match after a hop.
                inner = "".join(token.text for token in tokens(expression) if token.text not in ("^", "$"))
                found.append(rf"(?:.*{parted})?{origin}{parted}(?:{inner})")
    return TopicPattern(tuple(dict.fromkeys(found)))
