"""What a running mirror holds of relays and flows: another one that takes a source over takes its flows, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from mirrorlake.errors import LanderReplaced
from mirrorlake.lake import Lake, OneWriter
from mirrorlake.mirror.results import Landing
from mirrorlake.republish import Tenure

# A flow waits so long for the landing of its source to claim the relay; a source that is away keeps no flow from its target.
_LANDING_WITHIN_S = 10.0
_LOOK_S = 0.1


@dataclass(slots=True)
class _Relay:
    """The relay of a source that this process lands; `settled` once its landing holds it, or has failed."""

    writer: OneWriter
    began: float = field(default_factory=time.monotonic)
    settled: threading.Event = field(default_factory=threading.Event)
    replaced: LanderReplaced | None = None


class Holdings:
    """Keep what streams own from one start to the next, as long as nobody pauses, changes or resumes them.

    A mirror claims the relay of a source before the flows from it, and looks again between the fence and the claim of a
    flow: of two mirrors that start side by side, one has both halves (law F).

    Args:
        lake: the lake.
        can_work: raises where this process cannot run a stream any more.
    """

    def __init__(self, lake: Callable[[], Lake], can_work: Callable[[], None]) -> None:
        self._lake = lake
        self._can_work = can_work
        self._relays: dict[str, tuple[str, _Relay]] = {}
        self._flows: dict[str, tuple[str, Tenure]] = {}

    def want(self, relays: Mapping[str, str], flows: Mapping[str, tuple[str, str]]) -> None:
        """Take note of what should run: forget what is not among it, or was asked for in another way.

        Args:
            relays: by source, what a person asked of its landing, settings included.
            flows: by flow, its source and what a person asked of it.
        """
        self._relays = {
            source: held
            if (held := self._relays.get(source)) and held[0] == asked
            else (asked, _Relay(OneWriter(self._lake(), source)))
            for source, asked in relays.items()
        }
        self._flows = {
            flow: known
            if (known := self._flows.get(flow)) and known[0] == asked
            else (asked, Tenure(partial(self._may_claim, source)))
            for flow, (source, asked) in flows.items()
        }

    def land(self, source: str, call: Callable[[OneWriter], Landing]) -> Landing:
        """Land a source with the writer of its last start."""
        _, relay = self._relays[source]
        self._can_work()
        try:
            return call(relay.writer)
        except LanderReplaced as error:
            relay.replaced = error
            raise
        finally:
            relay.settled.set()

    def tenure(self, flow: str) -> Tenure:
        """Return the tenure of a flow."""
        return self._flows[flow][1]

    def _may_claim(self, source: str) -> None:
        self._can_work()
        if (found := self._relays.get(source)) is None:
            return
        _, relay = found
        while not (relay.writer.is_held or relay.settled.is_set()):
            if time.monotonic() > relay.began + _LANDING_WITHIN_S:
                return
            relay.settled.wait(_LOOK_S)
        if relay.replaced is not None:
            raise relay.replaced
        if relay.writer.is_held:
            relay.writer.require()
