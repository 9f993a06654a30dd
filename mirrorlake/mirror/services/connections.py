"""Where a mirror is: its session, its lake, its clusters and what a client needs to speak to them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.config.schema.mirror import FlowConfig, MirrorConfig
from mirrorlake.errors import UsageError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.groups import Groups
from mirrorlake.kafka.lane.ledger_reader import LedgerReader
from mirrorlake.kafka.mm2_writer import Mm2Writer
from mirrorlake.kafka.options import librdkafka_options
from mirrorlake.lake.control import Control
from mirrorlake.lake.lake import Lake
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.parked import Parked
from mirrorlake.progress.bars import display_here
from mirrorlake.progress.board import Board, Display
from mirrorlake.publish.producer import LakeProducer
from mirrorlake.publish.publisher import Publisher
from mirrorlake.runtime.jars import jars
from mirrorlake.runtime.java import find_java
from mirrorlake.runtime.session import prepare, session
from mirrorlake.topics.sources import LakeTopics, TopicSource
from mirrorlake.tracking.make import make_tracker
from mirrorlake.tracking.tracker import Tracker


def utc_now() -> datetime:
    """Return the wall clock in UTC; the one clock of the package."""
    return datetime.now(timezone.utc)


def local_session(*, cores: str = "*") -> SparkSession:
    """Return the active Spark session, or start a local one with the pinned connector and Delta jars."""
    if SparkSession.getActiveSession() is not None:
        return session()
    # Spark's launcher looks nowhere else; the variable is read once, when the JVM starts.
    os.environ["JAVA_HOME"] = str(find_java().spark_java_home)
    # Workers run this very interpreter, with the packages that are installed beside it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return session(jars=jars("spark"), cores=cores)


def _unheard(_: object) -> None:
    """Do nothing, in place of a listener."""


class Places:
    """Make the clients that reach the places of one mirror, each once.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.
        display: makes what shows the progress of one call.
    """

    def __init__(
        self,
        config: MirrorConfig,
        *,
        spark: SparkSession | None,
        now: Callable[[], datetime],
        display: Callable[[], Display | None] = display_here,
    ) -> None:
        self.config = config
        self.read_at = now()
        self.now = now
        self._display = display
        self._spark = spark
        self._admins: dict[str, ClusterAdmin] = {}
        self._groups: dict[str, Groups] = {}
        self._keeping = threading.Lock()
        self._mm2_writers: dict[str, Mm2Writer] = {}
        self._publishing = threading.Lock()
        self._publishers: dict[str, Publisher] = {}
        self._made_for: frozenset[str] = frozenset()
        self.forget_listener()

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session."""
        spark = self._spark or local_session()
        prepare(spark)
        return spark

    @cached_property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(lambda: self.spark, self.config.lake)

    def forget_listener(self) -> None:
        """Stop reporting what targets confirm, and what is parked."""
        self.on_commit: Callable[[Sequence[LedgerRecord]], None] = _unheard
        self.on_parked: Callable[[Mapping[str, Parked]], None] = _unheard

    def watching(self) -> Board:
        """Open a board for the progress of one call's work; a context manager for the thread that waits for it."""
        return Board(self._display(), clock=time.monotonic)

    @cached_property
    def tracker(self) -> Tracker:
        """What keeps runs of verifications, where the settings and this machine allow it."""
        return make_tracker(self.config)

    def control(self) -> Control:
        """Return a reader and writer of what a person wants of the mirror."""
        return Control(self.lake, now=self.now)

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster.

        Raises:
            UsageError: it is a lake cluster.
        """
        if alias not in self._admins:
            if self.config.cluster(alias).is_lake:
                raise UsageError(
                    f"{alias} is a lake cluster: applications publish into its relay, and no broker stands behind it",
                    consequence="there is nothing to land, and nothing to take over",
                    remedy=f"mirrorlake publish --cluster {alias} --topic T FILE; its flows carry on what is published",
                )
            options = librdkafka_options(self.config.cluster(alias), role="admin")
            self._admins[alias] = ClusterAdmin(alias, options)
        return self._admins[alias]

    def clusters(self) -> Mapping[str, ClusterAdmin]:
        """Return the admin of every Kafka cluster that a flow touches."""
        touched = {*self.config.sources, *self.config.targets} - {*self.config.lake_clusters}
        return {alias: self.admin(alias) for alias in touched}

    def source(self, alias: str) -> TopicSource:
        """Return a source as steps ask it for its topics, Kafka's or a lake cluster's."""
        cluster = self.config.cluster(alias)
        return LakeTopics(alias, cluster, self.lake) if cluster.is_lake else self.admin(alias)

    def sources(self) -> Mapping[str, TopicSource]:
        """Return every source of a flow."""
        return {alias: self.source(alias) for alias in self.config.sources}

    def ledger(self, flow: FlowConfig) -> LedgerReader:
        """Return a reader of the flow's ledger; the caller closes it."""
        return LedgerReader(flow.target, flow.ledger_topic, self.reader_options(flow.target))

    def reader_options(self, alias: str) -> dict[str, str]:
        """Return librdkafka's options of a consumer of the cluster; none for a lake cluster, which nobody consumes."""
        cluster = self.config.cluster(alias)
        return {} if cluster.is_lake else librdkafka_options(cluster, role="consumer")

    def producer_options(self, flow: FlowConfig) -> dict[str, str]:
        """Return librdkafka's options of the flow's producers."""
        return librdkafka_options(self.config.cluster(flow.target), role="producer", extra=flow.producer)

    def publisher(self, alias: str) -> Publisher:
        """Return the publisher into a lake cluster; all of this mirror's threads share it."""
        with self._publishing:
            if alias not in self._publishers:
                self._publishers[alias] = Publisher(alias, self.config.cluster(alias), self.lake, now=self.now)
            return self._publishers[alias]

    def producer(self, alias: str, config: Mapping[str, Any] | None) -> LakeProducer:
        """Return a new producer into a lake cluster."""
        return LakeProducer(
            self.publisher(alias),
            # One file a batch, which holds its partitions one after another.
            to_frame=lambda rows: self.spark.createDataFrame(rows).coalesce(1),
            config=config,
            now_ms=lambda: int(self.now().timestamp() * 1000),
        )

    def _tables_made(self) -> None:
        # A dozen looks at the lake, which a person who turns pages would wait for each time.
        sources = frozenset(self.config.sources)
        if sources != self._made_for:
            self.lake.create_all(sources)
            self._made_for = sources
