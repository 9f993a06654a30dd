"""The demo: real clusters on this machine, a mirror between them, a proof, and nothing left behind but the lake.

Everything happens in one thread, so that the main thread stays free to hear Ctrl-C and SIGTERM. Brokers are tied to this
process by the kernel and Spark's JVM by a pipe, so even SIGKILL leaves none of them running.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from mirrorlake.cli.demo.place import claim_lake, demo_clusters, scratch_directory, topics_for
from mirrorlake.cli.demo.report import DemoOffset, Progress, Story, document, show
from mirrorlake.cli.output import Output
from mirrorlake.config.load import load as load_config
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.schema.tracking import TrackingConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.runtime.jars import jars
from mirrorlake.sandbox.cluster import KafkaCluster, start_all
from mirrorlake.sandbox.properties import JAVA_OPTIONS
from mirrorlake.sandbox.traffic import SampleTraffic, write_sample_traffic

if TYPE_CHECKING:
    from mirrorlake.mirror import Mirror

T = TypeVar("T")

# A batch under way is given this long after Ctrl-C; then Spark is stopped, which ends whatever still runs on it.
_GRACE_S = 2.0
_LAST_S = 30.0
# A minute's work never earns back what the second compiler costs: a first landing takes 15 CPU-s instead of 75, three
# brokers take 19 instead of 31.
_ONE_COMPILER = "-XX:TieredStopAtLevel=1"
# With one compiler the code cache shrinks to 48 MB, which Spark fills within a minute.
_SHORT_LIVED = f"{_ONE_COMPILER} -XX:ReservedCodeCacheSize=240m"


def run_demo(conf: Path, *, records: int, output: Output) -> int:
    """Start the clusters of a settings file, mirror sample traffic between them, verify, and show what happened.

    Args:
        conf: settings whose clusters are on this machine; ports that are taken are replaced by free ones.
        records: how many records each source cluster gets.
        output: where the result goes; progress goes to standard error.

    Returns:
        0 when everything was mirrored and proven, 1 when verify found a difference, 130 or 143 when interrupted.

    Raises:
        UsageError: the settings name clusters or a lake that are not on this machine, or the lake is not the demo's.
        SandboxError: a broker did not start.
    """
    config, moved = demo_clusters(load_config(conf))
    # A lake that the next demo throws away is not the place for runs to compare.
    config = config.model_copy(update={"tracking": TrackingConfig(enabled=False)})
    root = claim_lake(config)
    config = config.model_copy(update={"lake": config.lake.model_copy(update={"root": str(root)})})
    progress = Progress()
    for alias, (wanted, given) in moved.items():
        progress.say(f"{alias}: {wanted} is taken by another process, so the demo uses {given}")
    # Before anything is drawn: a first download shows its own progress.
    jars("broker")
    jars("spark")
    run = _Run(conf, config, root, records=records, progress=progress)
    interrupted = _until_done(run)
    if interrupted:
        progress.say("interrupted: everything that the demo started has ended")
        return 128 + interrupted
    story = run.story
    output.document(document(story))
    show(story, output)
    return 0 if story.equal else 1


class _Interrupted(Exception):
    """The user asked the demo to stop."""


class _Run:
    """One demo from the first broker to the proof; `story` tells it afterwards."""

    def __init__(self, conf: Path, config: MirrorConfig, root: Path, *, records: int, progress: Progress) -> None:
        self.stop = threading.Event()
        self.mirror: Mirror | None = None
        self.story = Story(conf=conf, config=config, root=root)
        self._config = config
        self._records = records
        self._progress = progress

    def work(self) -> None:
        """Do it all, and clean up on every way out."""
        aliases = sorted({*self._config.sources, *self._config.targets})
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_directory())
            stack.enter_context(_spark_environment(scratch))
            clusters = {alias: self._cluster(alias, scratch) for alias in aliases}
            for cluster in clusters.values():
                stack.callback(cluster.kill)
            stack.callback(self.stop_spark)
            mirror = self._set_up(clusters)
            self._mirror(mirror)
            self._look(mirror)

    def stop_spark(self) -> None:
        """End Spark and with it whatever still runs there."""
        mirror, self.mirror = self.mirror, None
        if mirror is not None:
            # It may already have ended.
            with suppress(Exception):
                mirror.spark.stop()

    def _cluster(self, alias: str, scratch: Path) -> KafkaCluster:
        port = int(self._config.cluster(alias).servers().rpartition(":")[2])
        options = (*JAVA_OPTIONS, _ONE_COMPILER)
        return KafkaCluster(alias, port=port, directory=scratch / alias, java_options=options)

    def _set_up(self, clusters: dict[str, KafkaCluster]) -> Mirror:
        with self._phase("set_up", f"starting {len(clusters)} Kafka clusters and Spark, writing sample traffic"):
            mirror, traffic = _side_by_side([self._start_spark, lambda: self._start_clusters(clusters)])
        self.story.traffic = traffic
        self._progress.say(f"  {sum(t.records for t in traffic.values()):,} records wait on {_and(traffic)}")
        return mirror  # type: ignore[no-any-return]  # _side_by_side knows no single type

    def _start_spark(self) -> Mirror:
        from mirrorlake.mirror import Mirror
        from mirrorlake.mirror.services import local_session

        self.mirror = mirror = Mirror(self._config, spark=local_session(), display=lambda: None)
        self._check()
        mirror.lake.create_all(self._config.sources)
        return mirror

    def _start_clusters(self, clusters: dict[str, KafkaCluster]) -> dict[str, SampleTraffic]:
        start_all(clusters.values())
        self._check()
        sources = self._config.sources
        written = _side_by_side([self._writer(clusters[alias]) for alias in sources])
        return dict(zip(sources, written, strict=True))

    def _writer(self, cluster: KafkaCluster) -> Callable[[], SampleTraffic]:
        return lambda: write_sample_traffic(
            cluster.bootstrap_servers,
            region=cluster.alias,
            records=self._records,
            topics=topics_for(self._config, cluster.alias),
        )

    def _mirror(self, mirror: Mirror) -> None:
        sources, flows = self._config.sources, [flow.name for flow in self._config.flows]
        with self._phase("land", f"landing {_and(sources)} in the relay"):
            landed = _side_by_side([self._stream(mirror.land, alias) for alias in sources])
        self.story.landed = sum(one.records for one in landed)
        with self._phase("republish", f"republishing {len(flows)} flows into {_and(self._config.targets)}"):
            sent = _side_by_side([self._stream(mirror.republish, flow) for flow in flows])
        self.story.republished = sum(one.records for one in sent)

    def _stream(self, verb: Callable[..., T], name: str) -> Callable[[], T]:
        return lambda: verb(name, once=True, stop=self.stop)

    def _look(self, mirror: Mirror) -> None:
        with self._phase("verify", "comparing source, relay and target, record by record"):
            self.story.flows = tuple(_side_by_side([flow.verify for flow in mirror.flows]))
        self.story.relays = {
            alias: mirror.lake.size(mirror.lake.relay_location(alias)) for alias in self._config.sources
        }
        self.story.translated = self._translate(mirror)
        self._check()

    def _translate(self, mirror: Mirror) -> DemoOffset | None:
        """Translate the offset after an aborted transaction there and back, and one inside of it."""
        for flow in mirror.flows:
            places = self.story.traffic[flow.config.source].after_abort
            for tp, offset in sorted(places.items()):
                if flow.config.carries(tp.topic):
                    there = flow.offsets.translate(tp.topic, tp.partition, offset)
                    # Right before it stands the abort marker, and before that a record that nobody reads.
                    aborted = flow.offsets.translate(tp.topic, tp.partition, offset - 2)
                    return DemoOffset.of(flow, tp, offset, there=there, aborted=aborted)
        return None

    @contextmanager
    def _phase(self, name: str, doing: str) -> Iterator[None]:
        self._check()
        with self._progress.phase(doing) as clock:
            yield
        self._check()
        self.story.seconds[name] = clock.seconds

    def _check(self) -> None:
        if self.stop.is_set():
            raise _Interrupted


def _until_done(run: _Run) -> int:
    """Let the run work in a thread; return the number of the signal that ended it early, 0 for none."""
    failure: list[BaseException] = []
    received: list[int] = []

    def work() -> None:
        try:
            run.work()
        except BaseException as error:  # raised below, in the main thread
            failure.append(error)

    def hear(number: int, _: FrameType | None) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        run.stop.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread = threading.Thread(target=work, name="mirrorlake-demo", daemon=True)
        thread.start()
        while thread.is_alive() and not received:
            thread.join(0.2)
        if received:
            thread.join(_GRACE_S)
            run.stop_spark()
            thread.join(_LAST_S)
            if thread.is_alive():
                os._exit(128 + received[0])
            return received[0]
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    if failure:
        raise failure[0]
    return 0


def _side_by_side(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results in order; the first error is raised once all have come to their end."""
    with ThreadPoolExecutor(max_workers=len(calls), thread_name_prefix="mirrorlake-demo") as pool:
        futures = [pool.submit(call) for call in calls]
    errors = [error for future in futures if (error := future.exception())]
    # An own error says more than what it led to elsewhere.
    for error in sorted(errors, key=lambda error: not isinstance(error, MirrorlakeError)):
        raise error
    return [future.result() for future in futures]


@contextmanager
def _spark_environment(scratch: Path) -> Iterator[None]:
    """Let the JVM that Spark starts be quick, and keep its temporary files with the demo's."""
    spark = scratch / "spark"
    spark.mkdir()
    wanted = {
        "SPARK_LOCAL_DIRS": str(spark),
        "SPARK_SUBMIT_OPTS": " ".join(filter(None, [os.environ.get("SPARK_SUBMIT_OPTS"), _SHORT_LIVED])),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _and(names: Iterator[str] | Sequence[str] | dict[str, Any]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
