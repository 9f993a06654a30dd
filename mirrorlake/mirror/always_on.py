"""The streams of a running mirror, which follow a person's intentions.

Every few seconds they follow the table `control`: paused streams stop between two batches, resumed ones start. Newly
applied settings are read from the mirror's own file, and only the streams that they change restart. Positions are in
the ledger and the relay, so a stream that stops in this process resumes exactly there in any other (law F). A stream
that fails is parked (see `Supervisor`), and the table shows it to every process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from itertools import starmap
from typing import Any, NoReturn

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ConfigError, MirrorlakeError
from mirrorlake.mirror.control_watch import ControlWatch
from mirrorlake.mirror.holdings import Holdings
from mirrorlake.mirror.parked_streams import Notices, ParkedStream, Stream
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult, TableResult
from mirrorlake.mirror.run_lines import RunLines
from mirrorlake.mirror.streams import Streams
from mirrorlake.mirror.supervisor import Supervisor
from mirrorlake.model.control import ControlState
from mirrorlake.model.parked import landing
from mirrorlake.progress import ignore_progress
from mirrorlake.republish import read_owner
from mirrorlake.runtime import is_gone, is_host_gone, spark_gone_error
from mirrorlake.tables import TypedTable

log = logging.getLogger(__name__)


class AlwaysOn:
    """The streams that should run, by the settings of the moment: edited settings may have dropped some.

    `source`, `flow` and `table` restrict it to one. `first` are options of the first start only, such as a rebuild.
    """

    def __init__(
        self,
        context: Context,
        streams: Streams,
        *,
        lands: bool = True,
        sends: bool = True,
        writes_tables: bool = False,
        source: str | None = None,
        flow: str | None = None,
        table: str | None = None,
        first: Mapping[str, bool] | None = None,
        lines: RunLines | None = None,
    ) -> None:
        self._context = context
        self._streams = streams
        self._lands = lands
        self._sends = sends
        self._writes_tables = writes_tables
        self._known_tables: list[TypedTable] = []
        self._source = source
        self._flow = flow
        self._table = table
        self._first: dict[str, Any] = dict(first or {})
        self._lines = lines
        self._tell = ignore_progress if lines is None else lines.tell
        self._watch = ControlWatch(context)
        self._notices = Notices(context)
        self._made_of: dict[str, str] = {}
        self._holdings = Holdings(
            lambda: context.lake,
            self._require_spark,
            owner_of=partial(read_owner, context),
            lives=lambda sign: context.running_flows.is_alive(sign),
        )

    def run(self, stop: threading.Event, *, isolates: bool = True) -> Ran:
        """Run the streams until `stop` is set (see `Supervisor`)."""
        with self._context.stopped_by(stop):
            results = Supervisor(self, stop, isolates=isolates, now=self._context.now).run()
        landed, sent = dict.fromkeys(self._sources(), 0), {flow.name: 0 for flow in self._flows()}
        ended: list[LandResult | RepublishResult | TableResult] = [
            one for several in results.values() for one in several
        ]
        if self._lines is not None:
            # They also count the work of streams that failed since.
            counted = self._lines.ran()
            ended = [*counted.landed, *counted.republished, *counted.tables]
        for one in ended:
            if isinstance(one, LandResult):
                landed[one.source] = landed.get(one.source, 0) + one.records
            elif isinstance(one, RepublishResult):
                sent[one.flow] = sent.get(one.flow, 0) + one.records
        written = [one for one in ended if isinstance(one, TableResult)]
        return Ran(list(starmap(LandResult, landed.items())), list(starmap(RepublishResult, sent.items())), written)

    def wanted(self) -> list[Stream]:
        """Return the streams that should run now."""
        state = self._watch.look()
        relays = {
            source: self._stream(
                landing(source), partial(self._streams.landing_identity, source), partial(self._land, source)
            )
            for source in self._sources()
            if state.of_cluster(source) is None
        }
        flows = [flow for flow in self._flows() if state.of_stream(flow.name, flow.target) is None]
        sending = {
            flow.name: self._stream(
                flow.name, partial(self._streams.flow_identity, flow, state), partial(self._republish, flow, state)
            )
            for flow in flows
        }
        self._holdings.want(
            {source: stream.asked for source, stream in relays.items()},
            {flow.name: (flow.source, sending[flow.name].asked) for flow in flows},
        )
        return [*relays.values(), *sending.values(), *self._tables(state)]

    def _tables(self, state: ControlState) -> list[Stream]:
        if self._writes_tables:
            try:
                self._known_tables = self._streams.list_tables()
            except MirrorlakeError as error:
                # The other streams go on, and so do the tables that are known.
                log.warning("tables.not_listed why=%s next=%s", error.cause, error.remedy)
        return [
            self._stream(table.stream, partial(self._streams.table_identity, table), partial(self._keep_table, table))
            for table in self._known_tables
            if self._table in (None, table.name) and state.of_table(table.name) is None
        ]

    def report(self, waiting: Mapping[str, ParkedStream], healthy: Mapping[str, datetime]) -> None:
        """Record parked and recovered streams in the table `control`."""
        self._notices.update(self._watch.state, waiting, healthy)
        if self._lines is not None:
            self._lines.tick()

    def lost(self) -> MirrorlakeError | None:
        """Return why this process can run no stream any more, or None if it can: a session is started only once."""
        session = self._context.standing_session()
        return spark_gone_error() if is_host_gone() or (session is not None and is_gone(session)) else None

    def _require_spark(self) -> None:
        # If it is only slow, this stream is retried, and `lost` is checked again.
        if (gone := self.lost()) is not None:
            raise gone

    def _stream(self, name: str, identify: Callable[[], str], call: Callable[[threading.Event], object]) -> Stream:
        try:
            made_of = self._made_of[name] = identify()
        except MirrorlakeError as error:
            if isinstance(error, ConfigError) and (known := self._made_of.get(name)):
                # A secret cannot be read now: a running stream goes on with the value it has.
                return Stream(name=name, made_of=known, resumed=self._watch.state.resumed.get(name), call=call)
            # A fault in one stream's settings, such as a missing key of a rule, parks that stream only.
            made_of, call = f"fault: {error}", partial(_refuse, error)
        return Stream(name=name, made_of=made_of, resumed=self._watch.state.resumed.get(name), call=call)

    def _land(self, source: str, stop: threading.Event) -> LandResult:
        self._begin(f"land {source}")
        first, self._first = self._first, {}
        land = partial(self._streams.land, source, stop, once=False, tell=self._tell, **first)
        return self._holdings.land(source, lambda writer: land(writer=writer), stop)

    def _republish(self, flow: FlowConfig, state: ControlState, stop: threading.Event) -> RepublishResult:
        self._begin(f"republish {flow.name}")
        first, self._first = self._first, {}
        send = partial(self._streams.republish, flow, state, stop, once=False, tell=self._tell, **first)
        return self._holdings.republish(flow, lambda tenure: send(tenure=tenure), stop)

    def _keep_table(self, table: TypedTable, stop: threading.Event) -> TableResult:
        self._begin(table.stream)
        return self._streams.keep_table(table, stop, once=False, tell=self._tell)

    def _begin(self, phase: str) -> None:
        if self._lines is not None:
            self._lines.begin(phase)

    def _sources(self) -> list[str]:
        config = self._context.config
        if not self._lands:
            return []
        if self._source is not None:
            return [source for source in config.sources if source == self._source]
        carried = {flow.source for flow in config.flows if self._flow in (None, flow.name)}
        return sorted(carried - {*config.lake_clusters})

    def _flows(self) -> list[FlowConfig]:
        flows = self._context.config.flows if self._sends else ()
        return [flow for flow in flows if self._flow in (None, flow.name)]


def _refuse(error: MirrorlakeError, _: threading.Event) -> NoReturn:
    raise error
