"""What the flows that a lake knows still need of relays and quarantine."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.removal import quarantined_by
from mirrorlake.maintenance.results import TrimmedLedger
from mirrorlake.maintenance.retention import Guard, replaying
from mirrorlake.model.flow import SourcePartition
from mirrorlake.replay import Register
from mirrorlake.republish import LedgerCopy, merged_positions, read_lanes
from mirrorlake.topics import settings_in_force

# A replay that nobody goes on with holds nothing back for ever.
_REPLAYS_FOR = timedelta(days=7)


def read_ledger(context: Context, flow: FlowConfig, *, plan: bool) -> tuple[SentUpTo, TrimmedLedger]:
    """Read how far a flow has sent, and trim its ledger, unless this is a plan."""
    try:
        admin = context.admin(flow.target)
        with closing(context.ledger(flow)) as reader:
            last = read_lanes(reader, admin, flow.ledger_topic)
            standing = SentUpTo(flow=flow, positions=merged_positions(last))
            if plan or not last:
                return standing, TrimmedLedger(flow=flow.name)
            copy = LedgerCopy(context.lake, flow.name, flow.source)
            return standing, TrimmedLedger(flow=flow.name, records=copy.trim(reader, admin, sorted(last)))
    except MirrorlakeError as error:
        # Without its position the flow is waited for.
        return SentUpTo(flow=flow, positions=None), TrimmedLedger(flow=flow.name, why_not=error.cause)


def flows_of_other_files(context: Context) -> list[SentUpTo]:
    """Read how far flows of other settings files have sent, by the lake's copy of their ledgers, which is never ahead."""
    flows = settings_in_force.flows_of_other_files(context.config, context.control().state())
    copies = [(flow, LedgerCopy(context.lake, flow.name, flow.source)) for flow in flows]
    return [SentUpTo(flow=flow, positions=copy.positions()) for flow, copy in copies]


def unfinished_replays(context: Context) -> dict[str, list[Guard]]:
    """Find the replays that were begun in the last week and are not done, by source."""
    found = dict[str, list[Guard]]()
    if not any(cluster.retention for cluster in context.config.clusters.values()):
        return found
    for name, one in Register(context).all().items():
        if one.done_at is None and one.begun_at > context.now() - _REPLAYS_FOR:
            spans = {
                SourcePartition(span.topic, span.generation, span.partition): (span.first, span.end)
                for span in one.definition.spans
            }
            found.setdefault(one.definition.source, []).append(replaying(name, spans))
    return found


def foreign_flows(context: Context, aliases: Iterable[str]) -> dict[str, list[str]]:
    """List, by source, the names under which records of the other sources are quarantined."""
    others = settings_in_force.flows_of_other_files(context.config, context.control().state())
    names = [(flow.source, name) for flow in (*context.config.flows, *others) for name in quarantined_by(flow)]
    replays = Register(context).all().values()
    names += [(one.definition.source, one.definition.name) for one in replays]
    return {alias: sorted({name for source, name in names if source != alias}) for alias in aliases}
