"""The facade: one `Mirror` a settings file, with a verb for each command."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorlake.config.load import load as load_config
from mirrorlake.config.load import loads
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.errors import UsageError
from mirrorlake.handles import FlowHandle, Landing, Republishing
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.offset_map import Translation
from mirrorlake.model.plan import Plan
from mirrorlake.relay.audit import Audit
from mirrorlake.relay.lake import Lake
from mirrorlake.steps import doctor as doctor_step
from mirrorlake.steps import offsets as offsets_step
from mirrorlake.steps import set_up
from mirrorlake.steps import status as status_step
from mirrorlake.steps import verify as verify_step
from mirrorlake.steps.acls import read_ownership
from mirrorlake.steps.history import History
from mirrorlake.steps.positions import MovedPositions, move_positions, spark_positions
from mirrorlake.steps.quarantine import Quarantine
from mirrorlake.steps.resume import Ends
from mirrorlake.steps.takeover import TakeoverPlan, apply_takeover, make_takeover_plan
from mirrorlake.steps.takeover_look import OtherMirror, Sites
from mirrorlake.steps.topics import require_source
from mirrorlake.streams.healing import outlast
from mirrorlake.streams.land import Lander
from mirrorlake.streams.republish import Republisher
from mirrorlake.wiring import Wiring, utc_now


class Mirror:
    """Everything that one settings file describes.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
        >>> mirror.plan()  # doctest: +SKIP
        >>> mirror.run(once=True)  # doctest: +SKIP
        >>> mirror["east->central"].verify().equal  # doctest: +SKIP
        True
    """

    def __init__(
        self, config: MirrorConfig, *, spark: SparkSession | None = None, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.config = config
        self._now = now
        self._wiring = Wiring(config, spark=spark, now=now)

    def __repr__(self) -> str:
        return f"Mirror({', '.join(flow.name for flow in self.config.flows)})"

    def __getitem__(self, flow: str) -> FlowHandle:
        return FlowHandle(self, self.config.flow(flow))

    @property
    def flows(self) -> tuple[FlowHandle, ...]:
        """The flows in the order of the settings."""
        return tuple(FlowHandle(self, flow) for flow in self.config.flows)

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._wiring.spark

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._wiring.lake

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster."""
        return self._wiring.admin(alias)

    # -- set up ---------------------------------------------------------------------------------------------------

    def plan(self, flow: str | None = None) -> Plan:
        """Return what `apply` would change on the targets and in the lake; changes nothing (law G)."""
        return set_up.make_plan(
            self._chosen(flow),
            beside=self.config.flows,
            admins=self._wiring.clusters(),
            lake=self.lake,
            audit=Audit(self.lake, now=self._now),
        )

    def apply(self, flow: str | None = None, *, plan: Plan | None = None) -> Plan:
        """Carry out a plan, the present one by default, and return it."""
        chosen = self.plan(flow) if plan is None else plan
        sources = {f.source for f in self._chosen(flow)}
        set_up.apply_plan(
            chosen, sources=sorted(sources), admins=self._wiring.clusters(), lake=self.lake, now=self._now
        )
        return chosen

    def plan_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Return where each consumer group of a flow would go on at the target, and what is held back and why.

        Args:
            flow: the flow's name.
            recorded: take the groups' positions from the lake, where the source is lost.
        """
        return self._wiring.group_sync(self.config.flow(flow), recorded=recorded).plan()

    def apply_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Set what the plan of this moment moves, write positions and checkpoints to the lake, and return the plan."""
        return self._wiring.group_sync(self.config.flow(flow), recorded=recorded).apply()

    # -- run ------------------------------------------------------------------------------------------------------

    def land(
        self, source: str, *, once: bool = False, stop: threading.Event | None = None, rebuild_checkpoint: bool = False
    ) -> Landing:
        """Land one source cluster.

        Args:
            source: its alias.
            once: land what is there and return; otherwise until `stop` is set.
            stop: set it to return after the batch under way.
            rebuild_checkpoint: make a new checkpoint location from the relay after the old one was lost.
        """
        if source not in self.config.sources:
            raise UsageError(
                f"no flow has '{source}' as its source", remedy=f"name one of: {', '.join(self.config.sources)}"
            )
        require_source(self.admin(source), self.config.flows_from(source))
        self.lake.create_all([source])
        lander = Lander(self.lake, self.admin(source), self._wiring.land_settings(source), now=self._now)
        lander.run(once=once, stop=stop or threading.Event(), rebuild=rebuild_checkpoint)
        return Landing(source, lander.records)

    def republish(
        self,
        flow: str,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        rebuild_checkpoint: bool = False,
        restore_ledger: bool = False,
    ) -> Republishing:
        """Republish one flow; the arguments are those of `land`.

        `restore_ledger` sets out from the offset map's positions after the ledger topic was lost.
        """
        settings = self.config.flow(flow)
        self.lake.create_all([settings.source])
        republisher = Republisher(
            self.lake,
            self.admin(settings.target),
            self._wiring.republish_settings(settings),
            audit=Audit(self.lake, now=self._now),
        )
        republisher.run(
            once=once,
            stop=stop or threading.Event(),
            rebuild=rebuild_checkpoint,
            restore_ledger=restore_ledger,
        )
        return Republishing(flow, republisher.records)

    def takeover(self, flow: str, *, other: OtherMirror | None = None, trust_stored: bool = False) -> TakeoverPlan:
        """Return where a flow goes on after a MirrorMaker 2 that was stopped; changes nothing (law G).

        Args:
            flow: the flow, which has not begun yet.
            other: where MirrorMaker kept its state.
            trust_stored: go on at its stored offsets where the records on the target cannot tell.
        """
        settings = self.config.flow(flow)
        source, target = settings.source, settings.target
        sites = Sites(
            self.admin(source),
            self.admin(target),
            self._wiring.reader_options(source),
            self._wiring.reader_options(target),
        )
        return make_takeover_plan(settings, sites, other=other, trust_stored=trust_stored)

    def apply_takeover(self, plan: TakeoverPlan) -> TakeoverPlan:
        """Carry a takeover out and return it: the flow's next `run` goes on there.

        Raises:
            TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        """
        flow = self.config.flow(plan.flow)
        apply_takeover(
            plan,
            flow,
            target=self.admin(flow.target),
            producer_options=self._wiring.producer_options(flow),
            reader_options=self._wiring.reader_options(flow.target),
            lake=self.lake,
            now=self._now(),
        )
        return plan

    def run(
        self, flow: str | None = None, *, once: bool = False, stop: threading.Event | None = None
    ) -> tuple[list[Landing], list[Republishing]]:
        """Land every source and republish every flow, or one of them.

        With `once`, the sources are drained first and the flows after them. Otherwise all streams run side by side until
        `stop` is set. A cluster that goes away is waited for; any other error stops all streams and is raised.
        """
        stop = stop or threading.Event()
        flows = self._chosen(flow)
        sources = sorted({f.source for f in flows})
        self.lake.create_all(sources)
        landings = [partial(self.land, source, once=once, stop=stop) for source in sources]
        sendings = [partial(self.republish, each.name, once=once, stop=stop) for each in flows]
        if once:
            return _together(landings, stop), _together(sendings, stop)
        # One target that is away delays no other flow, and its own goes on when it is back.
        names = [*sources, *(each.name for each in flows)]
        calls: list[Callable[[], Any]] = [*landings, *sendings]
        streams = zip(calls, names, strict=True)
        results = _together([partial(outlast, call, stop, what=what) for call, what in streams], stop)
        return results[: len(landings)], results[len(landings) :]

    # -- look -----------------------------------------------------------------------------------------------------

    def status(self, flow: str | None = None) -> dict[str, list[status_step.PartitionStatus]]:
        """Return per flow where each partition stands."""
        result = {}
        for each in self._chosen(flow):
            with closing(self._wiring.ledger(each)) as ledger:
                result[each.name] = status_step.flow_status(
                    each,
                    source=self.admin(each.source),
                    target=self.admin(each.target),
                    ledger=ledger,
                    lake=self.lake,
                    now=self._now,
                )
        return result

    def verify(self, flow: str | None = None) -> list[verify_step.Verification]:
        """Compare source, relay and target of each flow, by count and by content."""
        chosen = self._chosen(flow)
        maps = {
            target: self._wiring.known_maps(self._wiring.with_redrives(self.config.flows_to(target)))
            for target in {each.target for each in chosen}
        }
        views = self._wiring.views(self.config.flows)

        def compare(each: FlowConfig) -> verify_step.Verification:
            source, target = self._wiring.side(each.source), self._wiring.side(each.target)
            return verify_step.verify_flow(
                each, lake=self.lake, source=source, target=target, maps=maps[each.target], views=views
            )

        # Much of a small comparison is planning and waiting, which several flows can do side by side.
        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="verify") as pool:
            return list(pool.map(compare, chosen))

    def doctor(self) -> list[doctor_step.Finding]:
        """Look at every layer the mirror stands on; changes nothing."""
        return doctor_step.examine(self.config, admins=self._wiring.clusters(), lake=self.lake, now=self._now())

    def translate(
        self,
        flow: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        generation: int | None = None,
        reverse: bool = False,
    ) -> Translation:
        """Return the exact counterpart of an offset, or why there is none.

        With `reverse`, `topic` is the remote topic (its source's name is understood too) and `offset` a downstream one.
        """
        settings = self.config.flow(flow)
        if not reverse:
            return offsets_step.translate(
                self.lake, settings, topic=topic, partition=partition, offset=offset, generation=generation
            )
        remote = settings.remote_topic(topic) if settings.selection.matches(topic) else topic
        return offsets_step.translate_back(self.lake, flow, topic=remote, partition=partition, offset=offset)

    def quarantine(self, flow: str) -> Quarantine:
        """Return the records of a flow that no rule could judge, and the call that sends them again."""
        settings = self.config.flow(flow)
        self.lake.create_all([settings.source])
        return self._wiring.quarantine(settings)

    @property
    def history(self) -> History:
        """Return what the clusters looked like over time, and the plan back."""

        def look() -> None:
            self.lake.create_all(self.config.sources)
            for flow in self.config.flows:
                self._wiring.keeper(flow).look()

        return History(
            self.lake,
            targets=self.config.targets,
            look=look,
            owned=partial(read_ownership, audit=Audit(self.lake, now=self._now)),
            now=self._now,
        )

    def translate_table(self, flow: str, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
        """Return a table of offsets with the counterpart of each, or why it has none (see `Offsets.translate_table`)."""
        return offsets_step.translate_table(self.lake, self.config.flow(flow).name, offsets, reverse=reverse)

    def move_positions(self, flow: str, document: Any) -> MovedPositions:
        """Return where a reader that keeps its offsets outside of Kafka goes on (see `Offsets.move_positions`)."""
        settings = self.config.flow(flow)
        ends = Ends(source=self.admin(settings.source), target=self.admin(settings.target))
        return move_positions(self.lake, settings, document, maps=self._wiring.known_maps([settings]), ends=ends)

    def move_spark_query(self, flow: str, checkpoint_location: str) -> MovedPositions:
        """Return the `startingOffsets` of a Spark query at the target (see `Offsets.move_spark_query`)."""
        return self.move_positions(flow, spark_positions(self.spark, checkpoint_location))

    def _chosen(self, flow: str | None) -> tuple[FlowConfig, ...]:
        return self.config.flows if flow is None else (self.config.flow(flow),)


def load(path: str | Path, *, spark: SparkSession | None = None) -> Mirror:
    """Read a settings file and return its mirror; connects to nothing yet.

    Raises:
        ConfigError: the file has faults; all of them are named.
    """
    return Mirror(load_config(path), spark=spark)


def from_settings(settings: Mapping[str, Any], *, spark: SparkSession | None = None) -> Mirror:
    """Return the mirror of settings given as a dictionary of the same shape as the file.

    Raises:
        ConfigError: the settings have faults; all of them are named.

    Example:
        >>> from_settings({
        ...     "lake": {"root": "./lake"},
        ...     "clusters": {"a": {"bootstrap_servers": "a:9092"}, "b": {"bootstrap_servers": "b:9092"}},
        ...     "flows": [{"source": "a", "target": "b", "topics": "orders"}],
        ... })
        Mirror(a->b)
    """
    return Mirror(loads(json.dumps(settings)), spark=spark)


def _together(calls: Sequence[Callable[[], Any]], stop: threading.Event) -> list[Any]:
    """Run the calls side by side; the first error stops the others, which finish their batch, and is raised."""
    with ThreadPoolExecutor(max_workers=max(1, len(calls)), thread_name_prefix="mirrorlake") as pool:
        futures = [pool.submit(call) for call in calls]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            stop.set()
    for future in futures:
        error = future.exception()
        if error is not None:
            raise error
    return [future.result() for future in futures]
