"""What one mirror is composed of; the facade and its flows ask here."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from mirrorlake.context import Context
from mirrorlake.mirror.streams import Streams

if TYPE_CHECKING:
    from mirrorlake.mirror.runner import Runner
    from mirrorlake.mirror.services.changes import Changes
    from mirrorlake.mirror.services.drills import Drills
    from mirrorlake.mirror.services.recovery import Recovery


class Services:
    """Everything that a mirror does, over one set of context; a command loads what it uses."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.streams = Streams(context)

    @cached_property
    def changes(self) -> Changes:
        """What a person changes."""
        from mirrorlake.mirror.services.changes import Changes

        return Changes(self.context)

    @cached_property
    def runner(self) -> Runner:
        """What lands and republishes."""
        from mirrorlake.mirror.runner import Runner

        return Runner(self.context, self.streams)

    @cached_property
    def drills(self) -> Drills:
        """What rehearses failovers."""
        from mirrorlake.mirror.services.drills import Drills

        return Drills(self.context)

    @cached_property
    def recovery(self) -> Recovery:
        """What fails flows over, and back."""
        from mirrorlake.mirror.services.recovery import Recovery

        return Recovery(self.context, self.changes)
