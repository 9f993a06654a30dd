"""Land and republish, once or always on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.mirror.always_on import AlwaysOn
from mirrorlake.mirror.parking import Notices
from mirrorlake.mirror.results import Landing, Ran, Republishing
from mirrorlake.mirror.serve_metrics import measured
from mirrorlake.mirror.services.checks import Checks
from mirrorlake.mirror.services.connections import Connections
from mirrorlake.mirror.services.streams import Streams
from mirrorlake.mirror.services.upkeep import Upkeep
from mirrorlake.mirror.supervisor import drain
from mirrorlake.model.control import ControlState
from mirrorlake.model.parked import landing
from mirrorlake.progress import Tell
from mirrorlake.runtime import Duties, Duty

_FIRST_SAMPLE_S = 20.0


class Runner:
    """Run the streams of one mirror."""

    def __init__(self, connections: Connections, streams: Streams, checks: Checks, upkeep: Upkeep) -> None:
        self._connections = connections
        self._streams = streams
        self._checks = checks
        self._upkeep = upkeep

    def land(self, source: str, *, once: bool, stop: threading.Event, rebuild: bool) -> Landing:
        """Land one source (see `Mirror.land`)."""
        # A lake cluster is refused here.
        self._connections.admin(source)
        if once:
            with self._connections.board() as board:
                state = self._connections.control().state()
                return self._land_once(source, state, stop, tell=board.tell, rebuild=rebuild)
        self._connections.start_spark()
        work = AlwaysOn(self._connections, self._streams, sends=False, source=source, first={"rebuild": rebuild})
        landed, _ = work.run(stop, isolates=False)
        return landed[0] if landed else Landing(source, 0)

    def republish(
        self, flow: FlowConfig, *, once: bool, stop: threading.Event, rebuild: bool, restore_ledger: bool
    ) -> Republishing:
        """Republish one flow (see `FlowHandle.republish`)."""
        first = {"rebuild": rebuild, "restore_ledger": restore_ledger}
        if once:
            with self._connections.board() as board:
                state = self._connections.control().state()
                return self._republish_once(flow, state, stop, tell=board.tell, **first)
        self._connections.start_spark()
        work = AlwaysOn(self._connections, self._streams, lands=False, flow=flow.name, first=first)
        _, sent = work.run(stop, isolates=False)
        return sent[0] if sent else Republishing(flow.name, 0)

    def run(self, flow: str | None, *, once: bool, stop: threading.Event, metrics_port: int | None) -> Ran:
        """Land and republish (see `Mirror.run`)."""
        config, flows = self._connections.config, self._connections.chosen(flow)
        if not once:
            self._connections.start_spark()
        self._connections.lake.create_all(sorted({one.source for one in flows}))
        if once:
            return self._drain(sorted({one.source for one in flows} - {*config.lake_clusters}), flows, stop)
        background = self._in_background(stop) if flow is None else nullcontext()
        with background, measured(self._connections, self._checks, port=metrics_port):
            return AlwaysOn(self._connections, self._streams, flow=flow).run(stop)

    @contextmanager
    def _in_background(self, stop: threading.Event) -> Iterator[None]:
        """Sample, keep the lake small, and prove what came.

        Where a process runs a part of the flows, commands do it once for all parts.
        """
        config = self._connections.config
        # A pass of upkeep may take minutes, and a sample is due every 30 s.
        both = [Duties("mirror", self._duties())]
        if config.maintenance.every:
            both.append(Duties("lake", [self._upkeep.duty(stop.is_set)]))
        if config.verify.every:
            both.append(Duties("proofs", [self._checks.duty()]))
        for duties in both:
            duties.start()
        try:
            yield
        finally:
            for duties in both:
                duties.stop()

    def _drain(self, sources: list[str], flows: tuple[FlowConfig, ...], stop: threading.Event) -> Ran:
        state = self._connections.control().state()
        with self._connections.board() as board:
            land = partial(self._land_once, state=state, stop=stop, tell=board.tell)
            landed, failures = drain({landing(name): partial(land, name) for name in sources}, tick=board.tick)
            # What the relay holds is sent where landing failed, too.
            send = partial(self._republish_once, state=state, stop=stop, tell=board.tell)
            sent, more = drain({one.name: partial(send, one) for one in flows}, tick=board.tick)
        for failure in (*failures, *more):
            raise failure
        return Ran(landed, sent)

    def _land_once(
        self, source: str, state: ControlState, stop: threading.Event, *, tell: Tell, rebuild: bool = False
    ) -> Landing:
        if (pause := state.of_cluster(source)) is not None:
            return Landing(source, 0, (pause,))
        done = self._streams.land(source, stop, once=True, tell=tell, rebuild=rebuild)
        self._clear(landing(source), state)
        return done

    def _republish_once(
        self, flow: FlowConfig, state: ControlState, stop: threading.Event, *, tell: Tell, **options: bool
    ) -> Republishing:
        if (pause := state.of_stream(flow.name, flow.target)) is not None:
            return Republishing(flow.name, 0, (pause,))
        done = self._streams.republish(flow, state, stop, once=True, tell=tell, **options)
        self._clear(flow.name, state)
        return replace(done, paused=tuple(state.topics_of(flow.name).values()))

    def _clear(self, stream: str, state: ControlState) -> None:
        """Record that a parked stream has run well."""
        Notices(self._connections).update(state, {}, frozenset({stream}))

    def _duties(self) -> list[Duty]:
        every_s = self._connections.config.sampling.every.total_seconds()
        if not every_s:
            return []
        # The streams need all cores for their start.
        first_s = min(every_s, _FIRST_SAMPLE_S)
        return [Duty(name="sample", every_s=every_s, first_s=first_s, do=self._checks.sampler().once)]
