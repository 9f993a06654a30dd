"""The relays and flows that a running mirror owns: a mirror that claims a source also claims its flows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import LanderReplaced, LaneFenced
from mirrorlake.lake import FencedRelayWriter, Lake
from mirrorlake.mirror.results import LandResult, RepublishResult
from mirrorlake.model.owner import said_owner, temporary_sign
from mirrorlake.model.parked import landing, stream_facts
from mirrorlake.republish import Tenure

log = logging.getLogger(__name__)

# The time a flow waits for the landing of its source to claim the relay; an unreachable source must not stop the flow.
_LANDING_TIMEOUT_S = 10.0
_LOOK_S = 0.1


@dataclass(slots=True)
class _Relay:
    """The relay of a source that this process lands; `settled` once its landing owns it, or has failed."""

    writer: FencedRelayWriter
    began: float = field(default_factory=time.monotonic)
    settled: threading.Event = field(default_factory=threading.Event)
    replaced: LanderReplaced | None = None


class Holdings:
    """Preserve the ownership of streams from one start to the next, until a person pauses, changes or resumes them.

    A mirror claims the relay of a source before the flows from it, and checks it again between the fence and the
    claim of a flow: of two mirrors that start side by side, one gets both halves (law F). A stream that a short
    command replaced, such as a failover, waits for its end and claims relay or flow again.
    """

    def __init__(
        self,
        lake: Callable[[], Lake],
        can_work: Callable[[], None],
        *,
        owner_of: Callable[[FlowConfig], str],
        lives: Callable[[str], bool],
    ) -> None:
        self._lake = lake
        self._can_work = can_work
        self._owner_of = owner_of
        self._lives = lives
        self._relays: dict[str, tuple[str, _Relay]] = {}
        self._flows: dict[str, tuple[str, Tenure]] = {}

    def want(self, relays: Mapping[str, str], flows: Mapping[str, tuple[str, str]]) -> None:
        """Set the streams that should run; the ownership of all others, and of changed requests, is dropped.

        `relays` has by source the person's request for its landing, settings included; `flows` by flow its source and the request.
        """
        self._relays = {
            source: held
            if (held := self._relays.get(source)) and held[0] == asked
            else (asked, _Relay(FencedRelayWriter(self._lake(), source)))
            for source, asked in relays.items()
        }
        self._flows = {
            flow: known
            if (known := self._flows.get(flow)) and known[0] == asked
            else (asked, Tenure(partial(self._may_claim, source)))
            for flow, (source, asked) in flows.items()
        }

    def land(self, source: str, call: Callable[[FencedRelayWriter], LandResult], stop: threading.Event) -> LandResult:
        """Land a source with the writer of its last start, and again after each command that landed instead."""
        _, relay = self._relays[source]
        owner = ""
        while True:
            self._can_work()
            try:
                if owner:
                    relay.writer.resume_after(owner)
                return call(relay.writer)
            except LanderReplaced as error:
                owner = relay.writer.newest_owner()
                if not temporary_sign(owner):
                    relay.replaced = error
                    raise
            finally:
                relay.settled.set()
            relay.writer = FencedRelayWriter(self._lake(), source)
            if not self._wait_for_owner(owner, landing(source), stop):
                return LandResult(source, 0)

    def republish(
        self, flow: FlowConfig, call: Callable[[Tenure], RepublishResult], stop: threading.Event
    ) -> RepublishResult:
        """Republish a flow with the tenure of its last start, and again after each command that sent instead."""
        _, tenure = self._flows[flow.name]
        while True:
            try:
                return call(tenure)
            except LaneFenced:
                owner = self._owner_of(flow)
                if not temporary_sign(owner):
                    raise
            if not self._wait_for_owner(owner, flow.name, stop):
                return RepublishResult(flow.name, 0)
            tenure.record_owner(owner)

    def _wait_for_owner(self, owner: str, stream: str, stop: threading.Event) -> bool:
        """Wait until a temporary owner has ended; return False if the stream is to stop first."""
        facts = stream_facts(stream)
        log.warning(
            "stream.waits what=%s why=%s has taken it for a while", stream, said_owner(owner), extra={"facts": facts}
        )
        while self._lives(temporary_sign(owner)):
            if stop.wait(_LOOK_S):
                return False
        log.warning("stream.goes_on what=%s", stream, extra={"facts": facts})
        return not stop.is_set()

    def _may_claim(self, source: str) -> None:
        self._can_work()
        if (found := self._relays.get(source)) is None:
            return
        _, relay = found
        while not (relay.writer.keeps_number or relay.settled.is_set()):
            if time.monotonic() > relay.began + _LANDING_TIMEOUT_S:
                return
            relay.settled.wait(_LOOK_S)
        if relay.replaced is not None:
            raise relay.replaced
        try:
            if relay.writer.keeps_number:
                relay.writer.require_unfenced()
        except LanderReplaced:
            # A temporary owner ends soon, and the landing resumes.
            if not temporary_sign(relay.writer.newest_owner()):
                raise
