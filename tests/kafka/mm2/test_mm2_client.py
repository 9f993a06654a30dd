"""What mirrorlake writes in MirrorMaker's place, asked for by the Java client that reads it (connect-mirror-client 4.3.1).

Two brokers and one JVM for the whole file: everything is written first, then every question is asked at once.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config.loading import loads
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.ledger_reader import LedgerReader, ledger_spec
from mirrorlake.kafka.mm2_internal import Mm2Writer, mm2_topics
from mirrorlake.kafka.record_reader import RecordReader
from mirrorlake.mm2.emit import mm2_duties
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.mm2 import Checkpoint, Heartbeat, OffsetSync, decode_all
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.plan import TopicSpec
from mirrorlake.runtime.jar_files import classpath, jars
from mirrorlake.runtime.java import find_java
from mirrorlake.runtime.periodic import PeriodicTasks
from mirrorlake.sandbox import KafkaCluster
from tests.builders import ledger_record, run
from tests.kit.records import send

SOURCE_FILE = (Path(__file__).parents[1] / "java") / "ClientCheck.java"
FORMATTERS = "org.apache.kafka.connect.mirror.formatters"
DEFAULT = ""
IDENTITY = (
    "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy;source.cluster.alias=region"
)
UNDERSCORE = "replication.policy.separator=_"
NOW = 1_790_000_000_123

EDGE = [
    Checkpoint("billing", "edge.orders", 0, 1000, 987),
    Checkpoint("billing", "edge.orders", 1, 7, 7, "mé"),
    Checkpoint("grüppe-ключ", "edge.orders", 0, 0, 0),
    Checkpoint("rewound", "edge.orders", 0, 1000, 987),
]
REWOUND = Checkpoint("rewound", "edge.orders", 0, 100, 98)

QUESTIONS = {
    "two partitions and metadata": (DEFAULT, "translateOffsets", "edge", "billing"),
    "utf-8 group": (DEFAULT, "translateOffsets", "edge", "grüppe-ключ"),
    "rewound group": (DEFAULT, "translateOffsets", "edge", "rewound"),
    "unknown group": (DEFAULT, "translateOffsets", "edge", "nobody"),
    "groups by pattern": (DEFAULT, "translateOffsetsOfGroups", "edge", "bill.*|rew.*"),
    "identity": (IDENTITY, "translateOffsets", "region", "billing"),
    "own separator": (UNDERSCORE, "translateOffsets", "plant", "billing"),
    "hops: the source": (DEFAULT, "replicationHops", "edge"),
    "hops: before the source": (DEFAULT, "replicationHops", "far"),
    "hops: unknown": (DEFAULT, "replicationHops", "nowhere"),
    "hops: identity": (IDENTITY, "replicationHops", "region"),
    "upstream": (DEFAULT, "upstreamClusters"),
    "upstream: identity": (IDENTITY, "upstreamClusters"),
    "upstream: own separator": (UNDERSCORE, "upstreamClusters"),
    "heartbeat topics": (DEFAULT, "heartbeatTopics"),
    "checkpoint topics": (DEFAULT, "checkpointTopics"),
    "checkpoint topics: own separator": (UNDERSCORE, "checkpointTopics"),
    "remote topics": (DEFAULT, "remoteTopics", "edge"),
    "format checkpoints": (DEFAULT, "format", "edge.checkpoints.internal", f"{FORMATTERS}.CheckpointFormatter"),
    "format syncs": (DEFAULT, "format", "mm2-offset-syncs.edge.internal", f"{FORMATTERS}.OffsetSyncFormatter"),
    "format heartbeats": (DEFAULT, "format", "heartbeats", f"{FORMATTERS}.HeartbeatFormatter"),
    "format remote heartbeats": (DEFAULT, "format", "edge.heartbeats", f"{FORMATTERS}.HeartbeatFormatter"),
    "format heartbeats of two hops": (DEFAULT, "format", "edge.far.heartbeats", f"{FORMATTERS}.HeartbeatFormatter"),
}


class Site:
    """Two clusters, and the means to speak for a flow between them."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.addresses = {"source": source.bootstrap_servers, "target": target.bootstrap_servers}
        self.source, self.target = (ClusterAdmin(name, self.options(name)) for name in ("source", "target"))

    def options(self, end: str) -> dict[str, str]:
        return {"bootstrap.servers": self.addresses[end], "linger.ms": "5"}

    def flow(self, source: str, **settings: Any) -> FlowConfig:
        entry = {"source": source, "target": "core", "topics": "orders", "lanes": 2, **settings}
        clusters = {alias: {"bootstrap_servers": "unused:1"} for alias in (source, "core")}
        return loads(json.dumps({"lake": {"root": "x"}, "clusters": clusters, "flows": [entry]})).flows[0]

    def writer(self, flow: FlowConfig) -> Mm2Writer:
        target = self.options("target")
        reader = {"bootstrap.servers": self.addresses["target"]}
        return Mm2Writer(flow, self.target, producer_options=target, reader_options=reader, now_ms=lambda: NOW)

    def do_duties(self, flow: FlowConfig, writer: Mm2Writer) -> None:
        duties = mm2_duties(
            flow,
            writer,
            source=self.source,
            target=self.target,
            source_options={"bootstrap.servers": self.addresses["source"]},
            target_options={"bootstrap.servers": self.addresses["target"]},
            landed=lambda: NOW,
        )
        PeriodicTasks(flow.name, duties).run_all()

    def put(self, end: str, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
        admin = self.source if end == "source" else self.target
        admin.create(TopicSpec(name=topic, partitions=1))
        send(self.addresses[end], topic, [(value, key, 0) for key, value in records])

    def commit(self, flow: FlowConfig, lane: int, *runs: MappedRange, seq: int = 0) -> None:
        """Write a ledger record as a lane would."""
        record = ledger_record(flow=flow.name, lane=lane, lanes=2, seq=seq, runs=runs)
        send(self.addresses["target"], flow.ledger_topic, [(record.to_json(), str(lane).encode(), lane)])

    def syncs(self, topic: str) -> list[OffsetSync]:
        with RecordReader("target", {"bootstrap.servers": self.addresses["target"]}) as reader:
            return decode_all(topic, reader.read(topic, 0), OffsetSync.from_record).values


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with (
        KafkaCluster("source") as source,
        KafkaCluster("target") as target,
    ):
        yield Site(source, target)


def run_of(partition: int, first: int, last: int, downstream: int, *holes: tuple[int, int]) -> MappedRange:
    return run(
        first,
        last,
        downstream,
        holes,
        source=SourcePartition("orders", 1, partition),
        target=TopicPartition("edge.orders", partition),
    )


@pytest.fixture(scope="module")
def answers(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Write everything, then ask every question in one JVM."""
    everything = {"heartbeats": True, "checkpoints": True, "offset_syncs": True, "offset_lag_max": 4}
    edge = site.flow("edge", mm2=everything)
    region = site.flow("region", policy="identity", mm2={"heartbeats": True, "checkpoints": True})
    plant = site.flow("plant", policy={"name": "default", "separator": "_"}, mm2={**everything, "offset_syncs": False})
    # The source is itself a target of another mirror, and of one from here, which must not come back.
    far = Heartbeat("far", "edge", NOW - 5)
    site.put("source", "far.heartbeats", (far.key(), None), (far.key(), far.value()))
    site.put("source", "core.heartbeats", (far.key(), far.value()))
    for topic in ("edge.orders", "edge.far.orders", "orders"):
        site.put("target", topic)
    site.target.create(ledger_spec(edge.ledger_topic, 2))
    site.commit(edge, 0, run_of(0, 10, 19, 100, (12, 2)))
    site.commit(edge, 1, run_of(1, 0, 0, 0))
    for flow in (edge, region, plant):
        writer = site.writer(flow)
        site.do_duties(flow, writer)
        remote = flow.remote_topic("orders")
        writer.write_checkpoints(Checkpoint(c.group, remote, *_rest(c)) for c in EDGE)
        if flow is edge:
            writer.write_checkpoints([REWOUND])
    # What a stranger wrote is stepped over, by the client and by the next writer.
    site.put("target", "region.checkpoints.internal", (b"\0", b"\0"))
    return ask(site, tmp_path_factory.mktemp("java"))


def _rest(checkpoint: Checkpoint) -> tuple[int, int, int, str]:
    return checkpoint.partition, checkpoint.upstream_offset, checkpoint.downstream_offset, checkpoint.metadata


def ask(site: Site, folder: Path) -> dict[str, str]:
    java = str(find_java().executable)
    (compiler,) = jars("compiler")
    libraries = classpath("mm2")
    compile_it = [java, "-jar", str(compiler), "-17", "-proc:none", "-encoding", "UTF-8", "-cp", libraries]
    subprocess.run([*compile_it, "-d", str(folder), str(SOURCE_FILE)], check=True, timeout=400)
    asked = "".join("\t".join(words) + "\n" for words in QUESTIONS.values())
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    done = subprocess.run(
        [java, quiet, "-Dfile.encoding=UTF-8", "-cp", f"{folder}:{libraries}", "ClientCheck", site.addresses["target"]],
        input=asked.encode(),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip(QUESTIONS, done.stdout.decode().splitlines(), strict=True))


JAVA_SAYS = {
    "two partitions and metadata": "{edge.orders-0=987/, edge.orders-1=7/mé}",
    "utf-8 group": "{edge.orders-0=0/}",
    "rewound group": "{edge.orders-0=98/}",
    "unknown group": "{}",
    "groups by pattern": "{billing={edge.orders-0=987/, edge.orders-1=7/mé}, rewound={edge.orders-0=98/}}",
    "identity": "{orders-0=987/, orders-1=7/mé}",
    "own separator": "{plant_orders-0=987/, plant_orders-1=7/mé}",
    "hops: the source": "1",
    "hops: before the source": "2",
    "hops: unknown": "-1",
    "hops: identity": "1",
    "upstream": "[edge, far, region]",
    "upstream: identity": "[edge, far, region]",
    "upstream: own separator": "[plant]",
    "heartbeat topics": "[edge.far.heartbeats, edge.heartbeats, heartbeats, region.far.heartbeats, region.heartbeats]",
    "checkpoint topics": "[edge.checkpoints.internal, region.checkpoints.internal]",
    "checkpoint topics: own separator": "[plant_checkpoints_internal]",
    "remote topics": "[edge.far.heartbeats, edge.far.orders, edge.heartbeats, edge.orders]",
}


@pytest.mark.parametrize("question", JAVA_SAYS)
def test_java_reads_offsets_topology_and_topics_as_they_were_written(answers: Mapping[str, str], question: str) -> None:
    assert answers[question] == JAVA_SAYS[question]


def test_kafkas_own_formatters_read_the_bytes(answers: Mapping[str, str]) -> None:
    first = answers["format heartbeats"].split("|")[0]
    assert first == f"Heartbeat{{sourceClusterAlias=edge, targetClusterAlias=core, timestamp={NOW}}}"
    back = f"Heartbeat{{sourceClusterAlias=core, targetClusterAlias=edge, timestamp={NOW}}}"
    assert answers["format remote heartbeats"] == back
    assert answers["format heartbeats of two hops"] == (
        f"Heartbeat{{sourceClusterAlias=far, targetClusterAlias=edge, timestamp={NOW - 5}}}"
    ), "as it stood on the source, and the tombstone beside it left out"
    assert "OffsetSync{topicPartition=orders-0, upstreamOffset=10, downstreamOffset=100}" in answers["format syncs"]
    assert answers["format checkpoints"].startswith(
        "Checkpoint{consumerGroupId=billing, topicPartition=edge.orders-0, upstreamOffset=1000, downstreamOffset=987, "
    )


def test_offset_syncs_are_the_exact_runs_of_the_ledger(answers: Mapping[str, str], site: Site) -> None:
    assert site.syncs("mm2-offset-syncs.edge.internal")[:4] == [
        OffsetSync("orders", 0, 10, 100),
        OffsetSync("orders", 0, 16, 104),
        OffsetSync("orders", 0, 19, 107),
        OffsetSync("orders", 1, 0, 0),
    ]


@pytest.mark.law("G")
def test_nothing_is_said_twice_and_nothing_back(answers: Mapping[str, str], site: Site) -> None:
    """Law G; and a sync that goes back upstream would make MirrorMaker forget all that it knows."""
    edge = site.flow("edge", mm2={"offset_syncs": True, "offset_lag_max": 4})
    before = site.syncs("mm2-offset-syncs.edge.internal")
    writer = site.writer(edge)
    site.do_duties(edge, writer)
    assert writer.write_checkpoints([*EDGE[:3], REWOUND]) == 0
    region = site.flow("region", policy="identity")
    held = [Checkpoint(c.group, "orders", *_rest(c)) for c in EDGE]
    assert site.writer(region).write_checkpoints(held) == 0, "also past a record that cannot be read"
    assert site.syncs("mm2-offset-syncs.edge.internal") == before
    site.commit(edge, 0, run_of(0, 21, 22, 108), seq=1)
    site.do_duties(edge, writer)
    site.do_duties(edge, writer)
    assert site.syncs("mm2-offset-syncs.edge.internal")[len(before) :] == [
        OffsetSync("orders", 0, 21, 108),
        OffsetSync("orders", 0, 22, 109),
    ]


@pytest.mark.law("H")
def test_law_h_the_source_is_untouched(answers: Mapping[str, str], site: Site) -> None:
    assert [name for name in site.source.topic_names() if not name.startswith("__")] == [
        "core.heartbeats",
        "far.heartbeats",
    ]


def test_topics_are_made_as_mirrormaker_makes_them(answers: Mapping[str, str], site: Site) -> None:
    edge = site.flow("edge", mm2={"heartbeats": True, "checkpoints": True, "offset_syncs": True})
    names = [spec.name for spec in mm2_topics(edge)]
    assert len(names) == 4
    assert {state.partitions for state in site.target.describe(names).values()} == {1}
    assert site.target.configs(names) == {key: {"cleanup.policy": "compact"} for key in names}


def test_the_ledger_is_still_read_as_before(answers: Mapping[str, str], site: Site) -> None:
    edge = site.flow("edge")
    with LedgerReader("target", edge.ledger_topic, {"bootstrap.servers": site.addresses["target"]}) as ledger:
        last = ledger.last(1)
    assert last is not None
    assert last.runs == (run_of(1, 0, 0, 0),)
