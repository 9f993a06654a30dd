"""What streams run with: the settings of landing and republishing, rules and duties."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial

from mirrorlake.config.fingerprint import identity, plain
from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.kafka.mm2_writer import tell_checkpoints
from mirrorlake.kafka.options import spark_options
from mirrorlake.lake.audit import Audit
from mirrorlake.lake.signs import LandingSign
from mirrorlake.landing.settings import LandSettings
from mirrorlake.mirror.services.offsets import Positions
from mirrorlake.mm2.emit import mm2_duties
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.progress.board import Tell
from mirrorlake.republish.quarantine import Quarantine
from mirrorlake.republish.remotes import held_now
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.rules.flow_view_build import flow_view
from mirrorlake.rules.hop_header import provenance_stage
from mirrorlake.rules.partitioner import Placer
from mirrorlake.rules.view import View
from mirrorlake.runtime.background import Duty
from mirrorlake.topics.continuous_sync import ContinuousSync


class Streams(Positions):
    """Make the parts that streams run with."""

    def land_settings(self, alias: str) -> LandSettings:
        """Build the settings for landing a source."""
        cluster = self.config.cluster(alias)
        flows = self.config.flows_from(alias)
        return LandSettings(
            alias=alias,
            subscribe_pattern=self.config.subscribe_pattern(alias),
            flows=flows,
            never_leave=self.config.never_leave(alias).java_regex,
            kafka_options=spark_options(cluster),
            reader_options=self.reader_options(alias),
            on_gap=cluster.land.on_gap,
            max_records_per_batch=cluster.land.max_records_per_batch,
            trigger=f"{int(cluster.land.trigger.total_seconds() * 1000)} milliseconds",
        )

    def landing_identity(self, alias: str) -> str:
        """Return the fingerprint of all settings that landing a source depends on."""
        chosen = {"topics", "exclude_topics", "policy", "source", "target", "start"}
        flows = [flow.model_dump(mode="json", include=chosen) for flow in self.config.flows_from(alias)]
        signs = [every] if (every := self._sign_every(alias)) is not None else []
        return identity([plain(self.config)["clusters"][alias], sorted(flows, key=str), *signs])

    def flow_identity(self, flow: FlowConfig, state: ControlState) -> str:
        """Return the fingerprint of all settings and pauses that republishing a flow depends on."""
        content = plain(self.config)
        ends = [
            {key: value for key, value in content["clusters"][alias].items() if key != "land"}
            for alias in (flow.source, flow.target)
        ]
        # Flows that meet on one target share ACLs: none may judge by an older list of the others.
        beside = [content["flows"][other.name] for other in self.config.flows_to(flow.target) if flow.sync.acls]
        paused = [sorted(state.topics_of(flow.name)), state.of_cluster(flow.source) is not None]
        paused += [sorted((one.remote, one.known, one.action) for one in state.choices if one.flow == flow.name)]
        view = self.view(flow)
        version = view.version if view is not None else ""
        return identity([content["flows"][flow.name], self._selection(flow), version, ends, beside, paused])

    def _selection(self, flow: FlowConfig) -> str:
        """Return the fingerprint of what decides which topics a flow carries."""
        chosen = {"topics", "exclude_topics", "policy", "source", "target"}
        # Whatever any cluster says of its topics counts, how it is reached does not.
        said = {
            alias: cluster.model_dump(
                mode="json", exclude={"bootstrap_servers", "client", "land"}, exclude_defaults=True
            )
            for alias, cluster in self.config.clusters.items()
        }
        separators = sorted({each.policy.separator for each in self.config.flows})
        words = {alias: content for alias, content in said.items() if content}
        return identity([flow.model_dump(mode="json", include=chosen), words, separators])

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
        # A flow that was made for the moment, for a replay or a drill, is held to the denials of the file, too.
        flow = self.config.bind(flow)
        return RepublishSettings(
            flow=flow,
            producer_options=self.producer_options(flow),
            reader_options=self.reader_options(flow.target),
            view=self.view(flow),
            beside=self.config.flows,
            on_commit=self.on_commit,
        )

    def view(self, flow: FlowConfig) -> View | None:
        """Build the view that a flow applies to its records; None where they go out as they are.

        Raises:
            ConfigError: a key of a rule cannot be resolved.
            UsageError: the function of a rule does not exist.
        """
        loops = provenance_stage(flow, self.config.flows)
        placing = (Placer(flow.placement),) if flow.placement.kind != "keep" else ()
        return flow_view(flow, before=(loops,) if loops is not None else (), stages=placing)

    def views(self, flows: Iterable[FlowConfig]) -> dict[str, View]:
        """Return the view of each flow that has one, under its name and under that of its re-drive."""
        found: dict[str, View] = {}
        for flow in flows:
            view = self.view(flow)
            if view is not None:
                found |= {flow.name: view, flow.redrive_name: view}
        return found

    def quarantine(self, flow: FlowConfig) -> Quarantine:
        """Return the quarantined records of a flow, and what sends them again."""
        audit = Audit(self.lake, now=self.now)
        return Quarantine(
            self.lake,
            self.admin(flow.target),
            self.sending_settings(flow),
            audit=audit,
            watching=self.watching,
            held=partial(self.held, flow),
        )

    def with_redrives(self, flows: Iterable[FlowConfig]) -> list[FlowConfig]:
        """Return the flows, and beside each that sent quarantined records again the flow that did it."""
        flows = list(flows)
        found = list(flows)
        for target in {flow.target for flow in flows}:
            again = {flow.redrive().ledger_topic: flow.redrive() for flow in flows if flow.target == target}
            found += [again[topic] for topic in sorted(self.admin(target).describe(again))]
        return found

    def _duties(self, flow: FlowConfig) -> list[Duty]:
        duties: list[Duty] = []
        # Nobody consumes from a lake cluster.
        has_groups = not self.config.cluster(flow.source).is_lake
        every_s = flow.sync.groups_interval.total_seconds()
        if has_groups and flow.sync.groups:
            duties.append(Duty(name="groups", every_s=every_s, do=self.group_sync(flow).once))
        elif has_groups and flow.mm2.checkpoints:
            look, writer = self.group_sync(flow).plan, self._mm2_writer(flow)
            duties.append(Duty(name="mm2.checkpoints", every_s=every_s, do=lambda: tell_checkpoints(writer, look())))
        duties += mm2_duties(
            flow,
            self._mm2_writer(flow),
            source=self.source(flow.source),
            target=self.admin(flow.target),
            source_options=self.reader_options(flow.source),
            target_options=self.reader_options(flow.target),
            landed=self._landed(flow.source),
            beside=[each for each in self.config.flows_from(flow.source) if each.target == flow.target],
        )
        return [*duties, *self.continuous_sync(flow).duties()]

    def held(self, flow: FlowConfig) -> list[HeldTopic]:
        """Find the remote topics of a flow that were lost and wait for a choice."""
        with closing(self.ledger(flow)) as ledger:
            return held_now(flow, target=self.admin(flow.target), ledger=ledger)

    def _landed(self, alias: str) -> Callable[[], int | None]:
        """Make the clock of when landing last worked; what applications publish into a lake cluster needs none."""
        if self.config.cluster(alias).is_lake:
            return lambda: int(self.now().timestamp() * 1000)
        return LandingSign(self.lake, alias).read

    def landing_tell(self, alias: str, tell: Tell) -> Tell:
        """Make the listener to the progress of landing, which also writes its sign where heartbeats are asked for."""
        every = self._sign_every(alias)
        return tell if every is None else LandingSign(self.lake, alias).beside(tell, every_s=every)

    def _sign_every(self, alias: str) -> float | None:
        every = [flow.mm2.heartbeat_interval for flow in self.config.flows_from(alias) if flow.mm2.heartbeats]
        return min(every).total_seconds() if every else None

    def continuous_sync(self, flow: FlowConfig) -> ContinuousSync:
        """Build what keeps the topics and ACLs of a flow in step."""
        return ContinuousSync(
            flow,
            beside=self.config.flows,
            sources=self.sources(),
            admins=self.clusters(),
            lake=self.lake,
            now=self.now,
            held=partial(self.held, flow),
            lock=self._keeping,
        )
