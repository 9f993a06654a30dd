"""Check across the parts of the settings: existing aliases, unique names, flows without loops."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from mirrorlake.config.faults import SettingsFault, did_you_mean
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.model.flow import kafka_name
from mirrorlake.model.loops.collisions import Survey, survey
from mirrorlake.model.patterns import shape_of
from mirrorlake.model.policy import DefaultPolicy

# An alias becomes the name of a folder; a leading `-` looks like an option of a command.
_ALIAS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class End(NamedTuple):
    position: int
    name: str
    source: str
    target: str


Placed = Sequence[tuple[int, FlowConfig]]
"""The valid flows with their positions in the file."""


def check_ends(ends: Sequence[End], aliases: Iterable[str], *, lakes: Collection[str] = ()) -> list[SettingsFault]:
    known = tuple(aliases)
    remedy = "use letters, digits, _ and -, not - in front; dots separate the parts of remote topic names"
    found = [
        SettingsFault(("clusters", alias), f"'{alias}' is not an alias", remedy)
        for alias in known
        if not _ALIAS.fullmatch(alias)
    ]
    holders: dict[str, str] = {}
    for end in ends:
        for key, alias in (("source", end.source), ("target", end.target)):
            if alias not in known:
                problem = f"there is no cluster '{alias}'"
                found.append(SettingsFault(("flows", end.position, key), problem, did_you_mean(alias, known)))
        if end.source == end.target:
            problem = f"source and target are both '{end.source}'"
            found.append(SettingsFault(("flows", end.position, "target"), problem, "mirror to another cluster"))
        if end.target in lakes:
            problem = f"'{end.target}' is a lake cluster, which can only be a source"
            found.append(SettingsFault(("flows", end.position, "target"), problem, "mirror to a Kafka cluster"))
        holder = holders.setdefault(kafka_name(end.name), end.name)
        place = ("flows", end.position, "name")
        if any(other.name == end.name for other in ends if other.position < end.position):
            found.append(SettingsFault(place, f"a second flow '{end.name}'", "give each flow a name of its own"))
        elif holder != end.name:
            problem = f"'{end.name}' and '{holder}' are both '{kafka_name(end.name)}' in Kafka names"
            found.append(SettingsFault(place, problem, "rename one: they would share ledger and transactional ids"))
    return found


def check_denied(flows: Placed) -> list[SettingsFault]:
    found = []
    for index, flow in flows:
        names = [shape_of(expression).meant for expression in flow.topics.expressions]
        if all(name is not None and flow.denies(name) for name in names):
            shown = ", ".join(f"'{name}'" for name in names)
            problem = f"{shown} may never leave {flow.source} (clusters.{flow.source}.never_leave)"
            remedy = "remove the flow, or the denial"
            found.append(SettingsFault(("flows", index, "topics"), f"{problem}, so nothing is mirrored", remedy))
    return found


def check_routes(flows: Placed) -> tuple[Survey, list[SettingsFault]]:
    """Return the flows that write provenance headers, and the faults of unintended loops and shared topics."""
    if unreadable := _unreadable_names(flows):
        return Survey(), [unreadable]
    apart = {flow.name: (index, flow) for index, flow in flows if flow.source != flow.target}
    found = survey([flow for _, flow in apart.values()])
    return found, [
        SettingsFault(("flows", apart[refusal.flow][0], refusal.key), refusal.problem, refusal.remedy)
        for refusal in found.refusals
    ]


def _unreadable_names(flows: Placed) -> SettingsFault | None:
    """Return why names of the default policy do not show every hop, which is needed to end cycles; None if they do."""
    first: str | None = None
    for index, flow in flows:
        policy = flow.replication_policy
        if not isinstance(policy, DefaultPolicy):
            continue
        place, separator = ("flows", index, "policy"), policy.separator
        first = first or separator
        if separator != first:
            problem = (
                f"the separator is '{separator}' here and '{first}' in another flow, so topic names would be ambiguous"
            )
            return SettingsFault(place, problem, "use one separator for all flows of the file")
        if separator in flow.source:
            problem = f"the alias '{flow.source}' contains the separator '{separator}'"
            return SettingsFault(place, problem, "choose another separator or alias")
    return None
