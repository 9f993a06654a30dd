"""Build the settings for sending a flow from the context of its mirror."""

from __future__ import annotations

from dataclasses import replace

from mirrorlake.config import identity
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.rules import view_of_flow


def sending_settings(context: Context, flow: FlowConfig) -> RepublishSettings:
    # The file's denials also bind a temporary flow, of a replay or a drill.
    flow = context.config.bind(flow)
    settings = RepublishSettings(
        flow=flow,
        producer_options=context.producer_options(flow),
        reader_options=context.reader_options(flow.target),
        view=view_of_flow(flow),
        all_flows=context.config.flows,
        filled_topics=context.filled_topics(flow),
    )
    if context.metrics is None:
        return settings
    return replace(settings, listener=context.metrics.flow_listener(flow.name))


def republish_settings(context: Context, flow: FlowConfig, state: ControlState = NOTHING_ASKED) -> RepublishSettings:
    """Build the settings for republishing a flow, with the pauses and choices of `state`, and without periodic tasks."""
    context.require_classic_session()
    settings = sending_settings(context, flow)
    return replace(
        settings,
        selection=fingerprint_selection(context, settings.flow),
        paused=frozenset(state.topics_of(flow.name)),
        choices=[choice for choice in state.choices if choice.flow == flow.name],
    )


def fingerprint_selection(context: Context, flow: FlowConfig) -> str:
    """Return the fingerprint of the settings that decide which topics a flow carries."""
    config = context.config
    chosen = {"topics", "exclude_topics", "policy", "source", "target"}
    # Settings of a cluster's topics count, those of its connection do not.
    unrelated = {"bootstrap_servers", "client", "land"}
    said = {
        alias: content
        for alias, cluster in config.clusters.items()
        if (content := cluster.model_dump(mode="json", exclude=unrelated, exclude_defaults=True))
    }
    separators = sorted({each.policy.separator for each in config.flows})
    return identity([flow.model_dump(mode="json", include=chosen), said, separators])
