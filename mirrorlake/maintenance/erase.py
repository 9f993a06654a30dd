"""Erase chosen records from a mirror's lake."""

from __future__ import annotations

from functools import partial

from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, SafetyError, UsageError
from mirrorlake.lake import AUDIT
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.erasure import Eraser
from mirrorlake.maintenance.erasure_results import Erasure
from mirrorlake.maintenance.flows import flows_of_other_files, read_ledger
from mirrorlake.maintenance.selector import Selector
from mirrorlake.maintenance.typed_tables import out_of_typed_tables
from mirrorlake.model.plan import Change
from mirrorlake.replay import Register
from mirrorlake.topics import settings_in_force

# The settings that decide how long a topic retains a record.
_KEEPING = ("cleanup.policy", "retention.ms", "retention.bytes")


def erase_records(
    context: Context, source: str, topic: str, selector: Selector, *, reason: str, apply: bool
) -> Erasure:
    """Erase records, or plan their erasure (see `Mirror.erase`)."""
    config = context.config
    if config.cluster(source).is_lake:
        raise SafetyError(
            f"{source} is a lake cluster: its relay shows what was published, and is never rewritten",
            consequence="nothing was erased",
            remedy="publish a tombstone for the key, and let the targets compact; see docs/erasure.md",
            alias=source,
        )
    standing = [read_ledger(context, flow, plan=True)[0] for flow in config.flows if flow.source == source]
    standing += [known for known in flows_of_other_files(context) if known.flow.source == source]
    eraser = Eraser(
        context.lake,
        source,
        standing,
        on_target=partial(_kept_there, context),
        now=context.now,
        foreign_flows=_foreign_flows(context, source),
        out_of_tables=partial(out_of_typed_tables, context),
    )
    if not apply:
        return eraser.plan(topic, selector, reason)
    context.lake.create_side_table(AUDIT)
    done = eraser.erase(topic, selector, reason)
    after = {"records": done.records + done.finished, "by": done.by, "removal": done.removal}
    after["sent_to"] = list(done.sent_to)
    after |= {"tables": dict(done.rows_of_tables)} if done.rows_of_tables else {}
    change = Change(where=source, kind="topic", name=topic, action="erase", after=after, reason=reason)
    context.audit().record([change], command="erase")
    return done


def _foreign_flows(context: Context, source: str) -> set[str]:
    """List the flows, redrives and replays of other sources."""
    flows = (*context.config.flows, *settings_in_force.flows_of_other_files(context.config, context.control().state()))
    names = {name for flow in flows if flow.source != source for name in (flow.name, flow.redrive_name)}
    replays = (replay.definition for replay in Register(context).all().values())
    return names | {definition.name for definition in replays if definition.source != source}


def _kept_there(context: Context, standing: SentUpTo, topic: str) -> str:
    """Return how long a target retains the records sent to it, in words."""
    flow, remote = standing.flow, standing.flow.remote_topic(topic)
    try:
        admin = context.admin(flow.target)
        configs = admin.configs([remote])[remote] if admin.describe([remote]) else None
    except ClusterError as error:
        return f"not known: {error.cause}"
    except UsageError:
        return f"not known: this settings file has no cluster {flow.target}"
    if configs is None:
        return f"not at all: {flow.target} has no {remote}"
    found = [f"{name}={configs[name]}" for name in _KEEPING if name in configs]
    rest = [] if len(found) == len(_KEEPING) else [f"the rest by the defaults of {flow.target}"]
    return ", ".join([*found, *rest])
