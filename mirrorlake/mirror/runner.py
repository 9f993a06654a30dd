"""Land and republish, once or always on; a running mirror follows what a person wants of it.

Every few seconds the table `control` is looked at: paused streams are stopped between two batches, resumed ones started;
when newer settings were applied, they are read from the mirror's own file, and only the streams that they change are
stopped and started again. Positions live in the ledger and the relay, so a stream that is stopped and started anywhere goes
on exactly where it was (law F). A stream that fails is parked (see `Supervisor`), and the table says so to everyone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import NamedTuple

from mirrorlake.config.fingerprint import identity, plain
from mirrorlake.config.load import load
from mirrorlake.config.schema.mirror import FlowConfig, MirrorConfig
from mirrorlake.errors import ConfigError, Fault, MirrorlakeError
from mirrorlake.lag.sampler import SampledMoment
from mirrorlake.lake.audit import Audit
from mirrorlake.landing.lander import Lander
from mirrorlake.mirror.parking import Notices, ParkingPlace
from mirrorlake.mirror.serve_metrics import measured
from mirrorlake.mirror.services import Wiring
from mirrorlake.mirror.supervisor import Stream, Supervisor, drain
from mirrorlake.model.control import ControlState, Intention, Pause
from mirrorlake.model.parked import landing
from mirrorlake.progress.board import Tell, silent
from mirrorlake.render import Sheet, Shown, badge, plural
from mirrorlake.republish.republisher import Republisher
from mirrorlake.runtime.background import Duties, Duty
from mirrorlake.topics.rules_plan import rule_changes
from mirrorlake.topics.topic_plan import require_source

log = logging.getLogger(__name__)

_FIRST_SAMPLE_S = 20.0
# The time between two looks where neither the settings nor the command give one.
_SAMPLE_S = 30.0


@dataclass(frozen=True, slots=True)
class Landing(Shown):
    """What one landing run did; `paused` says what kept it from landing."""

    source: str
    records: int
    paused: tuple[Pause, ...] = ()

    def sheet(self) -> Sheet:
        """Return how many records were landed, and the pauses."""
        return _done(self.source, f"{plural(self.records, 'record')} landed", self.paused)


@dataclass(frozen=True, slots=True)
class Republishing(Shown):
    """What one republishing run did; `paused` says what kept it, or some of its topics, from being sent."""

    flow: str
    records: int
    paused: tuple[Pause, ...] = ()

    def sheet(self) -> Sheet:
        """Return how many records were republished, and the pauses."""
        return _done(self.flow, f"{plural(self.records, 'record')} republished", self.paused)


def _done(name: str, did: str, paused: tuple[Pause, ...]) -> Sheet:
    return Sheet(title=name, badge=badge("paused") if paused else None, facts=(did,), parts=tuple(map(str, paused)))


def _refuse(error: MirrorlakeError, _: threading.Event) -> None:
    raise error


class _Ran(NamedTuple):
    landed: list[Landing]
    republished: list[Republishing]


class Ran(Shown, _Ran):
    """What a run did: a pair of the landings and the republishings.

    Example:
        >>> landed, republished = mirror.run(once=True)  # doctest: +SKIP
    """

    __slots__ = ()

    def sheet(self) -> Sheet:
        """Return a line a stream."""
        return Sheet(
            title="run",
            facts=(
                f"{plural(sum(one.records for one in self.landed), 'record')} landed",
                f"{plural(sum(one.records for one in self.republished), 'record')} republished",
            ),
            parts=tuple(one.sheet() for one in (*self.landed, *self.republished)),
        )


class Runner:
    """Run the streams of one mirror.

    Args:
        wiring: makes what they stand on.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def land(self, source: str, *, once: bool, stop: threading.Event, rebuild: bool = False) -> Landing:
        """Land one source; see `Mirror.land`."""
        self._wiring.admin(source)
        if once:
            with self._wiring.watching() as board:
                return self._land_once(source, self._state(), stop, tell=board.tell, rebuild=rebuild)

        def sources() -> list[str]:
            # Edited settings may have given it up.
            return [source] if source in self._wiring.config.sources else []

        landed, _ = self._stay_on(sources, list, stop, isolates=False, first={"rebuild": rebuild})
        return landed[0] if landed else Landing(source, 0)

    def republish(
        self, flow: str, *, once: bool, stop: threading.Event, rebuild: bool = False, restore_ledger: bool = False
    ) -> Republishing:
        """Republish one flow; see `Mirror.republish`."""
        first = {"rebuild": rebuild, "restore_ledger": restore_ledger}
        if once:
            with self._wiring.watching() as board:
                return self._republish_once(
                    self._wiring.config.flow(flow), self._state(), stop, tell=board.tell, **first
                )
        _, sent = self._stay_on(list, lambda: self._flows(flow), stop, isolates=False, first=first)
        return sent[0] if sent else Republishing(flow, 0)

    def sample(self, *, every_s: float | None, stop: threading.Event, tell: Callable[[SampledMoment], None]) -> None:
        """Look at all positions until `stop` is set; see `Mirror.sample`."""
        sampler = self._wiring.sampler()
        while not stop.is_set():
            begun = time.monotonic()
            tell(sampler.once())
            every = every_s or self._wiring.config.sampling.every.total_seconds() or _SAMPLE_S
            stop.wait(max(0.0, begun + every - time.monotonic()))

    def run(self, flow: str | None, *, once: bool, stop: threading.Event, metrics_port: int | None = None) -> Ran:
        """Land and republish; see `Mirror.run`."""

        def sources() -> list[str]:
            return sorted({one.source for one in self._flows(flow)} - {*self._wiring.config.lake_clusters})

        self._wiring.lake.create_all(sorted({one.source for one in self._flows(flow)}))
        if not once:
            # Who runs a part of the flows does not look at all: `mirrorlake sample` does, once for every part.
            duties = Duties("mirror", self._duties() if flow is None else ())
            duties.start()
            try:
                with measured(self._wiring, port=metrics_port):
                    return self._stay_on(sources, lambda: self._flows(flow), stop)
            finally:
                duties.stop()
        state = self._state()
        with self._wiring.watching() as board:
            land = partial(self._land_once, state=state, stop=stop, tell=board.tell)
            landed, failures = drain({landing(name): partial(land, name) for name in sources()}, tick=board.tick)
            # Also where landing failed: what the relay holds is sent.
            send = partial(self._republish_once, state=state, stop=stop, tell=board.tell)
            sent, more = drain({one.name: partial(send, one) for one in self._flows(flow)}, tick=board.tick)
        for failure in (*failures, *more):
            raise failure
        return Ran(landed, sent)

    # -- once -----------------------------------------------------------------------------------------------------

    def _land_once(
        self, source: str, state: ControlState, stop: threading.Event, *, tell: Tell, rebuild: bool = False
    ) -> Landing:
        pause = state.of_cluster(source)
        if pause is not None:
            return Landing(source, 0, (pause,))
        done = self._land(source, stop, once=True, tell=tell, rebuild=rebuild)
        self._clear(landing(source), state)
        return done

    def _republish_once(
        self, flow: FlowConfig, state: ControlState, stop: threading.Event, *, tell: Tell, **options: bool
    ) -> Republishing:
        pause = state.of_stream(flow.name, flow.target)
        if pause is not None:
            return Republishing(flow.name, 0, (pause,))
        done = self._republish(flow, state, stop, once=True, tell=tell, **options)
        self._clear(flow.name, state)
        return replace(done, paused=tuple(state.topics_of(flow.name).values()))

    def _clear(self, stream: str, state: ControlState) -> None:
        """Record that a parked stream has run well."""
        Notices(self._wiring.control(), lambda _: None).tell(state, {}, frozenset({stream}))

    # -- always on ------------------------------------------------------------------------------------------------

    def _stay_on(
        self,
        sources: Callable[[], Iterable[str]],
        flows: Callable[[], Iterable[FlowConfig]],
        stop: threading.Event,
        *,
        isolates: bool = True,
        first: dict[str, bool] | None = None,
    ) -> Ran:
        """Run streams until `stop` is set; `first` are options of the first start only, such as a rebuild."""
        watch, options = ControlWatch(self._wiring), dict(first or {})
        notices = Notices(self._wiring.control(), self._wiring.on_parked)

        def pop() -> dict[str, bool]:
            given = dict(options)
            options.clear()
            return given

        def wanted() -> list[Stream]:
            state = watch.look()
            return [self._landing(name, state, pop) for name in sources() if state.of_cluster(name) is None] + [
                self._republishing(flow, state, pop)
                for flow in flows()
                if state.of_stream(flow.name, flow.target) is None
            ]

        def tell(waiting: Mapping[str, ParkingPlace], running: frozenset[str]) -> None:
            notices.tell(watch.state, waiting, running)

        results = Supervisor(wanted, stop, isolates=isolates, now=self._wiring.now, tell=tell).run()
        done = [one for several in results.values() for one in several]
        landed = dict.fromkeys(sources(), 0) | {one.source: 0 for one in done if isinstance(one, Landing)}
        sent = {flow.name: 0 for flow in flows()} | {one.flow: 0 for one in done if isinstance(one, Republishing)}
        for one in done:
            if isinstance(one, Landing):
                landed[one.source] += one.records
            else:
                sent[one.flow] += one.records
        return Ran(list(starmap(Landing, landed.items())), list(starmap(Republishing, sent.items())))

    def _landing(self, source: str, state: ControlState, options: Callable[[], dict[str, bool]]) -> Stream:
        return self._stream(
            landing(source),
            state,
            lambda: self._wiring.landing_identity(source),
            lambda stop: self._land(source, stop, once=False, tell=silent, **options()),
        )

    def _republishing(self, flow: FlowConfig, state: ControlState, options: Callable[[], dict[str, bool]]) -> Stream:
        return self._stream(
            flow.name,
            state,
            lambda: self._wiring.flow_identity(flow, state),
            lambda stop: self._republish(flow, state, stop, once=False, tell=silent, **options()),
        )

    @staticmethod
    def _stream(
        name: str, state: ControlState, identify: Callable[[], str], call: Callable[[threading.Event], object]
    ) -> Stream:
        resumed = state.resumed.get(name)
        try:
            return Stream(name=name, made_of=identify(), resumed=resumed, call=call)
        except MirrorlakeError as error:
            # Settings that one stream cannot be made of, such as a key of a rule that is gone, are that stream's trouble.
            return Stream(name=name, made_of=f"fault: {error}", resumed=resumed, call=partial(_refuse, error))

    # -- a stream -------------------------------------------------------------------------------------------------

    def _land(self, source: str, stop: threading.Event, *, once: bool, tell: Tell, rebuild: bool = False) -> Landing:
        wiring = self._wiring
        require_source(wiring.admin(source), wiring.config.flows_from(source))
        wiring.lake.create_all([source])
        tell = wiring.landing_tell(source, tell)
        lander = Lander(wiring.lake, wiring.admin(source), wiring.land_settings(source), now=wiring.now, tell=tell)
        lander.run(once=once, stop=stop, rebuild=rebuild)
        return Landing(source, lander.records)

    def _republish(
        self,
        flow: FlowConfig,
        state: ControlState,
        stop: threading.Event,
        *,
        once: bool,
        tell: Tell,
        rebuild: bool = False,
        restore_ledger: bool = False,
    ) -> Republishing:
        wiring = self._wiring
        wiring.lake.create_all([flow.source])
        settings, audit = wiring.republish_settings(flow, state), Audit(wiring.lake, now=wiring.now)
        audit.record(rule_changes(flow, audit), command="republish")
        republisher = Republisher(wiring.lake, wiring.admin(flow.target), settings, audit=audit, tell=tell)
        republisher.run(once=once, stop=stop, rebuild=rebuild, restore_ledger=restore_ledger)
        return Republishing(flow.name, republisher.records)

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _duties(self) -> list[Duty]:
        """List the periodic duties of the whole mirror."""
        every_s = self._wiring.config.sampling.every.total_seconds()
        if not every_s:
            return []
        # The streams need all cores for their start.
        first_s = min(every_s, _FIRST_SAMPLE_S)
        return [Duty(name="sample", every_s=every_s, first_s=first_s, do=self._wiring.sampler().once)]

    def _state(self) -> ControlState:
        return self._wiring.control().state()

    def _flows(self, name: str | None) -> list[FlowConfig]:
        """Return the flows of the settings as they are now, or the one that was asked for, if it is still there."""
        return [flow for flow in self._wiring.config.flows if name in (None, flow.name)]


