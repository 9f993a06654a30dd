"""Plan a replay, then run it, or verify it."""

from __future__ import annotations

import threading
from typing import Any

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.model.replay import REPLAY, Definition
from mirrorlake.model.verify import VerifyReport, VerifyReports
from mirrorlake.render import Displayable, Sheet
from mirrorlake.replay.flows import flow_of, view_of_replay
from mirrorlake.replay.plan import ReplayPlan, ReplayResult
from mirrorlake.replay.replays import found, plan_begun, plan_replay
from mirrorlake.replay.request import ReplayConsent, ReplayRequest, plain_word
from mirrorlake.replay.run import run_replay
from mirrorlake.verify import verify_ranges


class Replay(Displayable):
    """A planned replay: `mirror.replay(...)`; it shows itself as its plan. Nothing is sent before `run`.

    Example:
        >>> again = mirror.replay(source="east", topic="orders", start="-2h", into="central:orders.replayed")  # doctest: +SKIP
        >>> again.plan.records  # doctest: +SKIP
        41200
        >>> again.run()  # doctest: +SKIP
    """

    def __init__(self, context: Context, plan: ReplayPlan) -> None:
        self._context = context
        self.plan = plan

    @property
    def name(self) -> str:
        """The name of its flow."""
        return self.plan.name

    def sheet(self) -> Sheet:
        """Show the plan."""
        return self.plan.sheet()

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as `--json` prints it."""
        return self.plan.as_dict()

    def run(self, *, stop: threading.Event | None = None) -> ReplayResult:
        """Send the records, each once; after a kill, another call continues (law F).

        Args:
            stop: set it to return between two transactions; a later call continues.

        Raises:
            SafetyError: the plan is refused; nothing was sent.
            ClusterError, StoreError: the target or the lake failed; run it again.
        """
        return run_replay(self._context, self.plan, stop=stop or threading.Event())

    def verify(self) -> VerifyReport:
        """Compare each sent record with the relay: bytes, headers, timestamps, order.

        Raises:
            ClusterError, StoreError: the target or the lake failed.
        """
        return compare(self._context, self.plan.definition)


def make_replay(
    context: Context,
    *,
    name: str | None,
    leave: ReplayConsent,
    source: str | None,
    topic: str | None,
    into: str,
    **asked: Any,
) -> Replay:
    """Plan a replay (see `Mirror.replay`)."""
    if source is None and topic is None and name is not None and not into:
        return Replay(context, plan_begun(context, found(context, name), leave))
    if source is None or topic is None:
        raise UsageError(
            "a replay needs a source and a topic",
            remedy="mirrorlake replay --source east --topic orders --into central:orders.replayed; one that was begun "
            "goes on with --name alone",
        )
    given = {key: plain_word(value) for key, value in asked.items()}
    wanted = ReplayRequest(source=source, topic=topic, into=into, **given)
    return Replay(context, plan_replay(context, wanted, name=name, leave=leave))


def is_replay(config: MirrorConfig, name: str) -> bool:
    return name.startswith(REPLAY) and all(flow.name != name for flow in config.flows)


def find_flow(context: Context, name: str) -> FlowConfig:
    if not is_replay(context.config, name):
        return context.config.flow(name)
    return flow_of(found(context, name).definition, context.config)


def verify_replay(context: Context, name: str) -> VerifyReports:
    """Compare the records that a replay sent with the relay."""
    return VerifyReports([compare(context, found(context, name).definition)])


def compare(context: Context, definition: Definition) -> VerifyReport:
    flow = flow_of(definition, context.config)
    ranges = {span.source: (span.first, span.end) for span in definition.spans}
    compared = 0
    with context.board() as board:

        def tell(records: int) -> None:
            nonlocal compared
            compared += records
            board.tell(f"verify {definition.name}", compared, definition.records)

        return verify_ranges(context, flow, view_of_replay(definition, flow), ranges, tell=tell)
