"""A plan that a person reads first, then runs (law G)."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from mirrorlake.context import Context
from mirrorlake.render import Displayable, Sheet
from mirrorlake.replay.plan import ReplayPlan
from mirrorlake.replay.request import ReplayConsent
from mirrorlake.replay.restored import RestorePlan

P = TypeVar("P", bound="ReplayPlan | RestorePlan")


class Planned(Displayable, Generic[P]):
    """A planned replay or restore; it shows itself as its plan."""

    def __init__(self, context: Context, plan: P, *, leave: ReplayConsent) -> None:
        self._context = context
        self._leave = leave
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
