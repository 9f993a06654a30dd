"""Changes that a person makes to a mirror: plans of its topics and settings, pauses."""

from __future__ import annotations

from functools import partial

from mirrorlake import republish, tables
from mirrorlake.context import Context
from mirrorlake.model.control import Pause
from mirrorlake.model.plan import Plan
from mirrorlake.topics import SETTINGS, apply_plan, make_plan, settings_in_force

# A plan of a few topics is ready at once, and a bar would only flicker.
_SHOWN_AFTER_S = 1.0


def plan_changes(context: Context, flow: str | None) -> Plan:
    """Plan the changes of `apply` (see `Mirror.plan`)."""
    with context.board(after_s=_SHOWN_AFTER_S) as board:
        settings = settings_in_force.settings_plan(context.config, context.control(), flow=flow)
        if flow is None:
            settings += tables.plan_tables(context)
        return settings + make_plan(
            context.chosen(flow),
            all_flows=context.config.flows,
            sources=context.sources(),
            admins=context.admins(),
            lake=context.lake,
            audit=context.audit(),
            held=partial(republish.find_lost_topics, context),
            renamed=partial(republish.list_renamed_topics, context),
            filled_of=context.filled_topics,
            tell=board.tell,
        )


def apply_changes(context: Context, flow: str | None, plan: Plan | None) -> Plan:
    """Apply a plan, and put the settings in force (see `Mirror.apply`)."""
    chosen = plan_changes(context, flow) if plan is None else plan
    sources = sorted({each.source for each in context.chosen(flow)})
    with context.board(after_s=_SHOWN_AFTER_S) as board:
        apply_plan(
            chosen,
            sources=sources,
            admins=context.admins(),
            lake=context.lake,
            now=context.now,
            tell=board.tell,
        )
    control = context.control()
    if plan is None or control.state().applied is None or any(change.where == SETTINGS for change in plan.changes):
        settings_in_force.put_in_force(context.config, control, flow=flow)
    return chosen


def pause_stream(
    context: Context,
    *,
    cluster: str | None = None,
    flow: str | None = None,
    topic: str | None = None,
    table: str | None = None,
    reason: str,
) -> Pause:
    """Pause a cluster, a flow or a topic of a flow (see `Mirror.pause`)."""
    config, control = context.config, context.control()
    subject = settings_in_force.subject_of(config, cluster=cluster, flow=flow, topic=topic, table=table)
    if flow is not None:
        settings_in_force.record_flow(config, control, flow)
    return settings_in_force.pause(control, subject, reason=reason)


def resume_stream(
    context: Context,
    *,
    cluster: str | None = None,
    flow: str | None = None,
    topic: str | None = None,
    table: str | None = None,
    reason: str,
) -> Pause | None:
    """End a pause, and restart parked streams (see `Mirror.resume`)."""
    config, control = context.config, context.control()
    subject = settings_in_force.subject_of(config, cluster=cluster, flow=flow, topic=topic, table=table)
    settings_in_force.resume_parked(config, control, subject, reason=reason)
    return settings_in_force.resume(control, subject, reason=reason)
