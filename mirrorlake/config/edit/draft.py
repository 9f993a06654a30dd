"""Edit the text of a settings file; comments and references stay as their author wrote them.

A draft never contains a secret, only references: `${env:NAME}` or `${secret:scope/key}`. An edit returns another draft, whose
text differs only in the fields that the form changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from mirrorlake.config.document import read
from mirrorlake.config.edit.cluster_fields import read_cluster, write_cluster
from mirrorlake.config.edit.flow_fields import BLANK_FLOW, flow_name, read_flow, write_flow
from mirrorlake.config.edit.yaml_text import (
    YamlText,
    append,
    own,
    put,
    put_below,
    remove,
    remove_with_comment,
    sections,
)
from mirrorlake.config.loading import loads
from mirrorlake.config.schema.cluster import ClusterConfig
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.mirror import MirrorConfig

_NEW = "lake:\n  root: ./lake\n\nclusters:\n\nflows:\n"


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The text of an edited settings file; relative paths count from the folder of `path`.

    Example:
        >>> draft = Draft()
        >>> draft = draft.with_flow({**BLANK_FLOW, "source": "east", "target": "west", "topics": "orders"})
        >>> print(draft.text.split("flows:")[1])
        <BLANKLINE>
          - source: east
            target: west
            topics: orders
        <BLANKLINE>
    """

    text: str = _NEW
    path: Path | None = None

    @classmethod
    def of(cls, text: str, *, path: Path | None = None) -> Draft:
        """Return the draft of a settings file without secrets (`without_secrets`)."""
        loads(text)
        return cls(text=str(YamlText(text)), path=path)

    def config(self) -> MirrorConfig:
        config = loads(self.text)
        if self.path is not None:
            config.read_from(self.path, self.text)
        return config

    @cached_property
    def root(self) -> str | None:
        """The lake's root, or None on a catalog."""
        lake = self._document["lake"]
        return None if "catalog" in lake else lake.get("root", "")

    @cached_property
    def clusters(self) -> dict[str, dict[str, str]]:
        return {str(alias): read_cluster(node) for alias, node in (self._document["clusters"] or {}).items()}

    @cached_property
    def lakes(self) -> tuple[str, ...]:
        """The aliases of the lake clusters, which no form writes."""
        return tuple(str(alias) for alias, node in self._document["clusters"].items() if node.get("kind") == "lake")

    @cached_property
    def flows(self) -> dict[str, dict[str, Any]]:
        nodes = self._document["flows"] or ()
        return {name: read_flow(flow, node) for (name, flow), node in zip(self._flows.items(), nodes, strict=True)}

    def flow(self, name: str) -> FlowConfig:
        return self._flows[name]

    def cluster(self, alias: str) -> ClusterConfig:
        """Return a cluster's settings, checked as the source of a flow."""
        other = "other-end" if alias != "other-end" else "other"
        clusters = {alias: self._document["clusters"][alias], other: {"bootstrap_servers": "127.0.0.1:9092"}}
        flow = {"source": alias, "target": other, "topics": ".*"}
        return loads(sections({"lake": {"root": "./lake"}, "clusters": clusters, "flows": [flow]})).cluster(alias)

    def free_name(self, fields: Mapping[str, Any], *, of: str = "") -> str | None:
        """Return a free name if another flow has the form's name; None if the name is free or that of `of`."""
        taken, name = self.flows.keys() - {of}, flow_name(fields)
        if name not in taken:
            return None
        return next(free for number in count(2) if (free := f"{name}-{number}") not in {*taken, of})

    def with_root(self, root: str) -> Draft:
        return self if root == self.root else self._edited(lambda file: put(file["lake"], "root", root))

    def with_cluster(self, alias: str, fields: Mapping[str, str], *, of: str = "") -> Draft:
        """Change a cluster, or add one: a copy of `of`, or a cluster with only these fields."""

        def edit(file: CommentedMap) -> None:
            known = file["clusters"] or {}
            if alias in known:
                write_cluster(own(known, alias), alias, fields)
            else:
                node = CommentedMap(deepcopy(dict(known[of]))) if of in known else CommentedMap()
                write_cluster(node, alias, fields)
                put_below(file, "clusters", alias, node)

        return self if fields == self.clusters.get(alias) else self._edited(edit)

    def without_cluster(self, alias: str) -> Draft:
        return self._edited(lambda file: remove(file["clusters"], alias))

    def with_flow(self, fields: Mapping[str, Any], *, of: str = "") -> Draft:
        """Change the flow `of`, or add one: a copy of `of` under another name, or a flow with only these fields."""
        before = self.flows.get(of, BLANK_FLOW)

        def edit(file: CommentedMap) -> None:
            place = list(self.flows).index(of) if of in self.flows else None
            if place is not None and flow_name(fields) == of:
                write_flow(file["flows"][place], fields, before)
                return
            # Another name is another ledger: an edit does not remove the flow of the old name.
            node = CommentedMap() if place is None else YamlText(self.text).root["flows"][place]
            write_flow(node, fields, before)
            if file.get("flows"):
                append(file["flows"], node)
            else:
                put(file, "flows", [node])

        return self if fields == before else self._edited(edit)

    def without_flows(self, names: Collection[str]) -> Draft:
        def edit(file: CommentedMap) -> None:
            # From the end, so that the earlier positions stay valid.
            for place, name in reversed(list(enumerate(self.flows))):
                if name in names:
                    remove_with_comment(file["flows"], place)

        return self._edited(edit) if names else self

    def _edited(self, edit: Callable[[CommentedMap], None]) -> Draft:
        document = YamlText(self.text)
        edit(document.root)
        return replace(self, text=str(document))

    @cached_property
    def _flows(self) -> dict[str, FlowConfig]:
        flows = map(FlowConfig.model_validate, read(self.text, "settings").data["flows"] or ())
        return {flow.name: flow for flow in flows}

    @cached_property
    def _document(self) -> CommentedMap:
        return YamlText(self.text).root
