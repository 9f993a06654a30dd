"""What a mirror hands out: a flow with its verbs, its offset map, and what a run did."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mirrorlake.config.display import flow_sheet
from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.report import Report
from mirrorlake.lag.status import FlowStatus
from mirrorlake.mirror.runner import Ran, Republishing
from mirrorlake.mm2.survey import OtherMirror
from mirrorlake.mm2.takeover import TakeoverPlan
from mirrorlake.model.control import Pause
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.offset_map import Translation
from mirrorlake.model.plan import Plan
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.model.verify import VerifyReport
from mirrorlake.offsets.external_readers import MovedPositions
from mirrorlake.render import Sheet, Shown
from mirrorlake.republish.quarantine import Quarantine
from mirrorlake.topics.rules_plan import RulesShown, RuleTrial, list_rules

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from mirrorlake.mirror import Mirror


class FlowHandle(Shown):
    """One flow of a mirror: the same verbs, without its name."""

    def __init__(self, mirror: Mirror, config: FlowConfig) -> None:
        self._mirror = mirror
        self.config = config

    def __repr__(self) -> str:
        return f"FlowHandle({self.config.name})"

    def sheet(self) -> Sheet:
        """Return the flow's settings; no cluster is asked (see `FlowHandle.status`)."""
        return flow_sheet(self._mirror.config, self.config)

    @property
    def name(self) -> str:
        """The flow's name."""
        return self.config.name

    @property
    def offsets(self) -> Offsets:
        """The offset map."""
        return Offsets(self._mirror, self.config.name)

    @property
    def lag(self) -> Lag:
        """How far each hop of this flow is and was behind, in offsets and in time."""
        return self._mirror.lag_of(self.name)

    @property
    def quarantine(self) -> Quarantine:
        """The records that no rule could judge, and the call that sends them again."""
        return self._mirror.quarantine(self.name)

    def plan(self) -> Plan:
        """Plan what `apply` would change for this flow."""
        return self._mirror.plan(self.name)

    def apply(self, plan: Plan | None = None) -> Plan:
        """Carry out a plan of this flow."""
        return self._mirror.apply(self.name, plan=plan)

    def republish(
        self,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        rebuild_checkpoint: bool = False,
        restore_ledger: bool = False,
    ) -> Republishing:
        """Republish this flow (see `Mirror.republish`)."""
        return self._mirror.republish(
            self.name, once=once, stop=stop, rebuild_checkpoint=rebuild_checkpoint, restore_ledger=restore_ledger
        )

    def run(self, *, once: bool = False, stop: threading.Event | None = None, metrics_port: int | None = None) -> Ran:
        """Land this flow's source and republish the flow (see `Mirror.run`)."""
        return self._mirror.run(self.name, once=once, stop=stop, metrics_port=metrics_port)

    def pause(self, topic: str | None = None, *, reason: str = "") -> Pause:
        """Pause this flow, or one of its topics (see `Mirror.pause`)."""
        return self._mirror.pause(flow=self.name, topic=topic, reason=reason)

    def resume(self, topic: str | None = None, *, reason: str = "") -> Pause | None:
        """Resume this flow, or one of its topics (see `Mirror.resume`)."""
        return self._mirror.resume(flow=self.name, topic=topic, reason=reason)

    def held(self) -> list[HeldTopic]:
        """Find this flow's remote topics that were deleted or created again and wait for a choice (see `Mirror.held`)."""
        return self._mirror.held(self.name)

    def send_again(self, topic: str) -> HeldTopic | None:
        """Choose that a remote topic which was lost gets everything again from the relay (see `Mirror.choose`)."""
        return self._mirror.choose(self.name, topic, send_again=True)

    def accept_empty(self, topic: str) -> HeldTopic | None:
        """Choose that a remote topic which was lost goes on empty, with what was not sent yet (see `Mirror.choose`)."""
        return self._mirror.choose(self.name, topic, accept_empty=True)

    def takeover(self, *, other: OtherMirror | None = None, trust_stored: bool = False) -> TakeoverPlan:
        """Plan where this flow goes on after a MirrorMaker 2 that was stopped (see `Mirror.takeover`)."""
        return self._mirror.takeover(self.name, other=other, trust_stored=trust_stored)

    def groups(self, *, recorded: bool = False) -> GroupPlan:
        """Return where each consumer group would go on at the target (see `Mirror.plan_groups`)."""
        return self._mirror.plan_groups(self.name, recorded=recorded)

    def apply_groups(self, *, recorded: bool = False) -> GroupPlan:
        """Set the positions of groups that are inactive on the target (see `Mirror.apply_groups`)."""
        return self._mirror.apply_groups(self.name, recorded=recorded)

    def rules(self) -> RulesShown:
        """Return the rules of this flow, in the order in which they apply, with their versions."""
        return list_rules(self.config)

    def try_rules(self, topic: str, newest: int = 1000) -> RuleTrial:
        """Try the rules on the newest records of a source topic in the relay, without changing anything.

        Raises:
            UsageError: the flow does not carry the topic, or the function of a rule does not exist.
            ConfigError: a key cannot be resolved.

        Example:
            >>> mirror["east->central"].try_rules("orders", 500).filtered  # doctest: +SKIP
            17
        """
        return self._mirror.try_rules(self.name, topic, newest)

    def status(self) -> FlowStatus:
        """Return where each partition of this flow stands."""
        return self._mirror.status(self.name)[self.name]

    def report(self, *, since: str | timedelta = "24h", verify: bool = False) -> Report:
        """Report on this flow (see `Mirror.report`)."""
        return self._mirror.report(since=since, flow=self.name, verify=verify)

    def verify(self) -> VerifyReport:
        """Compare source, relay and target of this flow."""
        return self._mirror.verify(self.name)[0]

    def runs(self, *, kind: str | None = None, newest: int = 100) -> pd.DataFrame:
        """Return this flow's logged runs, newest first (see `Mirror.runs`)."""
        return self._mirror.runs(kind=kind, flow=self.name, newest=newest)


