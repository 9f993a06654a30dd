"""Run one stream: landing of a source, or republishing of a flow with its periodic tasks."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mirrorlake import landing, mm2, offsets, republish, rules, tables
from mirrorlake.config import find_unmirrored, identity, plain
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import write_plan_checkpoints
from mirrorlake.lake import StreamSign
from mirrorlake.mirror.results import LandResult, RepublishResult, TableResult
from mirrorlake.model.control import ControlState
from mirrorlake.progress import ProgressCallback, log_context
from mirrorlake.runtime import PeriodicTask
from mirrorlake.topics import ContinuousSync, settings_in_force

if TYPE_CHECKING:
    from mirrorlake.lake import FencedRelayWriter
    from mirrorlake.republish import Tenure
    from mirrorlake.tables import TypedTable

log = logging.getLogger(__name__)


class Streams:
    """Run the streams of one mirror, and fingerprint their settings: a changed fingerprint restarts a stream."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queries = tables.SharedQuery(context)

    def land(
        self,
        source: str,
        stop: threading.Event,
        *,
        once: bool,
        tell: ProgressCallback,
        writer: FencedRelayWriter | None = None,
        **how: Any,
    ) -> LandResult:
        """Land a source until it is drained or `stop` is set."""
        names, flows = self._context.admin(source).topic_names(), self._context.config.flows_from(source)
        notes = tuple(note for flow in flows for note in find_unmirrored(flow, names))
        for note in notes:
            log.warning("land.not_mirrored %s", note)
        records = landing.land(self._context, source, stop, once=once, tell=tell, writer=writer, **how)
        return LandResult(source, records, notes=notes)

    def republish(
        self,
        flow: FlowConfig,
        state: ControlState,
        stop: threading.Event,
        *,
        once: bool,
        tell: ProgressCallback,
        tenure: Tenure | None = None,
        **how: Any,
    ) -> RepublishResult:
        """Republish a flow until it is drained or `stop` is set; its periodic tasks do not run while `state` pauses its source."""
        context = self._context
        settings = republish.republish_settings(context, flow, state)
        if state.of_cluster(flow.source) is None:
            settings = replace(settings, periodic_tasks=duties_of(context, settings.flow))
        republisher = republish.make_republisher(context, settings, tell=tell, tenure=tenure)
        settings_in_force.record_flow(context.config, context.control(), flow.name)
        with log_context(flow=flow.name):
            republisher.run(once=once, stop=stop, **how)
        return RepublishResult(flow.name, republisher.records)

    def keep_table(
        self, table: TypedTable, stop: threading.Event, *, once: bool, tell: ProgressCallback
    ) -> TableResult:
        """Write the records of a typed table until it holds those of the relays, or `stop` is set."""
        written = tables.TableStream(self._context, table, tell=tell, queries=self._queries).run(stop, once=once)
        return TableResult(table.name, written.records, bad=written.bad)

    def list_tables(self) -> list[TypedTable]:
        """List the typed tables of the landed topics."""
        return tables.find_tables(self._context)

    def table_identity(self, table: TypedTable) -> str:
        """Return the fingerprint of all settings that a typed table depends on."""
        # The query reads the topics by their pattern, so new ones restart it only if each has a table of its own.
        return identity([table.config.model_dump(mode="json"), sorted(table.topics)])

    def landing_identity(self, alias: str) -> str:
        """Return the fingerprint of all settings that landing a source depends on."""
        config = self._context.config
        chosen = {"topics", "exclude_topics", "policy", "source", "target", "start"}
        flows = [flow.model_dump(mode="json", include=chosen) for flow in config.flows_from(alias)]
        every_s = landing.sign_interval_s(self._context, alias)
        return identity([plain(config)["clusters"][alias], sorted(flows, key=str), every_s])

    def flow_identity(self, flow: FlowConfig, state: ControlState) -> str:
        """Return the fingerprint of all settings and pauses that republishing a flow depends on."""
        config = self._context.config
        content = plain(config)
        ends = [
            {key: value for key, value in content["clusters"][alias].items() if key != "land"}
            for alias in (flow.source, flow.target)
        ]
        # Flows into one target share ACLs: none may decide by an older list of the others.
        others = [content["flows"][other.name] for other in config.flows_to(flow.target) if flow.sync.acls]
        paused = [sorted(state.topics_of(flow.name)), state.of_cluster(flow.source) is not None]
        paused += [sorted((one.remote, one.known, one.action) for one in state.choices if one.flow == flow.name)]
        view = rules.view_of_flow(flow)
        version = view.version if view is not None else ""
        selection = republish.fingerprint_selection(self._context, flow)
        return identity([content["flows"][flow.name], selection, version, ends, others, paused])


def duties_of(context: Context, flow: FlowConfig) -> list[PeriodicTask]:
    """Build the periodic tasks of a flow: its groups, MirrorMaker 2's topics, its topics and ACLs."""
    duties: list[PeriodicTask] = []
    writer = context.mm2_writer(flow)
    # A lake cluster has no consumers.
    is_lake = context.config.cluster(flow.source).is_lake
    every_s = flow.sync.groups_interval.total_seconds()
    if not is_lake and flow.sync.groups:
        duties.append(PeriodicTask(name="groups", interval_s=every_s, run=offsets.GroupSync(context, flow).once))
    elif not is_lake and flow.mm2.checkpoints:
        sync = offsets.GroupSync(context, flow)
        duties.append(
            PeriodicTask(
                name="mm2.checkpoints", interval_s=every_s, run=lambda: write_plan_checkpoints(writer, sync.plan())
            )
        )
    duties += mm2.mm2_duties(
        flow,
        writer,
        source=context.source(flow.source),
        target=context.admin(flow.target),
        source_options=context.reader_options(flow.source),
        target_options=context.reader_options(flow.target),
        landed=partial(_landed_at, context) if is_lake else StreamSign(context.lake, flow.source).read,
        beside=[each for each in context.config.flows_from(flow.source) if each.target == flow.target],
    )
    return [*duties, *continuous_sync(context, flow).duties()]


def continuous_sync(context: Context, flow: FlowConfig) -> ContinuousSync:
    """Build the sync of a flow's topics and ACLs."""
    return ContinuousSync(
        flow,
        all_flows=context.config.flows,
        sources=context.sources(),
        admins=context.admins(),
        lake=context.lake,
        now=context.now,
        held=partial(republish.find_lost_topics, context, flow),
        filled=context.filled_topics(flow),
        lock=context.shared(_sync_lock),
    )


def _landed_at(context: Context) -> int:
    """Return now: records that applications publish into a lake cluster need no landing."""
    return int(context.now().timestamp() * 1000)


def _sync_lock(_: Context) -> threading.Lock:
    return threading.Lock()
