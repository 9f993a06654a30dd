"""What streams run with, the settings of landing and republishing, rules and duties; and a run of one stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mirrorlake import groups, landing, mm2, republish, rules
from mirrorlake.config import identity, plain
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.kafka import spark_options, tell_checkpoints
from mirrorlake.lake import SIGN_EVERY_S, StreamSign, flow_sign
from mirrorlake.mirror.results import Landing, Republishing
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.progress import Tell, about
from mirrorlake.runtime import Duty
from mirrorlake.topics import ContinuousSync, require_source, rule_changes, settings_in_force

if TYPE_CHECKING:
    from mirrorlake.groups import GroupSync
    from mirrorlake.lake import OneWriter
    from mirrorlake.landing import LandListener, LandSettings
    from mirrorlake.republish import InOrder, Quarantine, Republisher, RepublishSettings, Tenure
    from mirrorlake.rules import View


def view_of(flow: FlowConfig, config: MirrorConfig) -> View | None:
    """Build the view that a flow applies to its records; None where they go out as they are.

    Raises:
        ConfigError: a key of a rule cannot be resolved.
        UsageError: the function of a rule does not exist.
    """
    loops = rules.provenance_stage(flow, config.flows)
    placing = (rules.Placer(flow.placement),) if flow.placement.kind != "keep" else ()
    return rules.make_flow_view(flow, before=(loops,) if loops is not None else (), stages=placing)


class Streams:
    """Build what one stream needs, and run it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._syncing = threading.Lock()

    # -- landing --------------------------------------------------------------------------------------------------

    def land(
        self,
        source: str,
        stop: threading.Event,
        *,
        once: bool,
        tell: Tell,
        rebuild: bool = False,
        writer: OneWriter | None = None,
    ) -> Landing:
        """Land a source until it is drained or `stop` is set."""
        context = self._context
        require_source(context.admin(source), context.config.flows_from(source))
        context.lake.create_all([source])
        tell = StreamSign(context.lake, source).signing(tell, every_s=self._sign_every(source))
        lander = landing.Lander(
            context.lake,
            context.admin(source),
            self.land_settings(source),
            now=context.now,
            tell=tell,
            writer=writer,
        )
        with about(source=source):
            lander.run(once=once, stop=stop, rebuild=rebuild)
        return Landing(source, lander.records)

    def land_settings(self, alias: str) -> LandSettings:
        """Build the settings for landing a source."""
        config = self._context.config
        cluster, flows = config.cluster(alias), config.flows_from(alias)
        return landing.LandSettings(
            alias=alias,
            subscribe_pattern=config.subscribe_pattern(alias),
            flows=flows,
            never_leave=config.never_leave(alias).java_regex,
            kafka_options=spark_options(cluster),
            reader_options=self._context.reader_options(alias),
            on_gap=cluster.land.on_gap,
            max_records_per_batch=cluster.land.max_records_per_batch,
            max_bytes_per_batch=cluster.land.max_bytes_per_batch,
            live=cluster.land.execution == "live",
            tasks=None if cluster.land.tasks == "auto" else cluster.land.tasks,
            trigger=cluster.land.trigger,
            listener=self._land_listener(alias),
        )

    def _land_listener(self, alias: str) -> LandListener:
        context = self._context
        if context.metrics is None:
            return landing.LandListener()
        listener: LandListener = context.metrics.land_listener(alias, now=context.now)
        return listener

    def landing_identity(self, alias: str) -> str:
        """Return the fingerprint of all settings that landing a source depends on."""
        config = self._context.config
        chosen = {"topics", "exclude_topics", "policy", "source", "target", "start"}
        flows = [flow.model_dump(mode="json", include=chosen) for flow in config.flows_from(alias)]
        return identity([plain(config)["clusters"][alias], sorted(flows, key=str), self._sign_every(alias)])

    def _sign_every(self, alias: str) -> float:
        # Heartbeats say when landing last worked.
        flows = self._context.config.flows_from(alias)
        every = [flow.mm2.heartbeat_interval.total_seconds() for flow in flows if flow.mm2.heartbeats]
        return min([*every, SIGN_EVERY_S])

    # -- republishing ---------------------------------------------------------------------------------------------

    def republish(
        self,
        flow: FlowConfig,
        state: ControlState,
        stop: threading.Event,
        *,
        once: bool,
        tell: Tell,
        rebuild: bool = False,
        restore_ledger: bool = False,
        tenure: Tenure | None = None,
    ) -> Republishing:
        """Republish a flow until it is drained or `stop` is set."""
        republisher = self._republisher(flow, state, tell, tenure=tenure)
        settings_in_force.record_flow(self._context.config, self._context.control(), flow.name)
        with about(flow=flow.name):
            republisher.run(once=once, stop=stop, rebuild=rebuild, restore_ledger=restore_ledger)
        return Republishing(flow.name, republisher.records)

    def drain(
        self,
        flow: FlowConfig,
        state: ControlState,
        *,
        tell: Tell,
        through: Callable[[View | None], View] | None,
        tenure: Tenure | None = None,
    ) -> Republishing:
        """Republish what is landed of a flow; `through` makes the view that records go through from the flow's own."""
        republisher = self._republisher(flow, state, tell, through, tenure)
        republisher.run(once=True, stop=threading.Event())
        return Republishing(flow.name, republisher.records)

    def _republisher(
        self,
        flow: FlowConfig,
        state: ControlState,
        tell: Tell,
        through: Callable[[View | None], View] | None = None,
        tenure: Tenure | None = None,
    ) -> Republisher:
        context = self._context
        context.lake.create_all([flow.source])
        settings, audit = self.republish_settings(flow, state), context.audit()
        if through is not None:
            settings = replace(settings, view=through(settings.view))
        audit.record(rule_changes(flow, audit), command="republish")
        tell = StreamSign(context.lake, flow_sign(flow.name)).signing(tell)
        return republish.Republisher(
            context.lake, context.admin(flow.target), settings, audit=audit, tell=tell, tenure=tenure
        )

    def newest_owner(self, flow: FlowConfig) -> str:
        """Read who claimed a flow last; empty where nobody has."""
        context = self._context
        with closing(context.ledger(flow)) as ledger:
            last = republish.read_lanes(ledger, context.admin(flow.target), flow.ledger_topic)
        newest = max((one.claim for one in last.values() if one), key=lambda claim: claim.epoch, default=None)
        return newest.owner if newest is not None else ""

    def in_order(self, flow: str) -> InOrder:
        """Hold a flow's lanes in this process, for what is sent in a given order."""
        context = self._context
        settings = self.republish_settings(context.config.flow(flow))
        return republish.Republisher(
            context.lake, context.admin(settings.flow.target), settings, audit=context.audit()
        ).in_order()

    def flow_identity(self, flow: FlowConfig, state: ControlState) -> str:
        """Return the fingerprint of all settings and pauses that republishing a flow depends on."""
        config = self._context.config
        content = plain(config)
        ends = [
            {key: value for key, value in content["clusters"][alias].items() if key != "land"}
            for alias in (flow.source, flow.target)
        ]
        # Flows that meet on one target share ACLs: none may judge by an older list of the others.
        others = [content["flows"][other.name] for other in config.flows_to(flow.target) if flow.sync.acls]
        paused = [sorted(state.topics_of(flow.name)), state.of_cluster(flow.source) is not None]
        paused += [sorted((one.remote, one.known, one.action) for one in state.choices if one.flow == flow.name)]
        view = self.view(flow)
        version = view.version if view is not None else ""
        return identity([content["flows"][flow.name], self._selection(flow), version, ends, others, paused])

    def _selection(self, flow: FlowConfig) -> str:
        """Return the fingerprint of what decides which topics a flow carries."""
        config = self._context.config
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

    def republish_settings(self, flow: FlowConfig, state: ControlState = NOTHING_ASKED) -> RepublishSettings:
        """Build the settings for republishing a flow, its duties included.

        From a source that is paused nothing is read: what the relay holds is sent, the duties rest.
        """
        settings = self.sending_settings(flow)
        flow = settings.flow
        return replace(
            settings,
            duties=() if state.of_cluster(flow.source) else self._duties(flow),
            selection=self._selection(flow),
            paused=frozenset(state.topics_of(flow.name)),
            choices=[choice for choice in state.choices if choice.flow == flow.name],
        )

    def sending_settings(self, flow: FlowConfig) -> RepublishSettings:
        """Build the settings for sending a flow's records, without the clients that duties need."""
        context = self._context
        # A flow that was made for the moment, for a replay or a drill, is held to the denials of the file, too.
        flow = context.config.bind(flow)
        settings = republish.RepublishSettings(
            flow=flow,
            producer_options=context.producer_options(flow),
            reader_options=context.reader_options(flow.target),
            view=self.view(flow),
            beside=context.config.flows,
            others=context.other_files(flow),
        )
        if context.metrics is None:
            return settings
        return replace(settings, listener=context.metrics.flow_listener(flow.name, now=context.now))

    def view(self, flow: FlowConfig) -> View | None:
        """Build the view that a flow applies to its records (see `view_of`)."""
        return view_of(flow, self._context.config)

    def quarantine(self, flow: FlowConfig) -> Quarantine:
        """Return the quarantined records of a flow, and what sends them again."""
        context = self._context
        context.lake.create_all([flow.source])
        settings, held = self.sending_settings(flow), partial(self.held, flow)
        return republish.Quarantine(
            context.lake,
            context.admin(flow.target),
            settings,
            audit=context.audit(),
            watching=context.board,
            held=held,
        )

    def held(self, flow: FlowConfig) -> list[HeldTopic]:
        """Find the remote topics of a flow that were lost and wait for a choice."""
        with closing(self._context.ledger(flow)) as ledger:
            return republish.held_now(flow, target=self._context.admin(flow.target), ledger=ledger)

    def choose(self, flow: FlowConfig, topic: str, *, send_again: bool) -> HeldTopic | None:
        """Record what becomes of a remote topic that was lost: it gets everything again, or goes on empty."""
        context = self._context
        context.lake.create_all([flow.source])
        return republish.choose(context.control(), flow, topic, self.held(flow), send_again=send_again)

    def group_sync(self, flow: FlowConfig, *, recorded: bool = False, only: Collection[str] | None = None) -> GroupSync:
        """Build the group sync of a flow, which reads, plans and sets its groups, or `only` some of them.

        `recorded` reads positions from the lake.
        """
        context = self._context
        checkpoints = context.mm2_writer(flow) if flow.mm2.checkpoints else None
        return groups.GroupSync(
            context.lake,
            flow,
            context,
            now=context.now,
            recorded=recorded,
            only=only,
            checkpoints=checkpoints,
        )

    # -- duties ---------------------------------------------------------------------------------------------------

    def _duties(self, flow: FlowConfig) -> list[Duty]:
        context = self._context
        duties: list[Duty] = []
        writer = context.mm2_writer(flow)
        # Nobody consumes from a lake cluster.
        has_groups = not context.config.cluster(flow.source).is_lake
        every_s = flow.sync.groups_interval.total_seconds()
        if has_groups and flow.sync.groups:
            duties.append(Duty(name="groups", every_s=every_s, do=self.group_sync(flow).once))
        elif has_groups and flow.mm2.checkpoints:
            sync = self.group_sync(flow)
            duties.append(
                Duty(name="mm2.checkpoints", every_s=every_s, do=lambda: tell_checkpoints(writer, sync.plan()))
            )
        duties += mm2.mm2_duties(
            flow,
            writer,
            source=context.source(flow.source),
            target=context.admin(flow.target),
            source_options=context.reader_options(flow.source),
            target_options=context.reader_options(flow.target),
            landed=self._landed(flow.source),
            beside=[each for each in context.config.flows_from(flow.source) if each.target == flow.target],
        )
        return [*duties, *self.continuous_sync(flow).duties()]

    def _landed(self, alias: str) -> Callable[[], int | None]:
        """When landing last worked; what applications publish into a lake cluster needs no landing."""
        context = self._context
        if context.config.cluster(alias).is_lake:
            return lambda: int(context.now().timestamp() * 1000)
        return StreamSign(context.lake, alias).read

    def continuous_sync(self, flow: FlowConfig) -> ContinuousSync:
        """Build what keeps the topics and ACLs of a flow in step."""
        context = self._context
        return ContinuousSync(
            flow,
            all_flows=context.config.flows,
            sources=context.sources(),
            admins=context.admins(),
            lake=context.lake,
            now=context.now,
            held=partial(self.held, flow),
            others=context.other_files(flow),
            lock=self._syncing,
        )
