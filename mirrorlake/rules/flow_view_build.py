"""Build the view of a flow from its settings."""

from __future__ import annotations

from mirrorlake.config.schema import FlowConfig, RuleConfig
from mirrorlake.errors import ConfigError, Fault
from mirrorlake.rules.flow_view import FlowView, Stage
from mirrorlake.rules.functions import find_function
from mirrorlake.rules.hop_header import provenance_stage
from mirrorlake.rules.partitioner import Placer
from mirrorlake.rules.rule import Rule
from mirrorlake.rules.view import View


def view_of_flow(flow: FlowConfig) -> View | None:
    """Return the view of a flow, or None if its records are sent unchanged.

    Raises:
        ConfigError: a key of a rule cannot be resolved.
        UsageError: the function of a rule does not exist.
    """
    loops = provenance_stage(flow)
    placing = (Placer(flow.placement),) if flow.placement.kind != "keep" else ()
    return make_flow_view(flow, before=(loops,) if loops is not None else (), stages=placing)


def make_flow_view(
    flow: FlowConfig, *, before: tuple[View, ...] = (), stages: tuple[Stage, ...] = ()
) -> FlowView | None:
    """Return the view of a flow with resolved secrets and functions, or None if it would change nothing."""
    if not flow.rules and not before and not stages:
        return None
    rules = tuple(_rule(flow, place, rule) for place, rule in enumerate(flow.rules))
    return FlowView(before=before, rules=rules, stages=stages)


def _rule(flow: FlowConfig, place: int, rule: RuleConfig) -> Rule:
    key = b""
    if rule.hash is not None:
        where = f"rules[{place}].hash.key"
        key = flow.resolved(rule.hash.key, where).encode()
        if not key:
            fault = Fault(flow.file, f"{flow.place}.{where}", "the key is empty", "store one of 32 random characters")
            raise ConfigError([fault])
    return Rule(
        name=rule.name,
        version=rule.version,
        topics=rule.matcher,
        action=rule.action,
        on_error=rule.on_error,
        predicate=rule.predicate,
        paths=rule.hidden,
        of=rule.of,
        key=key,
        dropped=rule.headers.dropped if rule.headers and rule.headers.drop.expressions else None,
        renamed=dict(rule.headers.rename) if rule.headers else {},
        ignores_case=rule.headers is not None and rule.headers.ignore_case,
        function=find_function(rule.function, flow=flow.name, rule=rule.name) if rule.function else None,
    )
