"""What the views of one console share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console.error_panel import ErrorPanel
from mirrorlake.notebook.console.task_runner import TaskRunner


class Session:
    """One console's mirror (None until one is set up), its clock, its errors, and what runs its work."""

    def __init__(self, mirror: Mirror | None, *, now: Callable[[], datetime]) -> None:
        self.mirror = mirror
        self.now = now
        self.errors = ErrorPanel(now)
        self.runner = TaskRunner(self.errors)

    @property
    def flow_names(self) -> list[str]:
        """The flows of the mirror."""
        return [flow.name for flow in self.mirror.flows] if self.mirror else []

    def mirror_of(self, flow: str | None) -> Mirror:
        """Return the mirror of a flow that was chosen.

        Raises:
            UsageError: there is none.
        """
        if self.mirror is None or not flow:
            raise UsageError("no flow is set up yet", remedy="set one up first")
        return self.mirror
