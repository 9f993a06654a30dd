"""Display settings: addresses and choices, client options by name only, references unresolved."""

from __future__ import annotations

import re

from mirrorlake.config.fingerprint import plain
from mirrorlake.config.schema.cluster import ClusterConfig
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.secrets import MASK
from mirrorlake.render import Sheet, plural, table

# The columns of flows in `Mirror.sheet`.
_FLOW = ("flow", "topics", "policy", "groups", "delivery", "start", "lanes")
# Old addresses of object stores contain keys, signed ones after a question mark.
_KEYS = re.compile(r"(?<=://)[^/@]*:[^/@]*(?=@)|(?<=\?).*")


def mirror_sheet(config: MirrorConfig) -> Sheet:
    columns = ["cluster", "kind", "bootstrap servers", "client options", "source of", "target of"]
    clusters = [
        (
            alias,
            cluster.kind,
            cluster.bootstrap_servers or None,
            sorted(cluster.client) or None,
            [flow.name for flow in config.flows_from(alias)] or None,
            [flow.name for flow in config.flows_to(alias)] or None,
        )
        for alias, cluster in config.clusters.items()
    ]
    return Sheet(
        title="Mirror",
        facts=(plural(len(config.flows), "flow"), plural(len(clusters), "cluster"), *_from(config)),
        parts=(
            table("", list(_FLOW), [_flow_row(flow) for flow in config.flows]),
            table("", columns, clusters),
            f"lake: {_lake(config)}",
        ),
    )


def flow_sheet(config: MirrorConfig, flow: FlowConfig) -> Sheet:
    said = dict(plain(config)["flows"][flow.name])
    for known in ("name", "source", "target"):
        said.pop(known, None)
    if "producer" in said:
        said["producer"] = sorted(said["producer"])
    ends = [(alias, config.clusters[alias]) for alias in (flow.source, flow.target)]
    return Sheet(
        title=flow.name,
        facts=(f"{flow.delivery} delivery", plural(flow.lanes, "lane"), *_from(config)),
        parts=(
            table(
                "",
                ["setting", "value"],
                [
                    *(
                        (end, f"{alias} ({_address(one)})")
                        for end, (alias, one) in zip(("source", "target"), ends, strict=True)
                    ),
                    *said.items(),
                ],
            ),
        ),
    )


def _flow_row(flow: FlowConfig) -> tuple[object, ...]:
    policy, start = flow.policy.plain(), flow.start.plain()
    return flow.name, flow.topics.expressions, policy, flow.groups.expressions, flow.delivery, start, flow.lanes


def _from(config: MirrorConfig) -> tuple[str, ...]:
    return () if config.path is None else (f"from {config.path}",)


def _address(cluster: ClusterConfig) -> str:
    return "lake cluster" if cluster.is_lake else ", ".join(cluster.bootstrap_servers)


def _lake(config: MirrorConfig) -> str:
    lake = config.lake
    if lake.root is None:
        return f"{lake.catalog}.{lake.schema_name}"
    return _KEYS.sub(MASK, lake.root) if ":/" in lake.root or "${" in lake.root else lake.beside_file(lake.root)
