"""Fail flows over and back, and cut over: check the options, and run the operation in its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.failover.cutover import Cutover, CutoverReport
from mirrorlake.failover.failback import Failback
from mirrorlake.failover.failback_report import TAIL_CHOICES, FailbackReport
from mirrorlake.failover.failover import Failover, FailoverOptions
from mirrorlake.failover.journal import no_hook
from mirrorlake.failover.operation_context import OperationContext
from mirrorlake.failover.report import FailoverReport
from mirrorlake.failover.return_flows import derive_return_flow, local_topics
from mirrorlake.failover.source_fence import FENCES
from mirrorlake.model.plan import Plan
from mirrorlake.procedure import StepHook

_Choice = TypeVar("_Choice", bound=str)


def fail_over(
    context: Context,
    flow: str,
    *,
    groups: Sequence[str] | None = None,
    dry_run: bool = False,
    unproven: bool = False,
    fence_source: str | None = None,
    report: bool = False,
    step_hook: StepHook = no_hook,
) -> FailoverReport:
    """Fail a flow over (see `FlowHandle.failover`); `step_hook` is called for each step, for tests."""
    fence = _choose(fence_source, FENCES, "a way to keep producers off a source")
    options = FailoverOptions(groups=tuple(groups) if groups else None, unproven=unproven, fence=fence, reports=report)
    return Failover(OperationContext.of(context, flow, step_hook=step_hook), options).run(dry_run=dry_run)


def fail_back(
    context: Context,
    flow: str,
    *,
    tail: str | None = None,
    groups: Sequence[str] | None = None,
    leave: Sequence[str] = (),
    dry_run: bool = False,
    unproven: bool = False,
    step_hook: StepHook = no_hook,
) -> FailbackReport:
    """Fail a flow back (see `FlowHandle.failback`); `step_hook` is called for each step, for tests."""
    choice = _choose(tail, TAIL_CHOICES, "what a tail can be settled by")
    with_home, made = _with_return_flow(context, flow)
    work = OperationContext.of(with_home, flow, derived_flow=made, step_hook=step_hook)
    only = tuple(groups) if groups else None
    return Failback(work, tail=choice, groups=only, unproven=unproven, leave=leave).run(dry_run=dry_run)


def _choose(given: str | None, choices: Sequence[_Choice], what: str) -> _Choice | None:
    chosen = next((one for one in choices if one == given), None)
    if given is not None and chosen is None:
        raise UsageError(
            f"'{given}' is not {what}",
            consequence="nothing was changed",
            remedy=f"name one of: {', '.join(choices)}",
        )
    return chosen


def _with_return_flow(context: Context, flow: str) -> tuple[Context, str]:
    """Return a context with a return flow: this one if it has one or none can be derived."""
    config, settings = context.config, context.config.flow(flow)
    topics = local_topics(context.lake, settings, config.flows)
    made = derive_return_flow(settings, topics) if topics else None
    has_one = any(each.source == settings.target for each in config.flows_to(settings.source))
    if made is None or has_one or config.cluster(settings.source).is_lake:
        return context, ""
    found = config.with_flow(made)
    return (context, "") if found is None else (context.beside(found), made.name)


def cut_over(
    context: Context,
    flow: str,
    *,
    plan: Callable[[], Plan],
    commit: bool = False,
    back: bool = False,
    step_hook: StepHook = no_hook,
) -> CutoverReport:
    """Run or resume the cutover of a flow (see `FlowHandle.cutover`); `plan` plans changes to its topics."""
    if commit and back:
        raise UsageError("commit and back exclude each other", remedy="name one of them")
    cutover = Cutover(OperationContext.of(context, flow, step_hook=step_hook), plan=plan, commit=commit)
    return cutover.back() if back else cutover.run()


def rehearse(context: Context, flow: str, *, silent: str) -> FailoverReport:
    """Fail a flow over as if its source were lost; `silent` is the reason in the report."""
    return Failover(OperationContext.of(context, flow, lost=silent), FailoverOptions()).run()