class Offsets:
    """The offset map of one flow."""

    def __init__(self, mirror: Mirror, flow: str) -> None:
        self._mirror = mirror
        self._flow = flow

    def __repr__(self) -> str:
        return f"Offsets({self._flow})"

    def translate(self, topic: str, partition: int, offset: int, *, generation: int | None = None) -> Translation:
        """Return where the record at an upstream offset stands on the target, or why it stands nowhere."""
        return self._mirror.translate(
            self._flow, topic=topic, partition=partition, offset=offset, generation=generation
        )

    def translate_back(self, topic: str, partition: int, offset: int) -> Translation:
        """Return which upstream record stands at a downstream offset of a remote topic."""
        return self._mirror.translate(self._flow, topic=topic, partition=partition, offset=offset, reverse=True)

    def move_positions(self, document: Any) -> MovedPositions:
        """Return where a reader that keeps its offsets outside of Kafka goes on at the target (law A).

        Args:
            document: its positions (next offset to read): `{"orders": {"0": 17}}` as Spark's `startingOffsets`, or a list of
                `{"topic": "orders", "partition": 0, "offset": 17}`; the answer has the same shape.

        Raises:
            UsageError: the document has another shape, or names a topic that the flow does not carry.
        """
        return self._mirror.move_positions(self._flow, document)

    def move_spark_query(self, checkpoint_location: str) -> MovedPositions:
        """Return the `startingOffsets` with which a Spark query that reads the source goes on at the target.

        Raises:
            UsageError: the folder holds no finished batch of a Kafka source.
        """
        return self._mirror.move_spark_query(self._flow, checkpoint_location)

    def translate_table(self, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
        """Return a table of offsets with the counterpart of each, or why it has none; set-based, for any number of rows.

        Args:
            offsets: columns `topic`, `partition`, `offset`, and `generation` where it is known; others pass through.
            reverse: from downstream offsets of remote topics to upstream ones.

        Returns:
            The rows with `status` and, forwards, `target_topic`, `target_partition`, `downstream_offset` and `position`
            (where a reader goes on, law A); backwards `source_topic`, `generation`, `source_partition`, `upstream_offset`.

        Raises:
            UsageError: a column is missing.

        Example:
            >>> asked = spark.createDataFrame(  # doctest: +SKIP
            ...     [("orders", 0, 1139)], "topic string, partition int, offset bigint")
            >>> mirror["east->central"].offsets.translate_table(asked).show()  # doctest: +SKIP
        """
        return self._mirror.translate_table(self._flow, offsets, reverse=reverse)
