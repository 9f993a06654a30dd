"""Check across the parts of the settings: existing aliases, unique names, flows without loops."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from mirrorlake.config.faults import SettingsFault, did_you_mean
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.model.flow import kafka_name
from mirrorlake.model.loops.collisions import Survey, survey
from mirrorlake.model.patterns import shape_of
from mirrorlake.model.policy import DefaultPolicy

# An alias becomes the name of a folder; a leading `-` looks like an option of a command.
_ALIAS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def check_aliases(aliases: Iterable[str]) -> list[SettingsFault]:
    remedy = "use letters, digits, _ and -, not - in front; dots separate the parts of remote topic names"
    return [
        SettingsFault(("clusters", alias), f"'{alias}' is not an alias", remedy)
        for alias in aliases
        if not _ALIAS.fullmatch(alias)
    ]


def check_flows(
    flows: Sequence[FlowConfig], aliases: Collection[str], *, lakes: Collection[str] = ()
) -> list[SettingsFault]:
    found: list[SettingsFault] = []
    names: dict[str, str] = {}
    for index, flow in enumerate(flows):
        for key, alias in (("source", flow.source), ("target", flow.target)):
            if alias not in aliases:
                problem = f"there is no cluster '{alias}'"
                found.append(SettingsFault(("flows", index, key), problem, did_you_mean(alias, aliases)))
        if flow.source == flow.target:
            problem = f"source and target are both '{flow.source}'"
            found.append(SettingsFault(("flows", index, "target"), problem, "mirror to another cluster"))
        if flow.target in lakes:
            problem = f"'{flow.target}' is a lake cluster, which can only be a source"
            found.append(SettingsFault(("flows", index, "target"), problem, "mirror to a Kafka cluster"))
        other = names.setdefault(kafka_name(flow.name), flow.name)
        if flow.name in [earlier.name for earlier in flows[:index]]:
            problem, remedy = f"a second flow '{flow.name}'", "give each flow a name of its own"
            found.append(SettingsFault(("flows", index, "name"), problem, remedy))
        elif other != flow.name:
            problem = f"'{flow.name}' and '{other}' are both '{kafka_name(flow.name)}' in Kafka names"
            remedy = "rename one: they would share ledger and transactional ids"
            found.append(SettingsFault(("flows", index, "name"), problem, remedy))
    return found


def check_denied(flows: Sequence[FlowConfig]) -> list[SettingsFault]:
    found = []
    for index, flow in enumerate(flows):
        names = [shape_of(expression).meant for expression in flow.topics.expressions]
        if all(name is not None and flow.denies(name) for name in names):
            shown = ", ".join(f"'{name}'" for name in names)
            problem = f"{shown} may never leave {flow.source} (clusters.{flow.source}.never_leave)"
            remedy = "remove the flow, or the denial"
            found.append(SettingsFault(("flows", index, "topics"), f"{problem}, so nothing is mirrored", remedy))
    return found


def check_routes(flows: Sequence[FlowConfig]) -> tuple[Survey, list[SettingsFault]]:
    """Return the flows that write provenance headers, and the faults of unintended loops and shared topics."""
    if unreadable := _unreadable_names(flows):
        return Survey(), [unreadable]
    apart = {flow.name: (index, flow) for index, flow in enumerate(flows) if flow.source != flow.target}
    found = survey([flow for _, flow in apart.values()])
    return found, [
        SettingsFault(("flows", apart[refusal.flow][0], refusal.key), refusal.problem, refusal.remedy)
        for refusal in found.refusals
    ]


def _unreadable_names(flows: Sequence[FlowConfig]) -> SettingsFault | None:
    """Return why names of the default policy do not show every hop, which is needed to end cycles; None if they do."""
    first: str | None = None
    for index, flow in enumerate(flows):
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