class ControlWatch:
    """Hear what a person wants: pauses, and settings that were applied after this process read its own.

    Args:
        wiring: adopts new settings.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._control = wiring.control()
        self._known: Intention | None = None
        self._looked = False
        self._said = ""
        self.state = ControlState()

    def look(self) -> ControlState:
        """Read the state that holds now, and adopt newly applied settings."""
        try:
            self.state = self._control.state()
        except Exception as error:
            # The streams have their own ways to meet a store that fails; this look is not the place to end them.
            self._say(f"the table control cannot be read: {type(error).__name__}: {str(error)[:200]}")
            return self.state
        applied = self.state.applied
        if not self._looked:
            self._looked = True
            if applied is not None and applied.at <= self._wiring.read_at:
                self._known = applied
        if applied is not None and applied != self._known and self._take_up(applied):
            self._known = applied
        return self.state

    def _take_up(self, applied: Intention) -> bool:
        config = self._wiring.config
        if identity(plain(config)) == identity(applied.value):
            return True
        if config.path is None:
            self._say("these settings were not read from a file; restart the mirror with the new ones")
            return False
        try:
            edited = load(config.path)
            if identity(plain(edited)) != identity(applied.value):
                self._say(f"{config.path} is not what was applied; apply it, or bring the applied one here")
                return False
            self._check(edited)
        except MirrorlakeError as error:
            self._say(error.cause)
            return False
        self._wiring.take_up(edited)
        self._said = ""
        log.warning("settings.taken_up file=%s by=%s", config.path, applied.who)
        return True

    def _check(self, edited: MirrorConfig) -> None:
        """Refuse what would end the running streams instead of changing them."""
        if plain(edited)["lake"] != plain(self._wiring.config)["lake"]:
            raise ConfigError([Fault(str(edited.path), "lake", "another lake is another mirror", "restart the mirror")])
        self._wiring.check_references(edited)

    def _say(self, why: str) -> None:
        if why != self._said:
            log.warning("settings.not_taken_up, the mirror goes on as it is: %s", why)
        self._said = why
