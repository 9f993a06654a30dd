"""Build the settings of a flow's sending from the context of its mirror."""

from __future__ import annotations

from dataclasses import replace

from mirrorlake.config import identity
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.rules import view_of_flow


def sending_settings(context: Context, flow: FlowConfig) -> RepublishSettings:
    """Build what sending a flow's records needs, whatever a person wants of the flow."""
    # A flow that was made for the moment, for a replay or a drill, is held to the denials of the file, too.
    flow = context.config.bind(flow)
    settings = RepublishSettings(
        flow=flow,
        producer_options=context.producer_options(flow),
        reader_options=context.reader_options(flow.target),
        view=view_of_flow(flow, context.config.flows),
        all_flows=context.config.flows,
        other_files=context.other_files(flow),
    )
    if context.metrics is None:
        return settings
    return replace(settings, listener=context.metrics.flow_listener(flow.name, now=context.now))


def republish_settings(context: Context, flow: FlowConfig, state: ControlState = NOTHING_ASKED) -> RepublishSettings:
    """Build what republishing a flow needs, with the pauses and choices of `state`, and without duties."""
    settings = sending_settings(context, flow)
    return replace(
        settings,
        selection=fingerprint_selection(context, settings.flow),
        paused=frozenset(state.topics_of(flow.name)),
        choices=[choice for choice in state.choices if choice.flow == flow.name],
    )


def fingerprint_selection(context: Context, flow: FlowConfig) -> str:
    """Return the fingerprint of what decides which topics a flow carries."""
    config = context.config
    chosen = {"topics", "exclude_topics", "policy", "source", "target"}
    # What any cluster says of its topics counts, how it is reached does not.
    unrelated = {"bootstrap_servers", "client", "land"}
    said = {
        alias: content
        for alias, cluster in config.clusters.items()
        if (content := cluster.model_dump(mode="json", exclude=unrelated, exclude_defaults=True))
    }
    separators = sorted({each.policy.separator for each in config.flows})
    return identity([flow.model_dump(mode="json", include=chosen), said, separators])
