"""Prepare the sending of a flow's records, from the context of its mirror."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mirrorlake.config import identity
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.lake import StreamSign, flow_sign
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.progress import Tell, silent
from mirrorlake.republish.fencing import read_lanes
from mirrorlake.republish.quarantine import Quarantine
from mirrorlake.republish.remotes import held_now
from mirrorlake.republish.republisher import Republisher
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.rules import view_of_flow
from mirrorlake.topics import rule_changes

if TYPE_CHECKING:
    from mirrorlake.republish.in_order import InOrder
    from mirrorlake.republish.tenure import Tenure


def sending_settings(context: Context, flow: FlowConfig) -> RepublishSettings:
    """Build what sending a flow's records needs, whatever a person wants of the flow."""
    # A flow that was made for the moment, for a replay or a drill, is held to the denials of the file, too.
    flow = context.config.bind(flow)
    settings = RepublishSettings(
        flow=flow,
        producer_options=context.producer_options(flow),
        reader_options=context.reader_options(flow.target),
        view=view_of_flow(flow, context.config.flows),
        beside=context.config.flows,
        others=context.other_files(flow),
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


def make_republisher(
    context: Context, settings: RepublishSettings, *, tell: Tell = silent, tenure: Tenure | None = None
) -> Republisher:
    """Make the republisher of a flow, and record its rules."""
    flow, audit = settings.flow, context.audit()
    context.lake.create_all([flow.source])
    audit.record(rule_changes(flow, audit), command="republish")
    tell = StreamSign(context.lake, flow_sign(flow.name)).signing(tell)
    return Republisher(context.lake, context.admin(flow.target), settings, audit=audit, tell=tell, tenure=tenure)


def send_in_order(context: Context, flow: str) -> InOrder:
    """Hold a flow's lanes in this process, for what is sent in a given order."""
    settings = republish_settings(context, context.config.flow(flow))
    admin = context.admin(settings.flow.target)
    return Republisher(context.lake, admin, settings, audit=context.audit()).in_order()


def read_owner(context: Context, flow: FlowConfig) -> str:
    """Read who claimed a flow last; empty where nobody has."""
    with closing(context.ledger(flow)) as ledger:
        last = read_lanes(ledger, context.admin(flow.target), flow.ledger_topic)
    newest = max((one.claim for one in last.values() if one), key=lambda claim: claim.epoch, default=None)
    return newest.owner if newest is not None else ""


def find_lost_topics(context: Context, flow: FlowConfig) -> list[HeldTopic]:
    """Find the remote topics of a flow that were deleted or created again, and wait for a choice.

    Raises:
        ClusterError: the target does not answer.
    """
    with closing(context.ledger(flow)) as ledger:
        return held_now(flow, target=context.admin(flow.target), ledger=ledger)


def open_quarantine(context: Context, flow: FlowConfig) -> Quarantine:
    """Open the quarantined records of a flow."""
    context.lake.create_all([flow.source])
    return Quarantine(
        context.lake,
        context.admin(flow.target),
        sending_settings(context, flow),
        audit=context.audit(),
        watching=context.board,
        held=partial(find_lost_topics, context, flow),
    )
