"""The demo (`make demo`): real clusters on this machine, a mirror between them, a proof, and nothing left but the lake.

Everything happens in one thread, so that the main thread stays free to hear Ctrl-C and SIGTERM. Brokers are tied to this
process by the kernel and Spark's JVM by a pipe, so even SIGKILL leaves none of them running.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from place import claim_lake, scratch_directory, with_free_ports
from rich.console import Console

from mirrorlake.cli.app import main
from mirrorlake.cli.command import Invocation, command
from mirrorlake.config.loading import load
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.schema.tracking import TrackingConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import Exact, NoRecord
from mirrorlake.runtime.jar_files import jars
from mirrorlake.sandbox.cluster import KafkaCluster, start_all
from mirrorlake.sandbox.traffic import SampleTraffic, sample_topics, write_sample_traffic

if TYPE_CHECKING:
    from mirrorlake.mirror import Mirror
    from mirrorlake.model.verify import VerifyReport

# A batch under way is given this long after Ctrl-C; then Spark is stopped, which ends whatever still runs on it.
_GRACE_S = 2.0
_LAST_S = 30.0
# A minute's work never earns back what the second compiler costs: a first landing takes 15 CPU-s instead of 75. With one
# compiler the code cache shrinks to 48 MB, which Spark fills within a minute.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_MOST_DIFFERENCES = 10
_COMPARED = ("landed", "republished", "verified")

commands = typer.Typer(pretty_exceptions_enable=False)
console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


@command(commands, conf=Path("conf/demo.yml"))
def demo(
    cli: Invocation, records: Annotated[int, typer.Option("--records", min=100, help="Records per region.")] = 20_000
) -> int:
    """Start the clusters of a settings file, mirror sample traffic between them, verify, and show what happened.

    Exits 0 when everything was mirrored and proven, 1 when verify found a difference.
    """
    config, moved = with_free_ports(load(cli.conf))
    root = claim_lake(config)
    # A lake that the next demo throws away is not the place for runs to compare.
    tracking, lake = TrackingConfig(enabled=False), config.lake.model_copy(update={"root": str(root)})
    config = config.model_copy(update={"tracking": tracking, "lake": lake})
    for alias, (wanted, given) in moved.items():
        console.print(f"{alias}: {wanted} is taken by another process, so the demo uses {given}")
    # Before anything is drawn: a first download shows its own progress.
    jars("broker")
    jars("spark")
    run = Demo(config, records=records)
    if interrupted := until_done(run):
        console.print("interrupted: everything that the demo started has ended")
        return 128 + interrupted
    cli.document(run.document(root))
    run.show(cli, root)
    return 0 if run.equal else 1


@contextmanager
def spark_environment(scratch: Path) -> Iterator[None]:
    """Let the JVM that Spark starts be quick, and keep its temporary files with the demo's."""
    spark = scratch / "spark"
    spark.mkdir()
    before = dict(os.environ)
    os.environ["SPARK_LOCAL_DIRS"] = str(spark)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {_SHORT_LIVED}".strip()
    try:
        yield
    finally:
        for name in ("SPARK_LOCAL_DIRS", "SPARK_SUBMIT_OPTS"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


class InterruptedDemo(Exception):
    """The user asked the demo to stop."""


@dataclass(frozen=True, kw_only=True)
class Translated:
    """An upstream offset after an aborted transaction, its downstream offset, and the way back; one aborted offset."""

    flow: str
    topic: str
    partition: int
    upstream_offset: int
    remote_topic: str
    downstream_offset: int | None
    back_to: int | None
    aborted_offset: int
    aborted_status: str
    resume_at: int | None


class Demo:
    """One demo from the first broker to the proof, and what happened in it."""

    def __init__(self, config: MirrorConfig, *, records: int) -> None:
        self.stop = threading.Event()
        self.mirror: Mirror | None = None
        self._config = config
        self._records = records
        self._seconds: dict[str, float] = {}
        self._traffic: Mapping[str, SampleTraffic] = {}
        self._counts = dict.fromkeys(("written", "aborted", "landed", "republished", "verified"), 0)
        self._flows: list[VerifyReport] = []
        self._relays: dict[str, tuple[int, int]] = {}
        self._translated: Translated | None = None

    @property
    def equal(self) -> bool:
        """Tell whether everything that was written is on the targets, in its place and unchanged."""
        found = self._translated
        is_exact = found is not None and found.downstream_offset is not None and found.back_to == found.upstream_offset
        counts = {count for name, count in self._counts.items() if name != "aborted"}
        return is_exact and len(counts) == 1 and all(flow.equal for flow in self._flows)

    def work(self) -> None:
        """Do it all, and clean up on every way out."""
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_directory())
            stack.enter_context(spark_environment(scratch))
            clusters = {
                alias: self._cluster(alias, scratch) for alias in sorted({*self._config.sources, *self._config.targets})
            }
            for cluster in clusters.values():
                stack.callback(cluster.kill)
            stack.callback(self.stop_spark)
            with self._phase("set_up", f"starting {len(clusters)} Kafka clusters and Spark, writing sample traffic"):
                mirror, self._traffic = side_by_side([self._start_spark, lambda: self._start_clusters(clusters)])
            self._counts["written"] = sum(one.records for one in self._traffic.values())
            self._counts["aborted"] = sum(sum(one.aborted.values()) for one in self._traffic.values())
            console.print(f"  {self._counts['written']:,} records wait on {' and '.join(self._traffic)}")
            self._run(mirror)

    def stop_spark(self) -> None:
        """End Spark and with it whatever still runs there."""
        mirror, self.mirror = self.mirror, None
        if mirror is not None:
            # It may already have ended.
            with suppress(Exception):
                mirror.spark.stop()

    def _cluster(self, alias: str, scratch: Path) -> KafkaCluster:
        port = int(self._config.cluster(alias).servers().rpartition(":")[2])
        return KafkaCluster(alias, port=port, directory=scratch / alias)

    def _start_spark(self) -> Mirror:
        from mirrorlake.mirror import Mirror
        from mirrorlake.runtime.session import local_session

        self.mirror = mirror = Mirror(self._config, spark=local_session(), display=lambda: None)
        self._check()
        mirror.lake.create_all(self._config.sources)
        return mirror

    def _start_clusters(self, clusters: dict[str, KafkaCluster]) -> dict[str, SampleTraffic]:
        start_all(clusters.values())
        self._check()
        writers = [self._writer(clusters[alias]) for alias in self._config.sources]
        return dict(zip(self._config.sources, side_by_side(writers), strict=True))

    def _writer(self, cluster: KafkaCluster) -> Callable[[], SampleTraffic]:
        topics = sample_topics(self._config.flows_from(cluster.alias))
        return lambda: write_sample_traffic(
            cluster.bootstrap_servers, region=cluster.alias, records=self._records, topics=topics
        )

    def _run(self, mirror: Mirror) -> None:
        sources, flows = self._config.sources, [flow.name for flow in self._config.flows]
        with self._phase("land", f"landing {' and '.join(sources)} in the relay"):
            landed = side_by_side([self._stream(mirror.land, alias) for alias in sources])
        self._counts["landed"] = sum(one.records for one in landed)
        with self._phase("republish", f"republishing {len(flows)} flows into {' and '.join(self._config.targets)}"):
            sent = side_by_side([self._stream(mirror.republish, flow) for flow in flows])
        self._counts["republished"] = sum(one.records for one in sent)
        with self._phase("verify", "comparing source, relay and target, record by record"):
            self._flows = list(mirror.verify())
        self._counts["verified"] = sum(flow.verified for flow in self._flows)
        self._relays = {alias: mirror.lake.size(mirror.lake.relay_location(alias)) for alias in sources}
        self._translated = self._translate(mirror)
        self._check()

    def _stream(self, verb: Callable[..., Any], name: str) -> Callable[[], Any]:
        return lambda: verb(name, once=True, stop=self.stop)

    def _translate(self, mirror: Mirror) -> Translated | None:
        """Translate the offset after an aborted transaction there and back, and one inside of it."""
        for flow in mirror.flows:
            for tp, offset in sorted(self._traffic[flow.config.source].after_abort.items()):
                if not flow.config.carries(tp.topic):
                    continue
                there = flow.offsets.translate(tp.topic, tp.partition, offset)
                # Right before it stands the abort marker, and before that a record that nobody reads.
                aborted = flow.offsets.translate(tp.topic, tp.partition, offset - 2)
                remote = flow.config.remote_topic(tp.topic)
                back = None
                if isinstance(there, Exact):
                    back = flow.offsets.translate_back(remote, there.partition.partition, there.offset)
                return Translated(
                    flow=flow.name,
                    topic=tp.topic,
                    partition=tp.partition,
                    upstream_offset=offset,
                    remote_topic=remote,
                    downstream_offset=there.offset if isinstance(there, Exact) else None,
                    back_to=back.offset if isinstance(back, Exact) else None,
                    aborted_offset=offset - 2,
                    aborted_status=aborted.status,
                    resume_at=aborted.resume_at if isinstance(aborted, NoRecord) else None,
                )
        return None

    @contextmanager
    def _phase(self, name: str, doing: str) -> Iterator[None]:
        """Show a phase while it lasts, with a spinner on a terminal, and its length when it went well."""
        self._check()
        began = time.monotonic()
        if console.is_terminal:
            with console.status(doing):
                yield
        else:
            console.print(f"… {doing}")
            yield
        self._seconds[name] = round(time.monotonic() - began, 2)
        console.print(f"✓ {doing}  {self._seconds[name]:.1f} s")
        self._check()

    def _check(self) -> None:
        if self.stop.is_set():
            raise InterruptedDemo

    def _written(self, flow: str, topic: str, partition: int) -> int:
        traffic = self._traffic[self._config.flow(flow).source]
        return traffic.committed.get(TopicPartition(topic, partition), 0)

    def document(self, root: Path) -> dict[str, Any]:
        """Return what happened as the JSON document."""
        return {
            "equal": self.equal,
            "lake": str(root),
            "records": self._counts,
            "flows": self._flows,
            "translation": self._translated,
            "relays": {alias: {"files": files, "bytes": size} for alias, (files, size) in self._relays.items()},
            "seconds": {**self._seconds, "total": round(sum(self._seconds.values()), 2)},
        }

    def show(self, cli: Invocation, root: Path) -> None:
        """Print what happened for people."""
        columns = ["flow", "remote topic", "partitions", "written", "landed", "republished", "verified", ""]
        cli.table("", columns, [row for flow in self._flows for row in self._rows(flow)])
        counts = self._counts
        if self.equal:
            cli.say(f"\n✓ All {counts['verified']:,} records are on {' and '.join(self._config.targets)} once,")
            cli.say(f"  in order and unchanged; the {counts['aborted']:,} records of aborted transactions are not.")
        else:
            cli.say(
                f"\n✗ {counts['written']:,} records were written, {counts['verified']:,} are proven to have arrived."
            )
        for flow in self._flows:
            for found in flow.differences[:_MOST_DIFFERENCES]:
                cli.say(f"  {flow.flow}: {found.where}: {found.problem} {found.topic}-{found.partition}@{found.offset}")
            if (more := len(flow.differences) - _MOST_DIFFERENCES) > 0:
                cli.say(f"  {flow.flow}: and {more} more")
        self._show_translation(cli)
        cli.say()
        for alias, (files, size) in self._relays.items():
            cli.say(f"Relay of {alias}: {files} files, {size / 1e6:.1f} MB in {short(root / 'relay' / alias)}")
        speed = (("landed", "land"), ("republished", "republish"), ("verified", "verify"))
        rates = ", ".join(f"{what} {counts[what] / self._seconds[phase]:,.0f}" for what, phase in speed)
        cli.say(f"Records a second: {rates}; {sum(self._seconds.values()):.0f} s in all.")
        cli.say("  That is a Spark that starts and warms up; `make bench` measures throughput.\n\nNext")
        for what, line in self._next(root):
            cli.say(f"  {what}:\n    {line}")

    def _rows(self, flow: VerifyReport) -> Iterator[tuple[Any, ...]]:
        for topic in dict.fromkeys(proof.topic for proof in flow.partitions):
            proofs = [proof for proof in flow.partitions if proof.topic == topic]
            written = sum(self._written(flow.flow, topic, proof.partition) for proof in proofs)
            counts = [written, *(sum(getattr(proof, name) for proof in proofs) for name in _COMPARED)]
            mark = "✓" if len(set(counts)) == 1 else "✗"
            yield flow.flow, self._config.flow(flow.flow).remote_topic(topic), len(proofs), *counts, mark

    def _show_translation(self, cli: Invocation) -> None:
        found = self._translated
        if found is None:
            return
        flow = self._config.flow(found.flow)
        upstream = f"{flow.source} {found.topic}-{found.partition}@{{}}".format
        downstream = f"{flow.target} {found.remote_topic}-{found.partition}@{{}}".format
        cli.say("\nOffsets next to an aborted transaction")
        if found.downstream_offset is None:
            cli.say(f"  ✗ {upstream(found.upstream_offset)} has no counterpart")
        else:
            cli.say(f"  {upstream(found.upstream_offset)}  ->  {downstream(found.downstream_offset)}")
            cli.say(f"  {downstream(found.downstream_offset)}  ->  {upstream(found.back_to)}")
        if found.resume_at is not None:
            goes_on = downstream(found.resume_at)
            cli.say(f"  {upstream(found.aborted_offset)}  ->  aborted; a reader goes on at {goes_on}")

    def _next(self, root: Path) -> Iterator[tuple[str, str]]:
        relay = root / "relay" / next(iter(self._relays), "east")
        query = f"SELECT topic, count(*) AS records, max(timestamp) AS newest FROM delta.`{relay}` GROUP BY topic"  # noqa: S608
        code = f'import mirrorlake as ml; ml.load("{self._config.path}").spark.sql("{query}").show(truncate=False)'
        yield "ask the relay with SQL", f"{short(Path(sys.executable))} -c {shlex.quote(code)}"
        yield "walk through it in a notebook", "make lab"
        command = short(Path(sys.executable).with_name("mirrorlake"))
        yield "mirror your own clusters", f"cp conf/example.yml conf/mirror.yml, edit it, then {command} doctor"


def until_done(run: Demo) -> int:
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


def side_by_side(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results in order; the first error is raised once all have come to their end."""
    with ThreadPoolExecutor(max_workers=len(calls), thread_name_prefix="mirrorlake-demo") as pool:
        futures = [pool.submit(call) for call in calls]
    errors = [error for future in futures if (error := future.exception())]
    # An own error says more than what it led to elsewhere.
    for error in sorted(errors, key=lambda error: not isinstance(error, MirrorlakeError)):
        raise error
    return [future.result() for future in futures]


def short(path: Path) -> str:
    """Return a path as it is typed here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


if __name__ == "__main__":
    main(commands=commands)
