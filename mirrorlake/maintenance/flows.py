"""What the lake's known flows still need of relays."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.results import TrimmedLedger
from mirrorlake.maintenance.retention import Guard, quarantined, replaying
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import merged_positions
from mirrorlake.replay import Register
from mirrorlake.republish import LedgerCopy, find_waiting, read_lanes
from mirrorlake.topics import settings_in_force

# A replay that nobody resumes must not hold back records for ever.
_REPLAYS_FOR = timedelta(days=7)


def read_ledger(context: Context, flow: FlowConfig, *, plan: bool) -> tuple[SentUpTo, TrimmedLedger]:
    """Read a flow's positions from its ledger; trim the ledger unless this is a plan."""
    try:
        admin = context.admin(flow.target)
        with closing(context.ledger(flow)) as reader:
            last = read_lanes(reader, admin, flow.ledger_topic)
            standing = SentUpTo(flow=flow, positions=merged_positions(last, flow.remote_topic).positions)
            if plan or not last:
                return standing, TrimmedLedger(flow=flow.name)
            copy = LedgerCopy(context.lake, flow)
            return standing, TrimmedLedger(flow=flow.name, records=copy.trim(reader, admin, sorted(last)))
    except MirrorlakeError as error:
        # Without positions, maintenance waits for the flow.
        return SentUpTo(flow=flow, positions=None), TrimmedLedger(flow=flow.name, why_not=error.cause)


def flows_of_other_files(context: Context) -> list[SentUpTo]:
    """Return the positions of other settings files' flows, by the lake's copies of their ledgers, which are never ahead."""
    flows = settings_in_force.flows_of_other_files(context.config, context.control().state())
    copies = [(flow, LedgerCopy(context.lake, flow)) for flow in flows]
    return [SentUpTo(flow=flow, positions=copy.positions()) for flow, copy in copies]


def unfinished_replays(context: Context) -> dict[str, list[Guard]]:
    """Return guards for the unfinished replays of the last 7 days, by source."""
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


def quarantined_records(context: Context, flows: Iterable[FlowConfig]) -> dict[str, list[Guard]]:
    """Return guards for what flows have quarantined, by source."""
    found = dict[str, list[Guard]]()
    for flow in flows:
        retention = context.config.clusters[flow.source].retention if flow.source in context.config.clusters else None
        if retention and (waiting := find_waiting(context.lake, flow)):
            firsts = {source: min(offsets) for source, offsets in waiting.items()}
            found.setdefault(flow.source, []).append(quarantined(flow.name, firsts))
    return found
