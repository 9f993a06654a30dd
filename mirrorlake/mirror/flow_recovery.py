"""Recovery of one flow: failover, failback, cutover and drills."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mirrorlake import failover
from mirrorlake.mirror import changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlake.context import Context
    from mirrorlake.failover import CutoverReport, DrillReport, FailbackReport, FailoverReport


class FlowRecoveryMethods:
    """The methods of a `FlowHandle` that fail over, fail back, cut over and drill."""

    _context: Context
    name: str

    def failover(
        self,
        *,
        groups: Sequence[str] | None = None,
        dry_run: bool = False,
        unproven: bool = False,
    ) -> FailoverReport:
        """Fail this flow over: freeze, drain, prove, move the groups, report; a second call returns the same report.

        The flow is paused for every process of the lake until it is failed back. Each step is a row of `audit`: after
        a kill, the next call resumes with the first step that is not done (law F).

        Args:
            groups: only these consumer groups.
            dry_run: only return the steps, and what forbids them.
            unproven: move groups although not everything was compared.

        Raises:
            FailoverRefused: a group has members on the target, or landed records could not be sent or proven; all reasons.
            UsageError: the flow comes from a lake cluster, or a group is not known.
            ClusterError: the target does not answer.

        Example:
            >>> mirror["east->central"].failover(dry_run=True).refusals  # doctest: +SKIP
            ()
        """
        return failover.fail_over(
            self._context,
            self.name,
            groups=groups,
            dry_run=dry_run,
            unproven=unproven,
        )

    def failback(
        self,
        *,
        tail: str | None = None,
        groups: Sequence[str] | None = None,
        leave: Sequence[str] = (),
        dry_run: bool = False,
        unproven: bool = False,
    ) -> FailbackReport:
        """Fail this flow back: bring newer records home, return the groups, and run the flow again.

        Records that applications wrote to the target since go home by a flow of the settings; without one it is refused,
        and the reason has the lines to add. Law H: the source's groups are set. Law F: after a kill, the next call
        resumes with the first step that is not done.

        Args:
            tail: the choice for records that never arrived: `restore` sends them to the target, `keep` leaves them on the
                source alone, `drop` does, too, and groups resume after them. Without a choice, such records stop a failback.
            groups: only these consumer groups.
            leave: topics on the target whose records written since the failover stay there.
            dry_run: only return the steps, and what forbids them.
            unproven: move groups without any verification.

        Raises:
            FailoverRefused: a group has members, the tail waits for a choice, or newer records have no route back; all reasons.
            UsageError: the flow was not failed over.
            ClusterError: the source or the target does not answer.

        Example:
            >>> mirror["east->central"].failback(tail="restore").tail_records  # doctest: +SKIP
            7
        """
        return failover.fail_back(
            self._context, self.name, tail=tail, groups=groups, leave=leave, dry_run=dry_run, unproven=unproven
        )

    def cutover(self, *, commit: bool = False, back: bool = False) -> CutoverReport:
        """Continue the cutover of this flow: each call checks a list, does the open steps that it can, and returns the list.

        Topics, groups and records are compared, then people move the consumers, then the producers. A verification at
        the source's frozen end decides whether all records produced to it are mirrored. Before the commit, only
        positions of groups without members are changed.

        Args:
            commit: end the cutover, and pause the flow.
            back: return the consumers to the source instead, each at its exact position.

        Raises:
            FailoverRefused: a line is open at the commit, or consumers still run while they are returned.
            UsageError: there is no open cutover to take back.
            ClusterError: a cluster does not answer.

        Example:
            >>> mirror["east->central"].cutover().state  # doctest: +SKIP
            'open'
        """
        plan = partial(changes.plan_changes, self._context, self.name)
        return failover.cut_over(self._context, self.name, plan=plan, commit=commit, back=back)

    def drill(self, *, into: str | None = None) -> DrillReport:
        """Rehearse a failover of this flow into a scratch cluster, from the relay, while the mirror runs.

        The source counts as lost and is not read. The report has pass or fail for each objective, with RPO and RTO in
        seconds. It goes to `audit` and, if runs are logged, to MLflow.

        Args:
            into: the alias of a cluster of the settings that no flow uses; by default a sandbox on this machine.

        Raises:
            SafetyError: the scratch cluster is one that flows use.
            FailoverRefused: it has a topic of a remote topic's name, or a failover would be refused.
            SandboxError: no broker can be started on this machine.

        Example:
            >>> mirror["east->central"].drill().passed  # doctest: +SKIP
            True
        """
        return failover.run_drill(self._context, self.name, into=into)

    def drills(self) -> list[DrillReport]:
        """List the drills of this flow, newest first."""
        return failover.list_drills(self._context, self.name)
