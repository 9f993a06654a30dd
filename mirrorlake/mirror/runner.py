"""Land and republish, once or always on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from mirrorlake import maintenance
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import AlreadyRuns, LanderReplaced
from mirrorlake.mirror.always_on import AlwaysOn
from mirrorlake.mirror.parked_streams import Notices, Stream, park_stream
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult, TableResult
from mirrorlake.mirror.run_lines import RunLines
from mirrorlake.mirror.streams import Streams
from mirrorlake.mirror.supervisor import drain
from mirrorlake.model.control import ControlState
from mirrorlake.model.parked import landing, stream_facts
from mirrorlake.progress import Board, ProgressCallback
from mirrorlake.render import plural
from mirrorlake.runtime import PeriodicTask, PeriodicTasks, is_submitted, log_file, log_into_file, rotate_log
from mirrorlake.status import Monitor, serving_metrics
from mirrorlake.tables import TypedTable, find_table
from mirrorlake.timing import timing
from mirrorlake.verify import Verifications


class Runner:
    """Run the streams of one mirror."""

    def __init__(self, context: Context, streams: Streams | None = None) -> None:
        self._context = context
        self._streams = streams or Streams(context)
        self._lines: RunLines | None = None

    def land(
        self, source: str, *, once: bool, stop: threading.Event, rebuild: bool, take_over: bool = False
    ) -> LandResult:
        """Land one source (see `Mirror.land`)."""
        self._context.require_classic_session()
        # Raises for a lake cluster.
        self._context.admin(source)
        if once:
            self._require_alone([landing(source)], take_over=take_over or rebuild)
            with self._context.board() as board:
                state = self._context.control().state()
                return self._land_once(source, state, stop, tell=board.tell, rebuild=rebuild)
        # No other process need run: without maintenance the log of a relay gets 300 000 files a day.
        keeps, first = self._kept_small(stop), {"rebuild": rebuild}
        landed, _ = self._stay_on(landing(source), stop, *keeps, sends=False, source=source, first=first)
        return landed[0] if landed else LandResult(source, 0)

    def republish(
        self,
        flow: FlowConfig,
        *,
        once: bool,
        stop: threading.Event,
        rebuild: bool,
        restore_ledger: bool,
        take_over: bool = False,
    ) -> RepublishResult:
        """Republish one flow (see `FlowHandle.republish`)."""
        self._context.require_classic_session()
        first = {"rebuild": rebuild, "restore_ledger": restore_ledger}
        if once:
            self._require_alone([flow.name], take_over=take_over or rebuild or restore_ledger)
            with self._context.board() as board:
                state = self._context.control().state()
                return self._republish_once(flow, state, stop, tell=board.tell, **first)
        _, sent = self._stay_on(flow.name, stop, lands=False, flow=flow.name, first=first)
        return sent[0] if sent else RepublishResult(flow.name, 0)

    def keep_tables(self, table: str | None, *, once: bool, stop: threading.Event) -> list[TableResult]:
        """Write typed tables (see `Mirror.keep_tables`)."""
        self._context.require_classic_session()
        if once:
            with self._context.board() as board:
                written, failures = self._drain_tables(table, stop, board)
            for failure in failures:
                raise failure
            return written
        with self._context.board() as board:
            lines = RunLines(board, now=self._context.now)
            self._start_spark(lines)
            streams = AlwaysOn(
                self._context, self._streams, lands=False, sends=False, writes_tables=True, table=table, lines=lines
            )
            return list(streams.run(stop).tables)

    def run(
        self,
        flow: str | None,
        *,
        once: bool,
        stop: threading.Event,
        metrics_port: int | None,
        take_over: bool = False,
    ) -> Ran:
        """Land and republish (see `Mirror.run`)."""
        self._context.require_classic_session()
        config, flows = self._context.config, self._context.chosen(flow)
        sources = sorted({one.source for one in flows} - {*config.lake_clusters})
        streams = [*(one.name for one in flows), *map(landing, sources)]
        if once:
            self._require_alone(streams, take_over=take_over)
        with self._context.running_flows.announce_running(streams), self._context.board() as board:
            lines = RunLines(board, now=self._context.now)
            self._start(flows, lines, once=once)
            if once:
                return self._drain(sources, flows, stop, board, writes_tables=flow is None)
            self._lines = lines
            duties = [PeriodicTasks("lines", [self._minute(lines, flow)])]
            duties += self._duties(stop) if flow is None else []
            with _beside(*duties), serving_metrics(self._context, port=metrics_port):
                always_on = AlwaysOn(self._context, self._streams, writes_tables=flow is None, flow=flow, lines=lines)
                return always_on.run(stop)

    def _require_alone(self, streams: Sequence[str], *, take_over: bool) -> None:
        """Refuse a drain beside a running mirror: it would fence the mirror's streams, and end."""
        if take_over:
            return
        for name, who in self._context.running_flows.await_running(streams).items():
            facts = stream_facts(name)
            said = f"landing of {facts['source']}" if "source" in facts else name
            raise AlreadyRuns(
                f"{said} is carried by {who}",
                consequence="it goes on with what comes; this drain did nothing",
                remedy="mirrorlake status shows its progress; --take-over drains in its place, and it ends with exit 3",
                **facts,
            )

    def progress(self) -> Ran:
        """Return the counts of the newest always-on run so far (see `Mirror.progress`)."""
        return Ran([], []) if self._lines is None else self._lines.ran()

    def _start(self, flows: Sequence[FlowConfig], lines: RunLines, *, once: bool) -> None:
        """Prepare the streams, and report each stage; Spark starts in parallel, and the streams wait for it.

        A drain starts Spark only if it has work.
        """
        config = self._context.config
        place = config.lake.location() or ".".join(config.lake.namespace() or ())
        lines.say(
            "settings",
            f"{plural(len(flows), 'flow')} of {config.path.absolute() if config.path else 'given values'}; "
            f"log of {'clients' if is_submitted() else 'Spark and clients'}: {log_into_file()}",
            log=str(log_file()),
        )
        touched = {alias for flow in flows for alias in (flow.source, flow.target)}
        with lines.stage("clusters", f"{', '.join(sorted(touched))} tried"):
            away = {
                alias: problems
                for alias, problems in self._context.probed().items()
                if alias in touched and problems and all(problems.values())
            }
        for alias, problems in away.items():
            said = ", ".join(f"{address} {problem}" for address, problem in problems.items())
            lines.say("clusters", f"{alias} does not answer: {said}", cluster=alias)
        self._refuse_in_vain(flows, {*away})
        if not once:
            self._start_spark(lines)
        with lines.stage("lake", f"tables in {place} are there"):
            self._context.lake.create_all(sorted({one.source for one in flows}))

    def _start_spark(self, lines: RunLines) -> None:
        began = time.monotonic()
        self._context.start_spark(lambda: lines.say("spark", "ready", seconds=time.monotonic() - began))
        lines.say("spark", "starting")

    def _minute(self, lines: RunLines, flow: str | None) -> PeriodicTask:
        newest = self._context.shared(Monitor).make_newest_reader(flow)

        def say() -> None:
            lines.minute(lambda: newest().status)
            rotate_log()

        every_s = timing().line_interval_s
        return PeriodicTask(name="lines", interval_s=every_s, first_delay_s=every_s, run=say)

    def _kept_small(self, stop: threading.Event) -> list[PeriodicTasks]:
        if not self._context.config.maintenance.every:
            return []
        return [PeriodicTasks("lake", [maintenance.maintain_duty(self._context, stop.is_set)])]

    def _stay_on(
        self,
        stream: str,
        stop: threading.Event,
        *beside: PeriodicTasks,
        flow: str | None = None,
        **chosen: Any,
    ) -> Ran:
        """Run one stream until `stop` is set, with the lines of a run.

        `chosen` are options of `AlwaysOn`.
        """
        with self._context.running_flows.announce_running([stream]), self._context.board() as board:
            lines = RunLines(board, now=self._context.now)
            self._start_spark(lines)
            with _beside(PeriodicTasks("lines", [self._minute(lines, flow)]), *beside):
                streams = AlwaysOn(self._context, self._streams, flow=flow, lines=lines, **chosen)
                return streams.run(stop, isolates=False)

    def _refuse_in_vain(self, flows: Sequence[FlowConfig], away: Set[str]) -> None:
        """End before Spark starts if nothing can be landed, and no landed record could be sent."""
        sources, folder = sorted({flow.source for flow in flows}), self._context.config.lake.folder()
        # By the file system, because a query for the tables would start Spark.
        is_new = folder is not None and not any((folder / name).exists() for name in ("relay", "meta"))
        if is_new and {*sources} <= away and self._context.standing_session() is None:
            self._context.admin(sources[0]).broker_count()

    def _duties(self, stop: threading.Event) -> list[PeriodicTasks]:
        """Return the tasks that sample, maintain the lake and prove new records.

        If processes run parts of the flows, separate commands do it once for all parts.
        """
        config, duties = self._context.config, self._kept_small(stop)
        if every_s := config.sampling.every.total_seconds():
            # The streams need all cores for their start.
            first_s, poll = min(every_s, timing().first_sample_s), self._context.shared(Monitor).make_poll()
            sample = PeriodicTask(name="sample", interval_s=every_s, first_delay_s=first_s, run=poll)
            # A thread of its own, because a maintenance pass may take minutes.
            duties.append(PeriodicTasks("mirror", [sample]))
        if config.verify.every:
            duties.append(PeriodicTasks("proofs", [self._context.shared(Verifications).duty()]))
        return duties

    def _drain(
        self,
        sources: list[str],
        flows: tuple[FlowConfig, ...],
        stop: threading.Event,
        board: Board,
        *,
        writes_tables: bool = False,
    ) -> Ran:
        state = self._context.control().state()
        land = partial(self._land_once, state=state, stop=stop, tell=board.tell)
        landed, failures = drain({landing(name): partial(land, name) for name in sources}, tick=board.tick)
        # Landed records are sent even if landing failed. But the owner that claimed a source also sends, and is not fenced.
        replaced = {error.facts["alias"] for error in failures if isinstance(error, LanderReplaced)}
        send = partial(self._republish_once, state=state, stop=stop, tell=board.tell)
        sending = {one.name: partial(send, one) for one in flows if one.source not in replaced}
        sent, more = drain(sending, tick=board.tick)
        written, rest = self._drain_tables(None, stop, board) if writes_tables else ([], [])
        for failure in (*failures, *more, *rest):
            raise failure
        return Ran(landed, sent, written)

    def _drain_tables(
        self, table: str | None, stop: threading.Event, board: Board
    ) -> tuple[list[TableResult], list[BaseException]]:
        state = self._context.control().state()
        chosen = self._streams.list_tables() if table is None else [find_table(self._context, table)]
        calls = {one.stream: partial(self._table_once, one, state, stop, tell=board.tell) for one in chosen}
        return drain(calls, tick=board.tick)

    def _table_once(
        self, table: TypedTable, state: ControlState, stop: threading.Event, *, tell: ProgressCallback
    ) -> TableResult:
        if (pause := state.of_table(table.name)) is not None:
            return TableResult(table.name, 0, paused=(pause,))
        try:
            done = self._streams.keep_table(table, stop, once=True, tell=tell)
        except Exception as error:
            # No retry follows: the table shows why, until a later run clears it.
            stream = Stream(name=table.stream, made_of="", call=lambda _: None)
            parked = park_stream(stream, error, None, now=self._context.now, never_came=False)
            Notices(self._context).update(state, {table.stream: replace(parked, retry_at=None)}, {})
            raise
        self._clear(table.stream, state)
        return done

    def _land_once(
        self, source: str, state: ControlState, stop: threading.Event, *, tell: ProgressCallback, rebuild: bool = False
    ) -> LandResult:
        if (pause := state.of_cluster(source)) is not None:
            return LandResult(source, 0, (pause,))
        done = self._streams.land(source, stop, once=True, tell=tell, rebuild=rebuild)
        self._clear(landing(source), state)
        return done

    def _republish_once(
        self, flow: FlowConfig, state: ControlState, stop: threading.Event, *, tell: ProgressCallback, **options: Any
    ) -> RepublishResult:
        if (pause := state.of_stream(flow.name, flow.target)) is not None:
            return RepublishResult(flow.name, 0, (pause,))
        done = self._streams.republish(flow, state, stop, once=True, tell=tell, **options)
        self._clear(flow.name, state)
        return replace(done, paused=tuple(state.topics_of(flow.name).values()))

    def _clear(self, stream: str, state: ControlState) -> None:
        Notices(self._context).update(state, {}, {stream: self._context.now()})


@contextmanager
def _beside(*all_duties: PeriodicTasks) -> Iterator[None]:
    for duties in all_duties:
        duties.start()
    try:
        yield
    finally:
        for duties in all_duties:
            duties.stop()
