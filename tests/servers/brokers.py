"""Real brokers as fixtures: `east` and `central` live as long as the run, `west` for a file, `make_cluster` makes one for a test.

A broker starts when the first test asks for it: one at rest takes 1.3 % of a core, and there are as many as processes of
pytest. Tests share them and keep apart by the names that `new_topic` and `topic_name` of the kit give. What breaks a broker
uses `make_cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from mirrorlake.runtime.jar_files import jars
from mirrorlake.sandbox import KafkaCluster, properties

_LOG_LINES = 30
# With 300 topics, the default of twice a second takes half of the CPU of a broker at rest; what waits for it waits 2 s longer.
properties._DEFAULTS = {**properties._DEFAULTS, "log.retention.check.interval.ms": 3_000}


@lru_cache(maxsize=32)
def admin_of(bootstrap_servers: str) -> AdminClient:
    """Return one admin client per address: its futures die with it, so it is kept."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


@pytest.fixture(scope="session")
def shared_clusters(request: pytest.FixtureRequest) -> Iterator[Callable[[str], KafkaCluster]]:
    """Start the cluster that a test names, and wait for it; what nearly every test names together starts side by side."""
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    pair = {"east", "central"} & wanted
    clusters: dict[str, KafkaCluster] = {}
    starts: dict[str, Future[KafkaCluster]] = {}
    request.config.stash[_CLUSTERS] = clusters
    jars("broker")
    with ThreadPoolExecutor() as pool:

        def started(alias: str) -> KafkaCluster:
            for one in {alias} | (pair if alias in pair else set()):
                if one not in clusters:
                    clusters[one] = KafkaCluster(one)
                    starts[one] = pool.submit(clusters[one].start)
            return starts[alias].result()

        yield started
    for cluster in clusters.values():
        cluster.kill()


_CLUSTERS: pytest.StashKey[dict[str, KafkaCluster]] = pytest.StashKey()


@pytest.fixture(scope="session")
def east(shared_clusters: Callable[[str], KafkaCluster]) -> KafkaCluster:
    return shared_clusters("east")


@pytest.fixture(scope="module")
def west(request: pytest.FixtureRequest, shared_clusters: Callable[[str], KafkaCluster]) -> Iterator[KafkaCluster]:
    """Run the third cluster for one file: few need it, and two minutes at rest cost as much as a start."""
    yield shared_clusters("west")
    request.config.stash[_CLUSTERS].pop("west").kill()


@pytest.fixture(scope="session")
def central(shared_clusters: Callable[[str], KafkaCluster]) -> KafkaCluster:
    return shared_clusters("central")


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., KafkaCluster]]:
    """Make clusters for one test from `KafkaCluster`'s arguments, not yet started; they are killed at its end."""
    made: list[KafkaCluster] = []

    def make(alias: str = "own", **options: Any) -> KafkaCluster:
        made.append(KafkaCluster(alias, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        for alias, cluster in item.config.stash.get(_CLUSTERS, {}).items():
            if alias in getattr(item, "fixturenames", ()) and cluster.log_path.exists():
                lines = cluster.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
                report.sections.append((f"broker {alias}", "\n".join(lines)))
    return report
