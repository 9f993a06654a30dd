"""Build what sends a flow's records, from the context of its mirror."""

from __future__ import annotations

from mirrorlake.context import Context
from mirrorlake.lake import StreamSign, flow_sign
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.republish.republisher import Republisher
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.republish.tenure import Tenure
from mirrorlake.topics import rule_changes


def make_republisher(
    context: Context,
    settings: RepublishSettings,
    *,
    tell: ProgressCallback = ignore_progress,
    tenure: Tenure | None = None,
) -> Republisher:
    """Build the republisher of a flow, and record the flow's rules."""
    flow, audit = settings.flow, context.audit()
    context.lake.create_all([flow.source])
    audit.record(rule_changes(flow, audit), command="republish")
    tell = StreamSign(context.lake, flow_sign(flow.name)).signing(tell)
    return Republisher(context.lake, context.admin(flow.target), settings, audit=audit, tell=tell, tenure=tenure)
