"""MirrorMaker 2 from its jars: dedicated mode, one JVM of 1 GB, tuned and exactly-once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager

from mirrorlake.sandbox.mirror_maker import MirrorMaker, base_properties
from mirrorlake.sandbox.ports import LOOPBACK, free_ports
from tests.bench.contest import Contest
from tests.bench.copies import IncompleteCopy
from tests.bench.processes import ProcessTree, Stopwatch
from tests.bench.results import MM2, Book

_START_S = 300.0
_COPY_S = 1800.0


def fan_out(source: str, targets: Sequence[str], servers: Mapping[str, str], *, rest_port: int) -> dict[str, str]:
    """Return `mm2.properties` of one process with a flow to each target."""
    found: dict[str, str] = {}
    for target in targets:
        found |= {
            **base_properties(source, target, servers, topics=r"bench\..*", interval_s=5),
            f"{target}.producer.batch.size": "1000000",
            f"{target}.producer.linger.ms": "20",
            f"{target}.producer.compression.type": "lz4",
            f"{target}.exactly.once.source.support": "enabled",
        }
        # Unless told otherwise, it sends heartbeats between every two clusters that it knows.
        for other in targets:
            if other != target:
                found |= {f"{target}->{other}.enabled": "false", f"{target}->{other}.emit.heartbeats.enabled": "false"}
    return {
        **found,
        "clusters": ",".join([source, *targets]),
        "tasks.max": "2",
        "sync.group.offsets.enabled": "true",
        f"{source}.consumer.max.poll.records": "5000",
        f"{source}.consumer.max.partition.fetch.bytes": "8388608",
        f"{source}.consumer.isolation.level": "read_committed",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{LOOPBACK}:{rest_port}",
    }


def drain(number: int, contest: Contest, book: Book, *, case: str) -> None:
    """Run MM2 until every target is complete; counted from its first mirrored record."""
    # An alias of its own a pass: a worker that is gone blocks its group for a minute.
    source = f"mm2pass{number}"
    copies = contest.copies(lambda name: f"{source}.{name}")
    with running(source, contest) as process:

        def alive() -> None:
            if process.poll() is not None:
                raise IncompleteCopy(f"MM2 ended with {process.returncode}")

        watch = Stopwatch(ProcessTree(process.pid), contest.brokers)
        with ThreadPoolExecutor(len(copies)) as pool:
            firsts = [pool.submit(copy.await_first, alive, patience_s=_START_S) for copy in copies]
            wait(firsts, return_when=FIRST_COMPLETED)
            watch.restart()
            for first in firsts:
                first.result()
        for copy in copies:
            copy.await_complete(alive, patience_s=_COPY_S)
        used = watch.read()
    for copy in copies:
        copy.prove()
    contest.clean()
    book.keep(
        "drain",
        case,
        used.values(contest.records),
        mode="from its first record",
        subject=MM2,
        workload=contest.workload,
        others_cores=used.strangers_cores,
    )


@contextmanager
def running(source: str, contest: Contest) -> Iterator[subprocess.Popen[bytes]]:
    """Run MM2 from the source, under an alias, to every target."""
    (rest_port,) = free_ports(1)
    targets = {target.alias: target.bootstrap_servers for target in contest.targets}
    servers = {source: contest.source.bootstrap_servers, **targets}
    settings = fan_out(source, list(targets), servers, rest_port=rest_port)
    mirror = MirrorMaker(contest.directory / source, settings, java_options=("-Xms1g", "-Xmx1g"))
    try:
        yield mirror.process
    except IncompleteCopy as error:
        raise IncompleteCopy(f"{error}; its last words:\n{mirror.last_words()}") from error
    finally:
        mirror.stop()
