"""The context of all operations of one mirror: settings, session, lake, cluster clients, clock and progress."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from mirrorlake import runtime
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.context.running_flows import RunningFlows
from mirrorlake.errors import ConfigError, StartAbandoned, UsageError
from mirrorlake.kafka import ClusterAdmin, Groups, Mm2Writer, RecordReader, librdkafka_options, mm2_writer, probe
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.lake import Audit, Control, Lake
from mirrorlake.progress import Board, Display
from mirrorlake.topics import FilledTopics, LakeTopics, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlake.model.parked import Parked

T = TypeVar("T")

log = logging.getLogger(__name__)

# Variables that could give a session another file system than this machine's.
_SPARKS_OWN = (
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME", "SPARK_CONF_DIR"),
    *("SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"),
)
# The long-lived tasks.
_WORKERS_LOAD = ("mirrorlake.landing.live_task", "mirrorlake.republish.follower")
# Who waits for the start of Spark looks this often whether it is stopped.
_STOP_POLL_S = 0.2


def utc_now() -> datetime:
    """Return the wall clock in UTC; the only clock of the package."""
    return datetime.now(timezone.utc)


class ServedMetrics(Protocol):
    """The metrics of this process, which streams update (see `mirrorlake.status`)."""

    def land_listener(self, alias: str) -> Any: ...

    def flow_listener(self, flow: str) -> Any: ...

    def running(self, streams: frozenset[str], *, pause_s: float) -> None:
        """Show which streams run, and the longest pause between two batches of one."""

    def parked(self, streams: Mapping[str, Parked]) -> None: ...

    def show(self, lag: Any) -> None:
        """Show the verdict of a look."""


class Context:
    """The context of one mirror's operations; each client is created once, at its first use.

    `spark` None takes the active session, or starts a local one at its first use. `display` makes the display of one call.
    """

    def __init__(
        self,
        config: MirrorConfig,
        *,
        spark: SparkSession | None,
        now: Callable[[], datetime],
        display: Callable[[], Display | None],
    ) -> None:
        self.config = config
        self.read_at = now()
        self.now = now
        # Set while metrics are served.
        self.metrics: ServedMetrics | None = None
        self._display = display
        self._spark = spark
        self._session: SparkSession | None = None
        self._admins: dict[str, ClusterAdmin] = {}
        self._admin_options: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, Groups] = {}
        self._mm2_writers: dict[str, Mm2Writer] = {}
        self._starting = threading.Lock()
        self._stop = threading.Event()
        self._started_plainly = False
        self._sharing = threading.RLock()
        self._shared: dict[tuple[Any, ...], Any] = {}
        self._tables_of: frozenset[str] = frozenset()

    def adopt(self, config: MirrorConfig) -> None:
        """Switch to other settings of the same lake; clients of unchanged clusters are reused."""
        before, self.config, self.read_at = self.config, config, self.now()
        for alias, cluster in before.clusters.items():
            if config.clusters.get(alias) != cluster:
                self._admins.pop(alias, None)
                self._groups.pop(alias, None)
        self._mm2_writers.clear()

    def shared(self, make: Callable[..., T], *arguments: str) -> T:
        """Return an object that the calls of one operation share, such as a cache; created at the first call.

        Example:
            >>> context.shared(Monitor).status(None)  # doctest: +SKIP
        """
        with self._sharing:
            if (key := (make, *arguments)) not in self._shared:
                self._shared[key] = make(self, *arguments)
            return cast("T", self._shared[key])

    def chosen(self, flow: str | None) -> tuple[FlowConfig, ...]:
        return self.config.flows if flow is None else (self.config.flow(flow),)

    # -- the lake -------------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        while not self._starting.acquire(timeout=_STOP_POLL_S):
            if self._session is None and self._stop.is_set():
                raise StartAbandoned("stopped while Spark was starting", consequence="nothing of it had begun")
        try:
            # A notebook may stop the session between two calls.
            if self._session is None or runtime.is_stopped(self._session):
                self._session = self._open_session()
            return self._session
        finally:
            self._starting.release()

    @contextmanager
    def stopped_by(self, stop: threading.Event) -> Iterator[None]:
        """In the body, who waits for Spark's start gets a `StartAbandoned` once `stop` is set: a start cannot be interrupted."""
        before, self._stop = self._stop, stop
        try:
            yield
        finally:
            self._stop = before

    def _open_session(self) -> SparkSession:
        if self._spark is not None:
            return runtime.prepare(self._spark)
        self._session = None
        self._started_plainly = self._would_start_plainly()
        store = self.lake.store
        jars = () if store is None else store.jar_sets
        return runtime.local_session(also=jars, workers_load=_WORKERS_LOAD)

    def require_classic_session(self) -> None:
        runtime.require_classic_session(self._session or self._spark)

    def standing_session(self) -> SparkSession | None:
        """Return the session if one exists or if the lake needs one; None if it would have to be started."""
        stands = self._spark is not None or self._session is not None or self.lake.is_spark_only
        return self.spark if stands else None

    def _would_start_plainly(self) -> bool:
        """Return whether a session would be started by this process, with this machine's files as its own."""
        return self._standing() is None and not any(map(os.environ.get, _SPARKS_OWN))

    def _standing(self) -> SparkSession | None:
        if (known := self._session or self._spark) is not None:
            return known
        # Another thread may be importing the module just now: without the class no session was started.
        sessions = getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)
        return None if sessions is None else cast("SparkSession | None", sessions.getActiveSession())

    def _sees_all(self) -> bool:
        if self._started_plainly or self._would_start_plainly():
            return True
        session = self._standing()
        return session is not None and runtime.reads_local_files(session)

    def start_spark(self, ready: Callable[[], None] = lambda: None) -> None:
        """Start Spark in the background if it must be started; the lake and the clusters are read meanwhile.

        `ready` is called by the starting thread afterwards.
        """

        def start() -> None:
            # The next user of the session gets the failure, too.
            with suppress(Exception):
                _ = self.spark
                ready()

        runtime.load_pyspark()
        threading.Thread(target=start, name="start of Spark", daemon=True).start()

    @cached_property
    def lake(self) -> Lake:
        return Lake(lambda: self.spark, self.config.lake, sees_all=self._sees_all)

    @cached_property
    def running_flows(self) -> RunningFlows:
        """The registry in which the processes of this lake show each other their streams."""
        return RunningFlows(lambda: self.lake.checkpoint_root(), self.config.lake.folder(), now=self.now)

    def create_tables(self) -> None:
        """Create the tables of all sources, once: it takes a dozen lake requests, too slow for a reader."""
        sources = frozenset(self.config.sources)
        if sources != self._tables_of:
            self.lake.create_all(sources)
            self._tables_of = sources

    def control(self) -> Control:
        return Control(self.lake, now=self.now)

    def audit(self) -> Audit:
        return Audit(self.lake, now=self.now)

    @staticmethod
    def no_display() -> None:
        """Show no progress, for work beside other work."""

    def board(self, *, after_s: float | None = None) -> Board:
        """Open a board for the progress of one call's work; a context manager for the thread that waits for it.

        With `after_s`, work that is done sooner draws nothing.
        """
        return Board(self._display(), clock=time.monotonic, after_s=after_s)

    # -- the clusters ---------------------------------------------------------------------------------------------

    def probed(self) -> dict[str, dict[str, str]]:
        """Return the fault of each address of every Kafka cluster of a flow (see `kafka.probe`)."""
        touched, servers = {*self.config.sources, *self.config.targets} - {*self.config.lake_clusters}, {}
        for alias in sorted(touched):
            # Use of a cluster whose address cannot be resolved raises its own error.
            with suppress(ConfigError):
                servers[alias] = self.config.cluster(alias).servers()
        return probe(servers)

    def admin(self, alias: str) -> ClusterAdmin:
        if self.config.cluster(alias).is_lake:
            raise UsageError(
                f"{alias} is a lake cluster: applications publish into its relay, and it has no brokers",
                consequence="there is nothing to land, and nothing to take over",
                remedy=f"mirrorlake publish --cluster {alias} --topic T FILE; its flows carry on what is published",
            )
        before = self._admin_options.get(alias)
        options = self._resolved(alias, "admin", before)
        if alias not in self._admins or options != before or self._admins[alias].is_lost:
            # A rotated secret takes effect with the next client.
            self._admins[alias] = ClusterAdmin(alias, options, probes=True)
            self._admin_options[alias] = options
        return self._admins[alias]

    def _resolved(
        self, alias: str, role: Literal["admin", "consumer"], before: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Resolve the options of a cached client; on failure return those from `before`."""
        try:
            return librdkafka_options(self.config.cluster(alias), role=role)
        except ConfigError as error:
            if before is None:
                raise
            log.warning("settings.not_resolved cluster=%s why=%s", alias, error.cause)
            return before

    def admins(self) -> Mapping[str, ClusterAdmin]:
        touched = {*self.config.sources, *self.config.targets} - {*self.config.lake_clusters}
        return {alias: self.admin(alias) for alias in touched}

    def source(self, alias: str) -> TopicSource:
        cluster = self.config.cluster(alias)
        return LakeTopics(alias, cluster, self.lake) if cluster.is_lake else self.admin(alias)

    def sources(self) -> Mapping[str, TopicSource]:
        return {alias: self.source(alias) for alias in self.config.sources}

    def groups(self, alias: str) -> Groups:
        before = self._groups[alias].options if alias in self._groups else None
        options = {} if self.config.cluster(alias).is_lake else self._resolved(alias, "consumer", before)
        if options != before:
            self._groups[alias] = Groups(alias, options, probes=True)
        return self._groups[alias]

    def ledger(self, flow: FlowConfig) -> LedgerReader:
        """Return a reader of the flow's ledger; the caller closes it."""
        return LedgerReader(flow.target, flow.ledger_topic, self.reader_options(flow.target))

    def filled_topics(self, flow: FlowConfig) -> FilledTopics:
        return FilledTopics(
            flow,
            flows=self.config.flows,
            lake=self.lake,
            audit=self.audit(),
            admin=self.admin(flow.target),
            reader=self.reader,
            ledger=self.ledger,
        )

    def reader(self, alias: str, *, committed: bool = True) -> RecordReader:
        return RecordReader(alias, self.reader_options(alias), committed=committed, probes=True)

    def servers(self, alias: str) -> str:
        """Return the addresses of a cluster's brokers, as written in its settings, or "" for a lake cluster."""
        cluster = self.config.cluster(alias)
        return "" if cluster.is_lake else cluster.servers()

    def reader_options(self, alias: str) -> dict[str, str]:
        """Return librdkafka's options of a consumer of the cluster, or {} for a lake cluster, which has no consumers."""
        cluster = self.config.cluster(alias)
        return {} if cluster.is_lake else librdkafka_options(cluster, role="consumer")

    def producer_options(self, flow: FlowConfig) -> dict[str, str]:
        return librdkafka_options(self.config.cluster(flow.target), role="producer", extra=flow.producer)

    def mm2_writer(self, flow: FlowConfig) -> Mm2Writer:
        if flow.name not in self._mm2_writers:
            cluster, admin = self.config.cluster(flow.target), self.admin(flow.target)
            self._mm2_writers[flow.name] = mm2_writer(flow, cluster, admin, now=self.now)
        return self._mm2_writers[flow.name]
