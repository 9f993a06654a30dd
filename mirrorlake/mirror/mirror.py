"""The facade: one `Mirror` a settings file, with a method for each operation."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake import doctor, mm2, offsets, replay, republish, tracking
from mirrorlake.config import edit, find_settings, loads
from mirrorlake.config import load as load_config
from mirrorlake.errors import UsageError
from mirrorlake.lag import Lag, Monitor, Report, Status
from mirrorlake.mirror import changes
from mirrorlake.mirror.base import of_flow
from mirrorlake.mirror.flow import FlowHandle
from mirrorlake.mirror.records import RecordMethods
from mirrorlake.mirror.recovery import RecoveryMethods
from mirrorlake.mirror.running import RunMethods
from mirrorlake.mirror.streams import continuous_sync
from mirrorlake.model.control import Pause
from mirrorlake.model.needed_acls import NeededAcls
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Plan
from mirrorlake.model.verify import VerifyReports
from mirrorlake.progress import Display, choose_display
from mirrorlake.renamed import warn_renamed
from mirrorlake.topics import History

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from mirrorlake.config.edit import FlowPreview
    from mirrorlake.doctor import Findings
    from mirrorlake.mm2 import TakeoverPlan
    from mirrorlake.offsets import RebuildPlan
    from mirrorlake.tracking import Tracker
    from mirrorlake.verify import ProofReport


class Mirror(RunMethods, RecoveryMethods, RecordMethods):
    """Everything that one settings file describes.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.
        display: makes what shows the progress of long work: by default bars in a notebook and in a terminal, else log lines;
            `lambda: None` shows nothing.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
        >>> mirror.plan()  # doctest: +SKIP
        >>> mirror.run(once=True)  # doctest: +SKIP
        >>> mirror["east->central"].verify().equal  # doctest: +SKIP
        True
    """

    # -- set up ---------------------------------------------------------------------------------------------------

    def plan(self, flow: str | None = None) -> Plan:
        """Plan what `apply` would change on the targets and in the lake, without changing anything (law G)."""
        return changes.plan_changes(self._context, flow)

    def apply(self, flow: str | None = None, *, plan: Plan | None = None) -> Plan:
        """Carry out a plan, the present one by default, and return it; running mirrors then adopt the settings.

        A given plan puts the settings in force only where it shows how they were edited.
        """
        return changes.apply_changes(self._context, flow, plan)

    def acls(
        self,
        principal: str,
        flow: str | None = None,
        *,
        also: Collection[str] = (),
        host: str = "*",
        command_config: str = "",
    ) -> NeededAcls:
        """List the ACLs that a principal needs, and no more, with the commands that grant them; asks no cluster.

        What the settings turn on is in it: groups, settings, ACLs, MirrorMaker 2's topics.

        Args:
            principal: as the brokers see it, such as `User:mirror`; for TLS clients `User:CN=mirror,O=example`.
            flow: this flow only; all flows of the settings without it.
            also: what is done by hand: `fence-acl` and `fence-topic` keep producers off a source, `failover` places groups
                that are not kept in step, `failback` returns to the source.
            host: the address that the principal comes from; `*` for any.
            command_config: a file with the login of whoever runs the commands.

        Raises:
            UsageError: `principal` is not `Type:name`, there is no such flow, or `also` names something else.

        Example:
            >>> print(mirror.acls("User:mirror").script())  # doctest: +SKIP
        """
        return changes.list_acls(
            self._context, flow, principal=principal, also=also, host=host, command_config=command_config
        )

    def preview(self, flow: str) -> FlowPreview:
        """Preview the topics of its source that a flow mirrors, with their names, and those that it leaves out, with reasons.

        Raises:
            ClusterError: the source does not answer.
        """
        settings = self.config.flow(flow)
        return edit.preview(settings, self._context.source(settings.source).topic_names())

    try_rules = of_flow(FlowHandle.try_rules)
    plan_groups = of_flow(FlowHandle.groups)
    apply_groups = of_flow(FlowHandle.apply_groups)
    group_standing = of_flow(FlowHandle.group_standing)
    takeover = of_flow(FlowHandle.takeover)

    def apply_takeover(self, plan: TakeoverPlan) -> TakeoverPlan:
        """Carry a takeover out and return it: the flow's next `run` goes on there.

        Raises:
            TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        """
        return mm2.apply_takeover(self._context, plan)

    def plan_rebuild(
        self, *, reference: str | None = None, target: str, recorded: bool = False, like: str | None = None
    ) -> RebuildPlan:
        """Plan to give `target` the merged topics of `reference` in their recorded order, without changing anything (law G).

        With `recorded` the order comes from the lake alone, because `reference` is lost. `like` is the old name of `reference`.

        Raises:
            UsageError: no flow into `target` has a counterpart into `reference`, or records go by key.
            SafetyError: `target` holds more than the beginning of that order, or the order is not certain yet.
        """
        if like is not None:
            warn_renamed("like", "reference")
            reference = like
        if reference is None:
            raise UsageError("no reference is named", remedy="name the target whose order is recorded: reference=…")
        return offsets.make_rebuild_plan(
            self.lake, self._context, reference=reference, target=target, recorded=recorded
        )

    def apply_rebuild(self, plan: RebuildPlan, *, stop: threading.Event | None = None) -> int:
        """Send what a rebuild plan holds and return how many records that were; `stop` ends it between two stretches."""
        with self._context.board() as board:
            return offsets.apply_rebuild(
                plan, partial(republish.open_ordered_sender, self._context), stop=stop, tell=board.tell
            )

    def pause(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause:
        """Pause a cluster, a flow or a topic of a flow, here and in every process that runs on this lake; asks no cluster.

        A paused cluster is neither read nor written by streams; what the relay holds of it still goes to other clusters.
        Of a paused flow or topic landing goes on, and what it lands is sent after `resume`, without a gap or a repeat.

        Name a `cluster` by its alias, or a `flow`, or a `flow` and a source `topic` of it; `reason` is shown with the pause.

        Raises:
            UsageError: neither or both are named, or the settings do not know it.

        Example:
            >>> mirror.pause(flow="east->central", reason="the line is needed for a backup")  # doctest: +SKIP
        """
        return changes.pause_stream(self._context, cluster=cluster, flow=flow, topic=topic, reason=reason)

    def resume(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause | None:
        """End a pause and return it, None where there was none; the arguments are those of `pause`.

        Streams that a running mirror has parked after a failure are started again, too: the flow's, or with `cluster` the
        landing from it and the flows into it. `status` names them.
        """
        return changes.resume_stream(self._context, cluster=cluster, flow=flow, topic=topic, reason=reason)

    def parked(self) -> Mapping[str, Parked]:
        """Return the streams that failed in a running mirror while the others went on, by name; asks no cluster."""
        return self._context.control().state().parked

    # -- check ----------------------------------------------------------------------------------------------------

    def status(self, flow: str | None = None) -> Status:
        """Show where each partition of each flow stands; a flow whose source or target does not answer is UNKNOWN.

        Raises:
            StoreError: the lake failed.
        """
        return self._context.shared(Monitor).status(flow)

    def verify(
        self,
        flow: str | None = None,
        *,
        full: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        sample: float | None = None,
        direct: bool = False,
    ) -> VerifyReports:
        """Compare source, relay and target of each flow at a fixed cut, by count and by content.

        What an earlier verification proved is not read again. Flows may go on running: what they land and republish meanwhile
        is beyond the cut and not compared.

        Args:
            flow: compare this one only; `replay.<name>` and `restore.<name>`, too, always whole, with the relay alone.
            full: compare what is proven, too: a record that changed after its proof is found by this alone.
            since: records with a timestamp from this time on, as `"2026-11-22 03:30"` (UTC) or `"-2h"`; None from the first.
            until: records with a timestamp before this time; None to the last.
            sample: percent of the records, chosen by chance; what a sample finds equal does not count as proven.
            direct: compare source and target without the relay, wherever the source still holds the records. What has left
                the relay is compared so anyway.

        Raises:
            UsageError: a time or the sample is none.
            ClusterError: a cluster does not answer.

        Example:
            >>> mirror.verify(full=True, sample=1).equal  # doctest: +SKIP
            True
        """
        if flow is not None and replay.is_replay(self.config, flow):
            if since is not None or until is not None or sample is not None or direct:
                raise UsageError(f"{flow} is compared whole", remedy=f"mirrorlake verify --flow {flow}", flow=flow)
            return replay.verify_replay(self._context, flow)
        return self._verifications.verify(flow, full=full, since=since, until=until, sample=sample, direct=direct)

    def proof_report(self, verification: str) -> ProofReport:
        """Make a report of one verification to be signed off: ranges, digests, topic ids and table versions, with a fingerprint.

        It is made of the table `proofs`, so it can be made again later; counts and differences are in it where this object
        made the verification.

        Raises:
            UsageError: there was no such verification, or it found nothing new to prove and was another `Mirror`'s.

        Example:
            >>> mirror.proof_report(mirror.verify(full=True).verification).write("proof.html")  # doctest: +SKIP
        """
        return self._verifications.report(verification)

    def doctor(self, *, only: Collection[str] = (), skip: Collection[str] = ()) -> Findings:
        """Look at every layer the mirror stands on: settings, this machine, clusters, lake and flows; changes nothing.

        Args:
            only: run these checks of docs/doctor.md; `kafka` stands for all that begin so.
            skip: leave these out.

        Raises:
            UsageError: a name is that of no check.

        Example:
            >>> mirror.doctor(skip=["disk.free"]).bad  # doctest: +SKIP
            []
        """
        return doctor.examine(self._context, only=only, skip=skip)

    @property
    def lag(self) -> Lag:
        """The lag of each hop of each flow, now and over time, in offsets and in time (see `Lag`)."""
        return self._context.shared(Monitor).lag(self.config.flows)

    def lag_of(self, flow: str) -> Lag:
        """Return the lag of each hop of a flow (see `Lag`)."""
        return self[flow].lag

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo` over some days; on a path they last as long as the session.

        Example:
            >>> mirror.create_views(days=30)  # doctest: +SKIP
            >>> spark.sql("SELECT * FROM lag WHERE hop = 'republished' ORDER BY observed_at DESC")  # doctest: +SKIP
        """
        return self.lag.create_views(days=days)

    def report(
        self, *, since: str | timedelta | datetime = "24h", flow: str | None = None, verify: bool = False
    ) -> Report:
        """Report on lag, latency, RPO and verdicts since a time; `write` makes a file of it.

        It holds the last verification of this `Mirror`, if any; `verify` compares source, relay and target first.

        Raises:
            UsageError: the settings have no such flow, or `since` is not a time.
            ClusterError, StoreError: with `verify`, a cluster does not answer; the lake failed.

        Example:
            >>> mirror.report(since="7d", verify=True).write("report.html")  # doctest: +SKIP
        """
        context, flows = self._context, self._context.chosen(flow)
        if verify:
            self.verify(flow)
        known = self._verifications.newest(flows)
        return context.shared(Monitor).report(flows, since=since, known=known)

    @property
    def history(self) -> History:
        """The history of the clusters, which also plans the way back to an earlier state."""
        context = self._context

        def look() -> None:
            context.lake.create_all(context.config.sources)
            for flow in context.config.flows:
                continuous_sync(context, flow).look()

        targets = context.config.targets
        return History(context.lake, targets=targets, look=look, audit=context.audit(), now=context.now)

    @property
    def tracking(self) -> Tracker:
        """What logs verifications as MLflow runs: how many were `logged`, and how many `failures` were passed over."""
        return self._context.tracker

    def runs(self, *, kind: str | None = None, flow: str | None = None, newest: int = 100) -> pd.DataFrame:
        """Return logged runs as a pandas frame, newest first: figures in columns, parameters in `param.*`.

        Raises:
            UsageError: runs are not logged; says why.
            StoreError: the tracking store cannot be read.

        Example:
            >>> mirror.runs(flow="east->central")[["began_at", "equal", "records_per_second"]]  # doctest: +SKIP
        """
        return tracking.runs_frame(self._context.tracker.runs(kind=kind, flow=flow, newest=newest))


def load(
    path: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = choose_display,
) -> Mirror:
    """Read a YAML file of settings and return its mirror; connects to nothing yet (`spark`, `display`: see `Mirror`).

    Paths in the file are relative to it.

    Args:
        path: the file; a relative path is looked for from the working directory upwards. Without one it is the nearest
            `conf/mirror.yml`, or the only file in the nearest `conf/`.
        spark: see `Mirror`.
        display: see `Mirror`.

    Raises:
        ConfigError: there is no such file, or it has faults; all of them are named.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
    """
    return Mirror(load_config(find_settings(path)), spark=spark, display=display)


def from_settings(
    settings: Mapping[str, Any],
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = choose_display,
) -> Mirror:
    """Return the mirror of settings given as a dictionary of the same shape as the file (see `load`).

    Relative paths start at the working directory.

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
    return Mirror(loads(json.dumps(settings)), spark=spark, display=display)
