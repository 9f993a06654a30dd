"""A mirror on a standalone Spark cluster of this machine: a drain and steady rates, with workers of one core each.

Each worker, its executor and its Python processes are pinned to a core of their own; the brokers, the driver and the load
share these cores, so figures of two workers on a machine of two cores show no gain that two machines would. The time of a
drain counts from `spark-submit` to its end, CPU-seconds are those of driver, master and workers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psutil

from tests.bench.always_on import LIVE, Subject, Watcher, write_settings
from tests.bench.contest import Contest
from tests.bench.copies import IncompleteCopy
from tests.bench.options import Options
from tests.bench.processes import ProcessTree, watch_to_end
from tests.bench.results import MIRRORLAKE, Book, Say
from tests.servers.spark_cluster import SparkCluster

# A source, two lanes, and two for everything else.
_SLOTS, _LIVE_SLOTS = 5, 3
_DRAINED_S = 1200.0


def measure(options: Options, book: Book, say: Say) -> None:
    """Measure each number of workers, on brokers of its own."""
    for count in options.workers:
        book.attempt(f"{_case(count)}", partial(_one, count, options, book, say))


def _case(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''} of 1 core"


def _one(count: int, options: Options, book: Book, say: Say) -> None:
    with options.contest(say) as contest, _cluster(contest, count) as cluster:
        contest.create([*contest.topics, LIVE])
        contest.write(contest.topics)
        write_settings(contest)
        book.attempt(f"drain, {_case(count)}", partial(_drain, cluster, contest, book, _case(count)))
        with (
            _submitted(cluster, contest, spark_mirrorlake_liveSlots=str(_LIVE_SLOTS)) as driver,
            Watcher(contest.targets[0].bootstrap_servers, f"{contest.source.alias}.{LIVE.name}") as watcher,
        ):
            subject = Subject(
                *(MIRRORLAKE, contest.source.alias, driver, contest, options, book),
                beside=cluster.pids,
                cluster=_case(count),
            )
            subject.start(watcher)
            for rate in options.rates:
                subject.steady(watcher, rate)


def _drain(cluster: SparkCluster, contest: Contest, book: Book, case: str) -> None:
    with _submitted(cluster, contest, "--once") as driver:
        tree = ProcessTree(driver.pid, *cluster.pids)
        used = watch_to_end(driver, tree, contest.brokers, patience_s=_DRAINED_S)
        if driver.returncode != 0:
            raise IncompleteCopy(f"the drain ended with {driver.returncode}")
    for copy in contest.copies(lambda name: f"{contest.source.alias}.{name}"):
        copy.prove(exactly_once=True)
    book.keep(
        "cluster, drain",
        case,
        {"seconds": used.seconds} | used.values(contest.records),
        mode="run --once, cold",
        workload=contest.workload,
        others_cores=used.strangers_cores,
    )


@contextmanager
def _cluster(contest: Contest, workers: int) -> Iterator[SparkCluster]:
    folder = contest.directory / "cluster"
    folder.mkdir()
    cluster = SparkCluster(folder, workers=workers, slots=_SLOTS, pinned=True)
    try:
        cluster.start()
        contest.say(f"{_case(workers)}")
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def _submitted(
    cluster: SparkCluster, contest: Contest, *arguments: str, **conf: str
) -> Iterator[subprocess.Popen[bytes]]:
    log = contest.directory / "driver.log"
    driver = cluster.submit(log, "run", "--conf", str(contest.directory / "mirror.yml"), *arguments, **conf)
    try:
        yield driver
    except IncompleteCopy as error:
        raise IncompleteCopy(f"{error}; its last words:\n{log.read_text(errors='replace')[-2000:]}") from error
    finally:
        # The JVM of spark-submit, and its Python process, which would outlive it.
        if driver.poll() is None:
            for process in [*psutil.Process(driver.pid).children(recursive=True), driver]:
                process.kill()
            driver.wait()
